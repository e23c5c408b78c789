"""The one training loop."""

import time
from collections.abc import Sequence

import jax

from bert_jax.config.training import TrainingConfig
from bert_jax.run.checkpoint import Checkpoints
from bert_jax.run.hosts import compile_together, is_first
from bert_jax.run.measurement import Means
from bert_jax.run.metrics import MetricsLog
from bert_jax.run.state import TrainState
from bert_jax.system.errors import Interrupted, RunError
from bert_jax.system.files import write_json
from bert_jax.system.journal import note
from bert_jax.system.progress import say, stage, warn
from bert_jax.system.whereabouts import here
from bert_jax.training.cadence import Cadence
from bert_jax.training.phase_work import PhaseWork
from bert_jax.training.profile import StepTrace
from bert_jax.training.skips import Skips
from bert_jax.training.speed import Speed
from bert_jax.training.stop_signals import StopSignals
from bert_jax.training.watchdog import Watchdog

_NOTE_EVERY_S = 0.5
"""Seconds between two fetches of measurements for the progress line."""
_SKIPPED = "skipped_steps.json"
"""File in the run with the training records of the steps without finite gradients that ended it."""


def run_phases(
    state: TrainState,
    phases: list[PhaseWork],
    checkpoints: Checkpoints,
    log: MetricsLog,
    trace: StepTrace,
    config: TrainingConfig,
    peak_flops: float | None,
) -> TrainState:
    """Runs the steps that `state` has not done yet, with evaluation, checkpoints and log at their cadence.

    `peak_flops`: of all devices together. Raises Interrupted after SIGTERM or Ctrl-C, with a checkpoint written, and
    RunError where too many steps in a row had to be skipped.
    """
    limit = config.execution.stuck_after_minutes
    with StopSignals(lambda: checkpoints.newest) as stop, Watchdog(limit, log.path.parent) as watchdog:
        cadence = Cadence(config.checkpoints, int(state.step))
        for phase in phases:
            loop = _Loop(phase, checkpoints, cadence, log, config, stop, watchdog, peak_flops)
            if loop.has_work(int(state.step)):
                state = loop.run(state, trace)
    _finish(checkpoints)
    return state


class _Loop:
    """The steps of one phase."""

    def __init__(
        self,
        phase: PhaseWork,
        checkpoints: Checkpoints,
        cadence: Cadence,
        log: MetricsLog,
        config: TrainingConfig,
        stop: StopSignals,
        watchdog: Watchdog,
        peak_flops: float | None,
    ):
        self._phase, self._checkpoints, self._cadence, self._log = phase, checkpoints, cadence, log
        self._config, self._stop, self._watchdog, self._peak_flops = config, stop, watchdog, peak_flops
        self._noted = 0.0

    def has_work(self, step: int) -> bool:
        """Whether this phase has steps or an evaluation left after `step` steps of the run."""
        done = step - self._phase.first
        if self._out_of_patience():
            return False
        return 0 <= done < self._phase.steps or done == self._phase.steps and self._owes_evaluation(step)

    def run(self, state: TrainState, trace: StepTrace) -> TrainState:
        """Trains from `state` to the end of the phase."""
        phase, step = self._phase, int(state.step)
        batches, measured = phase.batches(step - phase.first), None
        skips = Skips(min(self._config.execution.max_skipped_steps, self._config.steps), state)
        self._told_skipped = int(state.skipped)
        self._speed = Speed(phase.batch_size, phase.flops, self._peak_flops)
        with stage(phase.name, phase.steps, "steps", start=step - phase.first) as self._shown:
            self._at("beginning after", step)
            if self._owes_evaluation(step):
                self._evaluate_late(step, state)
                if self._out_of_patience():
                    return state
            self._shown.advance(0, note="compiling")
            for step in range(step + 1, phase.first + phase.steps + 1):
                self._at("waiting for the data of", step)
                batch, before = next(batches), measured
                self._at("computing" if before else "compiling", step)
                if before is None:
                    compile_together(phase.name, phase.train_step, state, batch)
                trace.before(step, state)
                state, measured = phase.train_step(state, batch)
                trace.after(step, state)
                jax.block_until_ready(before)  # one step computes while the next is dispatched, no more
                if before is None:  # dispatched, and so compiled
                    self._speed = Speed(phase.batch_size, phase.flops, self._peak_flops)
                elif skipped := skips.too_many(before, step - 1):
                    raise self._no_finite_gradient(skipped, step - 1)
                self._speed.count(batch, measured["skipped_records"] if phase.skips_records else None)
                if before:
                    self._show(before)
                else:
                    self._shown.pace_from_here(1)
                self._after(step, state, measured)
                if self._out_of_patience():
                    break
            if measured and (skipped := skips.too_many(measured, step)):
                raise self._no_finite_gradient(skipped, step)
        return state

    def _at(self, what: str, step: int) -> None:
        """Notes what is being done, for an error message, and tells the watchdog that there is progress."""
        self._watchdog.step = step
        here.at(f"{what} step {step:,} of {self._config.steps:,} ({self._phase.name})")

    def _show(self, measured: Means) -> None:
        """Counts a step in the progress line, now and then with the measurements of the last step that has ended."""
        if time.monotonic() - self._noted > _NOTE_EVERY_S:
            self._noted = time.monotonic()
            rate = self._phase.batch_size * self._shown.rate
            self._shown.note = self._phase.note(_values(measured), rate)
        self._shown.advance()

    def _after(self, step: int, state: TrainState, measured: Means) -> None:
        """Does what is due once `step` is dispatched: a line of the log, an evaluation, a checkpoint, the end."""
        last = step == self._config.steps
        if step % self._config.log_every == 0 or last:
            values = _values(measured)
            self._log.write(step, "train", self._speed.measurements(values.pop("tokens")) | values)
            self._tell_skipped(step, int(values["skipped"]))
            self._speed = Speed(self._phase.batch_size, self._phase.flops, self._peak_flops)
        evaluation = self._evaluate(step, state) if self._evaluates(step) else None
        stopping = self._stop.at(step)  # read once: a signal may come at any time
        if self._cadence.due(step) or last or stopping or self._out_of_patience():
            if stopping:
                say(f"stopping after step {step:,} with a checkpoint; Ctrl-C (once more) ends at once, without it")
            self._at("writing the checkpoint of", step)
            self._log.publish()
            self._checkpoints.save(step, state, evaluation, self._log.sum)
            self._cadence.saved(step)
        if stopping:
            self._at("finishing the checkpoint of", step)
            _finish(self._checkpoints)
            note("stopped", f"after step {step:,}, with a checkpoint")
            raise self._interrupted(step)

    def _tell_skipped(self, step: int, skipped: int) -> None:
        """Warns if steps have been skipped since the last warning."""
        if skipped > self._told_skipped:
            warn(f"{skipped:,} of {step:,} steps had no finite gradient and were skipped")
            self._told_skipped = skipped

    def _interrupted(self, step: int) -> Interrupted:
        return Interrupted(f"stopped at step {step:,} of {self._config.steps:,}; give the same command again to go on")

    def _evaluates(self, step: int) -> bool:
        due = step % self._config.evaluation.every == 0 or step == self._config.steps
        return bool(self._phase.evaluate) and due

    def _owes_evaluation(self, step: int) -> bool:
        """Whether the run was stopped after `step` of this phase, before or while it was evaluated."""
        return step > self._phase.first and self._evaluates(step) and self._log.last_step("eval") < step

    def _evaluate(self, step: int, state: TrainState) -> dict[str, float] | None:
        """Evaluates on held-out documents and logs the result; returns None if a stop is requested meanwhile."""
        noted_before = self._shown.note
        self._shown.advance(0, note="evaluating")
        self._at("evaluating after", step)
        with self._speed.paused():
            evaluation = self._phase.evaluate(state.params, self._asked_to_stop)
        self._shown.note = noted_before
        self._shown.show()
        if evaluation:
            self._log.write(step, "eval", evaluation)
            say(f"step {step:,}, held out: {self._phase.note(evaluation)}")
            self._tell_patience(step)
        return evaluation

    def _out_of_patience(self) -> bool:
        """Whether so many evaluations in a row were no better that the phase ends: by the log, so that a run that goes
        on ends where it would have ended."""
        patience, scores = self._phase.patience, self._log.scores
        return patience is not None and len(scores) - 1 - _best(scores) >= patience

    def _tell_patience(self, step: int) -> None:
        """Says that training ends early, if patience has run out before the last step."""
        if not self._out_of_patience() or step == self._config.steps:
            return
        best_step, best_score = list(self._log.scores.items())[_best(self._log.scores)]
        evaluations = "1 evaluation" if self._phase.patience == 1 else f"{self._phase.patience} evaluations"
        say(
            f"training ends at step {step:,} of {self._config.steps:,}: in {evaluations} no {self._phase.score} was "
            f"better than {best_score:.4f}, of step {best_step:,}"
        )

    def _asked_to_stop(self) -> bool:
        """Whether a stop is requested. Called after each batch of an evaluation, which counts as progress."""
        here.still()
        return self._stop.requested

    def _evaluate_late(self, step: int, state: TrainState) -> None:
        """The evaluation of a step whose checkpoint was written without. There may be no other step to stop after."""
        if evaluation := self._evaluate(step, state):
            self._checkpoints.add_evaluation(step, evaluation)
        elif self._stop.requested:
            raise self._interrupted(step)

    def _no_finite_gradient(self, skipped: int, step: int) -> RunError:
        """The error after `skipped` steps in a row, up to `step`. Writes the records of these steps to a file."""
        numbers = range(max(step - skipped, self._phase.first) + 1, step + 1)
        records = {number: list(self._phase.records(number - self._phase.first - 1)) for number in numbers}
        run, good = self._log.path.parent, self._checkpoints.last_good()
        if is_first():
            write_json(run / _SKIPPED, records)
        return RunError(
            f"no finite gradient in {skipped} steps in a row, up to step {step:,}. Their training records are in "
            f"{run / _SKIPPED}; step {numbers[0]:,} had {_list(records[numbers[0]])} "
            f"({self._phase.told.format(step=numbers[0])}). "
            f"The last good checkpoint is {good or 'none: nothing was saved before'}; lower "
            f"--optimizer.peak-learning-rate ({self._config.optimizer.peak_learning_rate:g}) and start a new run"
            f"{' from there' if good else ''}"
        )


def _finish(checkpoints: Checkpoints) -> None:
    """Waits for the last checkpoint. Raises RunError where it could not be written."""
    checkpoints.finish()
    if checkpoints.failure:
        raise RunError(f"{checkpoints.failure}; give the same command again once that is mended")


def _values(measured: Means) -> dict[str, float]:
    """Fetches measurements from the device, as numbers by name."""
    values = {name: float(mean.value) for name, mean in jax.device_get(measured).items()}
    del values["skipped_in_a_row"], values["skipped_records"]
    return values


def _list(numbers: Sequence[int]) -> str:
    """The first few numbers, as text."""
    return ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")


def _best(scores: dict[int, float]) -> int:
    """Index of the first evaluation with the best score; -1 if there is none."""
    values = list(scores.values())
    return values.index(max(values)) if values else -1
