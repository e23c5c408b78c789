"""Measures time in the training loop: the rate of steps, a profiler trace, and when checkpoints are due."""

import time
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Float

from bert_jax.config.operation import CheckpointConfig
from bert_jax.run.hosts import agreed
from bert_jax.run.measurement import Mean
from bert_jax.system.bucket import Place
from bert_jax.system.copies import local_path, publish
from bert_jax.system.progress import say
from bert_jax.training.batch import AnyBatch


class Speed:
    """The speed of the steps since the last line of the log."""

    def __init__(self, sequences: float, flops: Callable[[tuple[int, ...]], float], peak_flops: float | None):
        """`sequences`: sequences a step. `flops`: FLOPs of one step on a batch whose ids have a given shape.
        `peak_flops`: FLOP/s of all devices together."""
        self._sequences, self._flops_of, self._peak = sequences, flops, peak_flops
        self._steps, self._positions, self._flops = 0, 0, 0.0
        self._skipped_records: list[Float[Array, ""]] = []
        self._began = time.monotonic()

    def count(self, batch: AnyBatch, skipped_records: Mean | None) -> None:
        """Counts one more step. `skipped_records`: how many draws of damaged records the batch leaves out; None for
        batches that never leave any out."""
        self._steps += 1
        self._positions += batch.tokens.ids.size
        self._flops += self._flops_of(batch.tokens.ids.shape)
        if skipped_records:
            self._skipped_records.append(skipped_records.total)  # fetched with the other measurements

    def paused(self) -> "Speed":
        """A context whose time isn't counted."""
        return self

    def __enter__(self) -> None:
        self._paused_at = time.monotonic()

    def __exit__(self, *_) -> None:
        self._began += time.monotonic() - self._paused_at

    def fill(self, tokens_a_step: float) -> float | None:
        """The share of positions that hold tokens, from 0 to 1; None before the first step."""
        return tokens_a_step / (self._positions / self._steps) if self._steps else None

    def measurements(self, tokens_a_step: float) -> dict[str, float | None]:
        """Sequences and tokens a second; `fill`, the share of positions that hold tokens; `mfu`, FLOP/s over the peak
        (None if that is unknown); and `skipped_records`."""
        seconds = time.monotonic() - self._began
        rate = self._steps / seconds
        return {
            "sequences_per_second": rate * self._sequences,
            "tokens_per_second": rate * tokens_a_step,
            "fill": self.fill(tokens_a_step),
            "mfu": self._flops / seconds / self._peak if self._peak else None,
            "skipped_records": self.skipped_records,
        }

    @property
    def skipped_records(self) -> int:
        """How many times a damaged record was drawn and left out, on all hosts."""
        return int(sum(jax.device_get(self._skipped_records)))


class StepTrace:
    """Within the block, records a profiler trace of the steps in `steps`, written to `directory`."""

    def __init__(self, steps: range, directory: Place):
        self._steps, self._directory = steps, directory
        self._recording = False

    def before(self, step: int, pending: Any) -> None:
        """Must be called before step number `step` is dispatched. `pending`: arrays of the steps in progress."""
        if step in self._steps and not self._recording:
            jax.block_until_ready(pending)
            jax.profiler.start_trace(local_path(self._directory))
            self._recording = True

    def after(self, step: int, pending: Any) -> None:
        """Must be called after step number `step` is dispatched. Writes the trace after the last step."""
        if self._recording and step == self._steps[-1]:
            jax.block_until_ready(pending)
            self._write()

    def __enter__(self) -> "StepTrace":
        return self

    def __exit__(self, *_) -> None:
        if self._recording:  # the training stopped before the last step
            self._write()

    def _write(self) -> None:
        self._recording = False
        jax.profiler.stop_trace()
        publish(self._directory)
        say(f"trace of steps {self._steps[0]:,} to {self._steps[-1]:,}: {self._directory}")


class Cadence:
    """Decides after which steps a checkpoint is due, the same on all hosts.

    The first host's clock decides. Agreeing on its time stops all devices for a moment, so the clock isn't read at
    every step. At each reading the first host announces the number of steps until the next reading: half of the steps
    that fit into the remaining time, but at most as many as were done since the last checkpoint, in case steps become
    slower.
    """

    def __init__(
        self,
        config: CheckpointConfig,
        step: int,
        clock: Callable[[], float] = time.monotonic,
        agree: Callable[[int], int] = agreed,
        is_kept: Callable[[int], bool] = lambda step: False,
    ):
        """`step`: the last step done before this process. `agree`: returns the first host's number on all hosts.
        `is_kept`: whether the checkpoint of a step is permanent."""
        self._every, self._is_kept, self._clock, self._agree = config.every, is_kept, clock, agree
        self._seconds = config.every_minutes and config.every_minutes * 60
        self.saved(step)

    def saved(self, step: int) -> None:
        """Restarts the clock after a checkpoint of `step`. Must be called on all hosts."""
        self._saved, self._saved_at, self._read_at = step, self._clock(), step + 1

    def due(self, step: int) -> bool:
        """Whether a checkpoint is due after `step`. Must be called after every step, on all hosts."""
        if step % self._every == 0 or self._is_kept(step):
            return True
        if self._seconds is None or step < self._read_at:
            return False
        passed = self._clock() - self._saved_at
        left, taken = self._seconds - passed, step - self._saved
        steps = max(1, int(min(left / 2 / max(passed, 1e-9), 1) * taken)) if left > 0 else 0
        steps = self._agree(steps)
        self._read_at = step + steps
        return steps == 0
