"""The one training loop."""

import signal
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
from jax.sharding import NamedSharding

from bert_jax.config.run import RunConfig
from bert_jax.model.bert import Parameters
from bert_jax.system.batch import Batch
from bert_jax.system.errors import Interrupted, RunError
from bert_jax.system.progress import say, stage
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.measurement import Means
from bert_jax.training.metrics import MetricsLog
from bert_jax.training.profile import StepTrace
from bert_jax.training.step import TrainState

_NOTE_EVERY_S = 0.5
"""How often measurements are fetched to be shown."""


class PhaseWork(NamedTuple):
    """One phase, ready to run."""

    name: str
    first: int
    """Steps of the phases before it."""
    steps: int
    batches: Callable[[int], Iterator[Batch]]
    """Batches from the given step of the phase on."""
    train_step: Callable[[TrainState, Batch], tuple[TrainState, Means]]
    """Jitted, the state donated."""
    evaluate: Callable[[Parameters], dict[str, float]] | None
    batch_size: int
    flops: float
    """Of one step, over all devices."""


def train(
    state: TrainState,
    phases: list[PhaseWork],
    checkpoints: Checkpoints,
    log: MetricsLog,
    trace: StepTrace,
    config: RunConfig,
    batch_sharding: NamedSharding,
    peak_flops: float | None,
) -> TrainState:
    """Runs the steps that `state` has not done yet, with evaluation, checkpoints and log at their cadence.

    `peak_flops`: of all devices together. Raises Interrupted after SIGTERM or Ctrl-C, with a checkpoint written, and
    RunError where too many steps in a row had to be skipped.
    """
    with _StopSignals() as stop:
        for phase in phases:
            begun = int(state.step) - phase.first
            if begun >= phase.steps:
                continue
            batches = phase.batches(begun)
            measured, noted = None, 0.0
            with stage(phase.name, phase.steps, "steps", start=begun) as shown:
                shown.advance(0, note="compiling")
                for step in range(phase.first + begun + 1, phase.first + phase.steps + 1):
                    batch = jax.device_put(next(batches), batch_sharding)
                    before = measured
                    trace.before(step, state)
                    state, measured = phase.train_step(state, batch)
                    trace.after(step, state)
                    jax.block_until_ready(before)  # one step computes while the next is dispatched, no more
                    if before is None:  # dispatched, and so compiled
                        speed = _Speed(phase, peak_flops)
                    speed.steps += 1
                    if before and time.monotonic() - noted > _NOTE_EVERY_S:
                        noted = time.monotonic()
                        shown.note = _note(_values(before, config, step - 1), phase.batch_size * shown.rate)
                    shown.advance()

                    last = step == config.steps
                    if step % config.logging.every == 0 or last:
                        values = _values(measured, config, step)
                        log.write(step, "train", speed.measurements(values.pop("tokens")) | values)
                        speed = _Speed(phase, peak_flops)
                    evaluation = None
                    if phase.evaluate and (step % config.evaluation.every == 0 or last):
                        noted_before = shown.note
                        shown.advance(0, note="evaluating")
                        with speed.paused():
                            evaluation = phase.evaluate(state.params)
                        shown.advance(0, note=noted_before)
                        log.write(step, "eval", evaluation)
                        say(f"step {step:,}, held out: {_note(evaluation)}")
                    stopping = stop.requested and not last  # read once: a signal may come at any time
                    if step % config.checkpoints.every == 0 or last or stopping:
                        checkpoints.save(step, state, evaluation)
                    if stopping:
                        _finish(checkpoints)
                        raise Interrupted(
                            f"stopped at step {step:,} of {config.steps:,}; give the same command again to go on"
                        )
    _finish(checkpoints)
    return state


def _finish(checkpoints: Checkpoints) -> None:
    """Waits for the last checkpoint. Raises RunError where it could not be written."""
    checkpoints.wait()
    if checkpoints.failure:
        raise RunError(f"{checkpoints.failure}; give the same command again once that is mended")


def _values(measured: Means, config: RunConfig, step: int) -> dict[str, float]:
    """Fetches measurements. Raises RunError where too many steps in a row were skipped."""
    values = {name: float(mean.value) for name, mean in jax.device_get(measured).items()}
    in_a_row = values.pop("skipped_in_a_row")
    if in_a_row >= config.execution.max_skipped_steps:
        raise RunError(
            f"no finite gradient in {in_a_row:.0f} steps in a row, up to step {step:,}; lower "
            f"--optimizer.peak-learning-rate ({config.optimizer.peak_learning_rate:g}) and start a new run from there"
        )
    return values


def _note(values: dict[str, float], sequences_per_second: float | None = None) -> str:
    parts = [
        f"{label} {values[name]:{form}}"
        for name, label, form in (
            ("loss", "loss", ".3f"),
            ("mlm_accuracy", "MLM", ".3f"),
            ("nsp_accuracy", "NSP", ".3f"),
            ("learning_rate", "rate", ".2e"),
        )
        if name in values
    ]
    if values.get("skipped"):
        parts.append(f"{values['skipped']:.0f} steps skipped")
    if sequences_per_second:
        parts.append(f"{sequences_per_second:,.0f} sequences/s")
    return ", ".join(parts)


class _Speed:
    """Steps since the last line of the log, and the time they took."""

    def __init__(self, phase: PhaseWork, peak_flops: float | None):
        self.steps = 0
        self._phase, self._peak = phase, peak_flops
        self._began = time.monotonic()

    def paused(self) -> "_Speed":
        return self

    def __enter__(self) -> None:
        self._paused_at = time.monotonic()

    def __exit__(self, *_) -> None:
        self._began += time.monotonic() - self._paused_at

    def measurements(self, tokens_a_step: float) -> dict[str, float | None]:
        """What the contract names; `mfu` is None where the peak isn't known."""
        rate = self.steps / (time.monotonic() - self._began)
        return {
            "sequences_per_second": rate * self._phase.batch_size,
            "tokens_per_second": rate * tokens_a_step,
            "mfu": rate * self._phase.flops / self._peak if self._peak else None,
        }


class _StopSignals:
    """Within the block SIGTERM and the first Ctrl-C ask for a stop after the step in flight."""

    requested = False

    def __enter__(self) -> "_StopSignals":
        self._before = {number: signal.signal(number, self._request) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
