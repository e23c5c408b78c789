"""Trains a run from its newest checkpoint to its end: the one training loop."""

import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.model.bert import Parameters
from bert_jax.model.kernels.platform import compute_dtype
from bert_jax.run.checkpoint import Checkpoints
from bert_jax.run.environment import changed_threads, environment
from bert_jax.run.hosts import compile_together, is_first
from bert_jax.run.measurement import Means
from bert_jax.run.metrics import MetricsLog, OnMeasured
from bert_jax.run.results import Results
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.state import TrainState
from bert_jax.run.tracking import open_trackers
from bert_jax.system.errors import OUT_OF_MEMORY, BertJaxError, Interrupted, RunError, is_out_of_memory
from bert_jax.system.journal import JOURNAL_FILE, here, note, open_journal
from bert_jax.system.progress import say, stage, tell, warn
from bert_jax.training.devices import LESS_MEMORY, peak_flops
from bert_jax.training.ending import Patience, Skips, StopSignals, Watchdog, no_finite_gradient
from bert_jax.training.timing import Cadence, Speed, StepTrace
from bert_jax.training.trainer import PhaseWork, Trainer

_NOTE_EVERY_S = 0.5
"""Seconds between two fetches of measurements for the progress line."""


class Trained(NamedTuple):
    """The result of a training."""

    state: TrainState
    evaluations: dict[int, Results]
    """The results of this process' evaluations, by step."""


@contextlib.contextmanager
def _failures_noted() -> Iterator[None]:
    """Notes a failure of the block in the run's journal, and closes the journal."""
    try:
        yield
    except Interrupted:
        raise  # the loop noted it, with the checkpoint
    except jax.errors.JaxRuntimeError as error:
        note("failed", str(error))
        if not is_out_of_memory(error):
            raise
        reason = str(error).partition("\n")[0].removeprefix(f"{OUT_OF_MEMORY}: ").rstrip(".")
        raise RunError(f"no memory is left for {here.text} ({reason}); {LESS_MEMORY}") from None
    except Exception as error:
        note("failed", str(error) if isinstance(error, BertJaxError) else f"{type(error).__name__}: {error}")
        raise
    finally:
        open_journal(None)


@_failures_noted()
def train(
    trainer: Trainer,
    run: RunDirectory,
    phases: Sequence[PhaseWork],
    initial: Callable[[], Parameters | None],
    kept_steps: Collection[int] = (),
    on_measured: OnMeasured | None = None,
) -> Trained:
    """Trains `run` through all `phases`, from its newest good checkpoint or, if it has none, from `initial` parameters.
    Checkpoints of `kept_steps` are permanent, as are those of `checkpoints.keep_every`. `on_measured` receives every
    line of the log.

    Raises Interrupted after SIGTERM or Ctrl-C, with a checkpoint written; RunError if too many steps in a row had to be
    skipped, if no memory is left, or if a checkpoint can't be written.
    """
    settings = trainer.config.checkpoints

    def is_kept(step: int) -> bool:
        return step in kept_steps or bool(settings.keep_every and step % settings.keep_every == 0)

    with contextlib.ExitStack() as stack:
        carried = run.config_file, run.tokenizer_directory
        checkpoints = Checkpoints(
            run.checkpoints, carried, settings.keep, run.check_owner, is_kept, run.files.why_foreign
        )
        stack.enter_context(contextlib.closing(checkpoints))
        with Watchdog(trainer.config.execution.stuck_after_minutes, run.path) as watchdog:
            state = _first_state(trainer, run, checkpoints, initial)
            cadence = Cadence(settings, int(state.step), is_kept=is_kept)
            loop = Loop(trainer, run, checkpoints, cadence, stack, int(state.step), watchdog, on_measured)
            with loop.stop:
                for phase in phases:
                    state = loop.train(phase, state)
                    if loop.ended:
                        break
            _finish(checkpoints, run)
        # Noted before the log is closed, because closing the log uploads the journal, too.
        note("finished", f"step {int(state.step):,}")
    return Trained(state, loop.evaluations)


def _first_state(
    trainer: Trainer, run: RunDirectory, checkpoints: Checkpoints, initial: Callable[[], Parameters | None]
) -> TrainState:
    """The state of the newest good checkpoint or, if there is none, a state with the `initial` parameters."""
    config = trainer.config
    here.at("reading the newest checkpoint")
    state = checkpoints.restore(trainer.state_shapes)
    here.at("beginning")
    if state is None:
        if damaged := sorted(path.name for path in run.checkpoints.glob("damaged-*")):
            warn(f"{run.path} has no good checkpoint left ({', '.join(damaged)}): it begins anew")
        state = trainer.initial_state(initial())
        note("begun", f"{config.steps:,} steps")
    elif state.step:
        tell("resumed", f"going on from step {int(state.step):,}")
        if config.profiled and config.profiled[-1] <= state.step:
            say(f"profile_steps={config.profile_steps} are done already: no trace is written")
    model = trainer.objective.model
    say(f"computing in {compute_dtype(model).name} (model.compute_dtype={model.compute_dtype})")
    where = environment(trainer.mesh)
    if remark := state.step and changed_threads(run.path / JOURNAL_FILE, where):
        warn(str(remark))
    note("environment", where)
    return state


class _StopRequested(Exception):
    """Ends an evaluation during which a stop was requested."""


class Loop:
    """The training loop in one process, with the open files of the run."""

    def __init__(
        self,
        trainer: Trainer,
        run: RunDirectory,
        checkpoints: Checkpoints,
        cadence: Cadence,
        stack: contextlib.ExitStack,
        step: int,
        watchdog: Watchdog,
        on_measured: OnMeasured | None,
    ):
        """`step`: the last step done before this process. `stack` closes the files."""
        config = trainer.config
        self._config, self._run, self._checkpoints = config, run, checkpoints
        self._on_measured = on_measured
        trackers = [stack.enter_context(tracker) for tracker in open_trackers(config, run.path, step)]
        self._log = MetricsLog(run.path, step, trackers, run.check_owner)
        stack.enter_context(contextlib.closing(self._log))
        self._trace = stack.enter_context(StepTrace(config.profiled if is_first() else range(0), run.profile))
        self._cadence = cadence
        self._peak_flops = (peak_flops(jax.devices()[0]) or 0) * trainer.mesh.size or None
        self.stop = StopSignals(lambda: checkpoints.newest)
        self._watchdog = watchdog
        self.evaluations: dict[int, Results] = {}
        self.ended = False
        """Whether `on_measured`, or harm to the initial model, ended the training before its last step."""
        self._noted_at = 0.0

    def train(self, phase: PhaseWork, state: TrainState) -> TrainState:
        """Trains from `state` to the end of `phase`. Returns `state` unchanged if its step is outside the phase."""
        self._phase, self._patience, step = phase, Patience(phase, self._log), int(state.step)
        missed_evaluation = self._missed_evaluation(step)
        open_steps = phase.first <= step < phase.last
        if self._patience.is_over() or not (open_steps or step == phase.last and missed_evaluation):
            return state
        self._skips = Skips(min(self._config.execution.max_skipped_steps, self._config.steps), state)
        self._restart_speed()
        with stage(phase.name, phase.steps, "steps", step - phase.first, phase.later) as self._progress:
            self._at("beginning after", step)
            if missed_evaluation:
                self._evaluate_late(step, state)
            return state if self._patience.is_over() or self.ended else self._steps(state, step)

    def _steps(self, state: TrainState, begin: int) -> TrainState:
        """Executes the steps after `begin`. The measurements of a step are read after the next one is dispatched."""
        phase, batches, measured = self._phase, self._phase.batches(begin - self._phase.first), None
        self._progress.advance(0, note="compiling")
        for step in range(begin + 1, phase.last + 1):
            self._at("waiting for the data of", step)
            batch, previous = next(batches), measured
            self._at("computing" if previous else "compiling", step)
            if previous is None:
                compile_together(phase.name, phase.train_step, state, batch)
            self._trace.before(step, state)
            state, measured = phase.train_step(state, batch)
            self._trace.after(step, state)
            jax.block_until_ready(previous)  # at most two steps are in progress
            if previous:
                self._check_skips(previous, step - 1)
                self._show(previous)
            else:  # the step is dispatched, and so it is compiled
                self._restart_speed()
                self._progress.pace_from_here(1)
            self._speed.count(batch, measured["skipped_records"] if phase.skips_records else None)
            if step % self._config.log_every == 0 or step == self._config.steps:
                self._write_log(step, measured)
            evaluation = self._evaluate(step, state) if self._evaluates(step) else None
            stopping = self.stop.at(step)  # read once, because a signal may come at any time
            if self._cadence.due(step) or step == phase.last or stopping or self._patience.is_over():
                if self._speed.skipped_records:  # a run that goes on from here counts later draws alone
                    self._write_log(step, measured)
                self._save(step, state, evaluation, stopping)
            if self._patience.is_over() or self.ended:
                break
        if measured:
            self._check_skips(measured, step)
        return state

    def _at(self, activity: str, step: int) -> None:
        """Reports the activity, for error messages and for the watchdog, which counts it as progress."""
        self._watchdog.step = step
        here.at(f"{activity} step {step:,} of {self._config.steps:,} ({self._phase.name})")

    def _show(self, measured: Means) -> None:
        """Counts a step in the progress line, and updates the measurements there every half second."""
        if time.monotonic() - self._noted_at > _NOTE_EVERY_S:
            self._noted_at = time.monotonic()
            values, rate = _values(measured), self._phase.sequences * self._progress.rate
            self._progress.note = self._phase.note(values, rate, self._speed.fill(values["tokens"]))
        self._progress.advance()

    def _write_log(self, step: int, measured: Means) -> None:
        """Writes a line of training measurements, and restarts the measurement of speed."""
        values = _values(measured)
        speed = self._speed.measurements(values.pop("tokens"))
        self._write_line(step, "train", {**speed, **values})
        self._skips.warn(int(values["skipped"]), step)
        self._restart_speed()

    def _write_line(self, step: int, split: str, values: dict[str, float | None]) -> None:
        """Adds a line to the log, and ends the training if `on_measured` asks for that before the last step."""
        self._log.write(step, split, values)
        if self._on_measured and is_first():
            with self._speed.paused():
                wanted = self._on_measured(step, split, values)
            if isinstance(wanted, bool | np.bool_) and wanted and 0 < step < self._config.steps:
                self.stop.request()

    def _save(self, step: int, state: TrainState, evaluation: dict[str, float] | None, stopping: bool) -> None:
        """Begins to write a checkpoint. If `stopping`, waits until it is written; raises Interrupted after a signal."""
        if stopping and not self.stop.wanted:
            say(f"stopping after step {step:,} with a checkpoint; Ctrl-C (once more) ends at once, without it")
        self._at("writing the checkpoint of", step)
        self._log.publish()
        self._checkpoints.save(step, state, evaluation)
        self._cadence.saved(step)
        if stopping:
            _finish(self._checkpoints, self._run)
            self.ended = self.stop.is_wanted()  # a collective call: no step may be in progress
        if self.ended:
            say(f"training ends at step {step:,} of {self._config.steps:,}")
        elif stopping:
            note("stopped", f"after step {step:,}, with a checkpoint")
            raise self._interrupted(step)

    def _interrupted(self, step: int) -> Interrupted:
        return Interrupted(f"stopped at step {step:,} of {self._config.steps:,}; give the same command again to go on")

    def _evaluates(self, step: int) -> bool:
        due = step % self._config.evaluation.every == 0 or step == self._config.steps
        return self._phase.evaluator is not None and due

    def _missed_evaluation(self, step: int) -> bool:
        """Whether an evaluation at `step` is still to be done: the run was stopped during it, or the run begins with
        parameters that are to be evaluated."""
        due = self._evaluates(step) if step > self._phase.first else step == 0 and self._phase.harm is not None
        return due and self._phase.evaluator is not None and self._log.last_step("eval") < step

    def _evaluate(self, step: int, state: TrainState) -> dict[str, float] | None:
        """Evaluates on held-out data and logs the result; returns None if a stop is requested meanwhile."""
        assert self._phase.evaluator is not None
        note_before = self._progress.note
        self._progress.advance(0, note="evaluating")
        self._at("evaluating after", step)
        try:
            with self._speed.paused(), self._progress.other_work("evaluations"):
                results = self._phase.evaluator.evaluate(state.params, self._between_batches)
        except _StopRequested:
            return None
        finally:
            self._progress.note = note_before
            self._progress.show()
        evaluation = results.logged
        self.evaluations[step] = results
        self._write_line(step, "eval", {**evaluation})
        say(f"step {step:,}, held out: {self._phase.note(evaluation)}")
        self._patience.announce(step, self._config.steps)
        harm = self._phase.harm and self._phase.harm(self._log.started_from, evaluation, step / self._config.steps)
        if harm and step == self._config.steps:
            warn(f"step {step:,}: {harm}")
        elif harm and not self.stop.wanted:
            warn(f"step {step:,}: {harm}; training ends here")
            self.stop.request()
        return evaluation

    def _between_batches(self) -> None:
        """Called before each batch of an evaluation: reports progress, and raises _StopRequested after a signal."""
        here.still()
        if self.stop.requested:
            raise _StopRequested

    def _evaluate_late(self, step: int, state: TrainState) -> None:
        """Evaluates a step whose checkpoint was written without evaluation. Ends the training there if requested."""
        if evaluation := self._evaluate(step, state):
            if step:
                self._checkpoints.add_evaluation(step, evaluation)
            self.ended = self.stop.is_wanted()
        elif self.stop.requested:
            raise self._interrupted(step)

    def _restart_speed(self) -> None:
        self._speed = Speed(self._phase.sequences, self._phase.flops, self._peak_flops)

    def _check_skips(self, measured: Means, step: int) -> None:
        """Raises RunError if too many steps in a row, up to `step`, had no finite gradient."""
        if skipped := self._skips.too_many(measured, step):
            rate = self._config.optimizer.peak_learning_rate
            raise no_finite_gradient(skipped, step, self._phase, self._run.path, self._checkpoints.last_good(), rate)


def _finish(checkpoints: Checkpoints, run: RunDirectory) -> None:
    """Waits for the last checkpoint. Raises RunError if it could not be written."""
    here.at("finishing the last checkpoint")
    checkpoints.finish()
    if checkpoints.failure:
        run.check_owner()  # says by itself why the checkpoint could not be written
        raise RunError(f"{checkpoints.failure}; give the same command again once that is mended")


def _values(measured: Means) -> dict[str, float]:
    """Fetches measurements from the device, by name; NaN if all steps since the last line of the log were skipped."""
    fetched = jax.device_get(measured).items()
    values = {name: float(mean.value) if mean.count else math.nan for name, mean in fetched}
    del values["skipped_in_a_row"], values["skipped_records"]
    return values
