"""Trains a run from its newest checkpoint to its end: the one training loop."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

from bert_jax.config.training import TrainingConfig
from bert_jax.model.bert import Parameters
from bert_jax.model.linear import compute_dtype
from bert_jax.run.checkpoint import Checkpoints
from bert_jax.run.hosts import compile_together, is_first
from bert_jax.run.manifest import noted_metrics
from bert_jax.run.measurement import Means
from bert_jax.run.metrics import MetricsLog, changed_lines
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.state import TrainState
from bert_jax.run.tracking import open_trackers
from bert_jax.system.errors import BertJaxError, Interrupted, RunError
from bert_jax.system.journal import note, open_journal
from bert_jax.system.progress import say, stage, tell, warn
from bert_jax.system.whereabouts import here
from bert_jax.training.devices import LESS_MEMORY, peak_flops
from bert_jax.training.ending import Patience, Skips, StopSignals, Watchdog, no_finite_gradient
from bert_jax.training.timing import Cadence, Speed, StepTrace
from bert_jax.training.trainer import PhaseWork, Trainer
from bert_jax.training.trust import check_compiler

_NOTE_EVERY_S = 0.5
"""Seconds between two fetches of measurements for the progress line."""


@contextlib.contextmanager
def _failures_noted() -> Iterator[None]:
    """Adds a failure of the code within to the run's journal, and closes the journal."""
    try:
        yield
    except Interrupted:
        raise  # the loop noted it, with the checkpoint
    except jax.errors.JaxRuntimeError as error:
        note("failed", str(error))
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        reason = str(error).partition("\n")[0].removeprefix("RESOURCE_EXHAUSTED: ").rstrip(".")
        raise RunError(f"no memory is left for {here.text} ({reason}); {LESS_MEMORY}") from None
    except Exception as error:
        note("failed", str(error) if isinstance(error, BertJaxError) else f"{type(error).__name__}: {error}")
        raise
    finally:
        open_journal(None)


class Trained(NamedTuple):
    """What a training ended with."""

    state: TrainState
    evaluations: dict[int, dict[str, Any]]
    """The results of the evaluations that this process has made, by their steps."""


@_failures_noted()
def train(
    trainer: Trainer, run: RunDirectory, phases: list[PhaseWork], initial: Callable[[], Parameters | None]
) -> Trained:
    """Does the steps of `run` that are left, from its newest good checkpoint or from `initial` parameters.

    Raises Interrupted after SIGTERM or Ctrl-C, with a checkpoint written, and RunError where too many steps in a row
    had to be skipped or where the compiler is wrong on this machine.
    """
    config = trainer.config
    if config.execution.check_compiler:
        check_compiler()
    carried, kept = (run.config_file, run.tokenizer), config.checkpoints
    with contextlib.ExitStack() as opened:
        checkpoints = Checkpoints(run.checkpoints, carried, kept.keep, run.check_owner, kept.keep_every, run.stranger)
        opened.enter_context(contextlib.closing(checkpoints))
        state = _beginning(trainer, run, checkpoints, initial)
        trackers = [opened.enter_context(tracker) for tracker in open_trackers(config, run.path)]
        log = MetricsLog(run.path, int(state.step), config.logging.tensorboard, trackers)
        opened.enter_context(contextlib.closing(log))
        trace = opened.enter_context(StepTrace(config.profiled if is_first() else range(0), run.profile))
        all_peaks = (peak_flops(jax.devices()[0]) or 0) * trainer.mesh.size or None
        trained = _run_phases(state, phases, checkpoints, log, trace, config, all_peaks)
        note("finished", f"step {int(trained.state.step):,}")  # before the log is closed, which publishes this, too
    return trained


def _beginning(
    trainer: Trainer, run: RunDirectory, checkpoints: Checkpoints, initial: Callable[[], Parameters | None]
) -> TrainState:
    """The state of the newest good checkpoint or, where there is none, with the `initial` parameters; says which."""
    config = trainer.config
    state = checkpoints.restore(trainer.state_shapes)
    if state is None:
        if aside := sorted(path.name for path in run.checkpoints.glob("damaged-*")):
            warn(f"{run.path} has no good checkpoint left ({', '.join(aside)}): it begins anew")
        state = trainer.initial_state(initial())
        note("begun", f"{config.steps:,} steps")
    elif state.step:
        tell("resumed", f"going on from step {int(state.step):,}")
        if config.profiled and config.profiled[-1] <= state.step:
            say(f"profile_steps={config.profile_steps} are done already: no trace is written")
    if is_first() and (changed := changed_lines(run.metrics_file, noted_metrics(run.checkpoints, int(state.step)))):
        warn(f"{run.metrics_file}: {changed}; training goes on")
    model = trainer.objective.model
    say(f"computing in {compute_dtype(model).name} (model.compute_dtype={model.compute_dtype})")
    return state


def _run_phases(
    state: TrainState,
    phases: list[PhaseWork],
    checkpoints: Checkpoints,
    log: MetricsLog,
    trace: StepTrace,
    config: TrainingConfig,
    all_peaks: float | None,
) -> Trained:
    """Runs the steps that `state` has not done yet, with evaluation, checkpoints and log at their cadence.

    `all_peaks`: peak FLOP/s of all devices together; None if unknown.
    """
    evaluations: dict[int, dict[str, Any]] = {}
    limit = config.execution.stuck_after_minutes
    with StopSignals(lambda: checkpoints.newest) as stop, Watchdog(limit, log.path.parent) as watchdog:
        cadence = Cadence(config.checkpoints, int(state.step))
        for phase in phases:
            loop = _Loop(phase, checkpoints, cadence, log, config, stop, watchdog, all_peaks, evaluations)
            if loop.has_work(int(state.step)):
                state = loop.run(state, trace)
    _finish(checkpoints)
    return Trained(state, evaluations)


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
        all_peaks: float | None,
        evaluations: dict[int, dict[str, Any]],
    ):
        """The results of each evaluation are added to `evaluations`."""
        self._evaluations = evaluations
        self._phase, self._checkpoints, self._cadence, self._log = phase, checkpoints, cadence, log
        self._config, self._stop, self._watchdog, self._all_peaks = config, stop, watchdog, all_peaks
        self._patience, self._noted = Patience(phase, log), 0.0

    def has_work(self, step: int) -> bool:
        """Whether this phase has steps or an evaluation left after `step` steps of the run."""
        done = step - self._phase.first
        if self._patience.is_over():
            return False
        return 0 <= done < self._phase.steps or done == self._phase.steps and self._owes_evaluation(step)

    def run(self, state: TrainState, trace: StepTrace) -> TrainState:
        """Trains from `state` to the end of the phase."""
        phase, step = self._phase, int(state.step)
        batches, measured = phase.batches(step - phase.first), None
        self._skips = Skips(min(self._config.execution.max_skipped_steps, self._config.steps), state)
        self._restart_speed()
        with stage(phase.name, phase.steps, "steps", start=step - phase.first) as self._shown:
            self._at("beginning after", step)
            if self._owes_evaluation(step):
                self._evaluate_late(step, state)
                if self._patience.is_over():
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
                if before:
                    self._check_skips(before, step - 1)
                    self._show(before)
                else:  # dispatched, and so compiled
                    self._restart_speed()
                    self._shown.pace_from_here(1)
                self._speed.count(batch, measured["skipped_records"] if phase.skips_records else None)
                self._after(step, state, measured)
                if self._patience.is_over():
                    break
            if measured:
                self._check_skips(measured, step)
        return state

    def _at(self, what: str, step: int) -> None:
        """Notes what is being done, for an error message, and tells the watchdog that there is progress."""
        self._watchdog.step = step
        here.at(f"{what} step {step:,} of {self._config.steps:,} ({self._phase.name})")

    def _show(self, measured: Means) -> None:
        """Counts a step in the progress line, now and then with the measurements of the last step that has ended."""
        if time.monotonic() - self._noted > _NOTE_EVERY_S:
            self._noted = time.monotonic()
            rate = self._phase.sequences * self._shown.rate
            self._shown.note = self._phase.note(_values(measured), rate)
        self._shown.advance()

    def _after(self, step: int, state: TrainState, measured: Means) -> None:
        """Does what is due once `step` is dispatched: a line of the log, an evaluation, a checkpoint, the end."""
        last, ends_phase = step == self._config.steps, step == self._phase.first + self._phase.steps
        if step % self._config.log_every == 0 or last:
            values = _values(measured)
            self._log.write(step, "train", self._speed.measurements(values.pop("tokens")) | values)
            self._skips.tell(int(values["skipped"]), step)
            self._restart_speed()
        evaluation = self._evaluate(step, state) if self._evaluates(step) else None
        stopping = self._stop.at(step)  # read once: a signal may come at any time
        if self._cadence.due(step) or ends_phase or stopping or self._patience.is_over():
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
            results = self._phase.evaluate(state.params, self._asked_to_stop)
        self._shown.note = noted_before
        self._shown.show()
        evaluation = results and {name: value for name, value in results.items() if isinstance(value, float)}
        if evaluation:
            self._evaluations[step] = results
            self._log.write(step, "eval", evaluation)
            say(f"step {step:,}, held out: {self._phase.note(evaluation)}")
            self._patience.tell(step, self._config.steps)
        return evaluation

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

    def _restart_speed(self) -> None:
        self._speed = Speed(self._phase.sequences, self._phase.flops, self._all_peaks)

    def _check_skips(self, measured: Means, step: int) -> None:
        """Raises RunError where too many steps in a row, up to `step`, had no finite gradient."""
        if skipped := self._skips.too_many(measured, step):
            rate = self._config.optimizer.peak_learning_rate
            run, good = self._log.path.parent, self._checkpoints.last_good()
            raise no_finite_gradient(skipped, step, self._phase, run, good, rate)


def _finish(checkpoints: Checkpoints) -> None:
    """Waits for the last checkpoint. Raises RunError where it could not be written."""
    checkpoints.finish()
    if checkpoints.failure:
        raise RunError(f"{checkpoints.failure}; give the same command again once that is mended")


def _values(measured: Means) -> dict[str, float]:
    """Fetches measurements from the device, as numbers by name. The mean of nothing, where all steps since the last
    line of the log were skipped, isn't a number."""
    fetched = jax.device_get(measured).items()
    values = {name: float(mean.value) if mean.count else math.nan for name, mean in fetched}
    del values["skipped_in_a_row"], values["skipped_records"]
    return values
