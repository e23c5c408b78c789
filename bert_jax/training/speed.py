"""How fast training is."""

import time
from collections.abc import Callable

import jax

from bert_jax.run.measurement import Mean
from bert_jax.training.batch import AnyBatch


class Speed:
    """Steps since the last line of the log, and the time they took."""

    def __init__(self, batch_size: int, flops: Callable[[tuple[int, ...]], float], peak_flops: float | None):
        """`flops`: of one step on a batch whose ids are of a shape; `peak_flops`: of all devices together."""
        self._batch_size, self._flops_of, self._peak = batch_size, flops, peak_flops
        self._steps, self._flops, self._skipped_records = 0, 0.0, []
        self._began = time.monotonic()

    def count(self, batch: AnyBatch, skipped_records: Mean | None) -> None:
        """Counts one more step. `skipped_records`: those the batch left out, None if it never does."""
        self._steps += 1
        self._flops += self._flops_of(batch.tokens.ids.shape)
        if skipped_records:
            self._skipped_records.append(skipped_records.total)  # fetched when it is asked for

    def paused(self) -> "Speed":
        """A context whose time doesn't count."""
        return self

    def __enter__(self) -> None:
        self._paused_at = time.monotonic()

    def __exit__(self, *_) -> None:
        self._began += time.monotonic() - self._paused_at

    def measurements(self, tokens_a_step: float) -> dict[str, float | None]:
        """What the contract names, `mfu` None where the peak isn't known; and how many damaged records were skipped,
        on all hosts."""
        seconds = time.monotonic() - self._began
        rate = self._steps / seconds
        return {
            "sequences_per_second": rate * self._batch_size,
            "tokens_per_second": rate * tokens_a_step,
            "mfu": self._flops / seconds / self._peak if self._peak else None,
            "skipped_records": int(sum(jax.device_get(self._skipped_records))),
        }
