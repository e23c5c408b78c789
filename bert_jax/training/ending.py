"""Early ends of a run: a signal, no progress, no better score, or no finite gradient."""

import faulthandler
import os
import signal
import threading
from collections.abc import Callable

import jax
from jax.experimental import multihost_utils

from bert_jax.config.wording import counted
from bert_jax.run.hosts import agreed, is_first
from bert_jax.run.measurement import Means
from bert_jax.run.metrics import MetricsLog
from bert_jax.run.state import TrainState
from bert_jax.system import interruption
from bert_jax.system.bucket import Place
from bert_jax.system.copies import local_path, publish
from bert_jax.system.errors import RunError, Setting
from bert_jax.system.files import replacing, write_json
from bert_jax.system.journal import Whereabouts, here, note
from bert_jax.system.progress import say, warn
from bert_jax.training.trainer import PhaseWork

_SKIPPED = "skipped_steps.json"
"""File in the run with the training records of those skipped steps that ended the training."""
STUCK = 124
"""Exit code of a run that got stuck: the same as of the command `timeout`."""
_TICK_S = 1.0
_REPORT_S = 20.0
"""Maximum seconds for writing the stacks of all threads, since the disk itself may hang."""


class StopSignals:
    """Within the block, the first SIGTERM or Ctrl-C requests a stop after the current step; later signals are ignored.

    In a command, a second Ctrl-C ends the process at once (see `interruption`); elsewhere it raises KeyboardInterrupt.
    With several processes, JAX handles SIGTERM, whichever process receives it, and all processes stop after the same
    step. A Ctrl-C is passed on as SIGTERM.
    """

    requested = False
    """Whether this process received a signal. `at` gives the decision on which all processes agree."""
    wanted = False
    """Whether the training itself should end: `on_measured` returned True, or training harms the initial model."""

    def __init__(self, newest: Callable[[], int | None]):
        """`newest` returns the step of the newest checkpoint, which the message of a second Ctrl-C names."""
        self._message = interruption.advising(lambda: _left(newest()))

    def __enter__(self) -> "StopSignals":
        self._message.__enter__()
        alone = {signal.SIGTERM: self._request, signal.SIGINT: self._request}
        handlers = alone if jax.process_count() == 1 else {signal.SIGINT: self._request_of_all}
        if threading.current_thread() is not threading.main_thread():
            handlers = {}  # Python handles signals in its main thread alone
        self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        return self

    def at(self, step: int) -> bool:
        """Whether to stop after `step`. Must be called after every step."""
        if jax.process_count() > 1:
            return multihost_utils.reached_preemption_sync_point(step)
        return self.requested or self.wanted

    def is_wanted(self) -> bool:
        """Whether `request` caused the stop, and not a signal. All processes must call it."""
        return bool(agreed(int(self.wanted and not self.requested)))

    def __exit__(self, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._message.__exit__(None, None, None)

    def request(self) -> None:
        """Ends the training after the current step, without an error."""
        self.wanted = True
        if jax.process_count() > 1:
            os.kill(os.getpid(), signal.SIGTERM)  # all processes stop after the step on which they agree

    def _request(self, number: int, frame) -> None:
        if self.requested and number == signal.SIGINT and not interruption.watched():
            raise KeyboardInterrupt
        interruption.stop_raising()
        self.requested = True

    def _request_of_all(self, number: int, frame) -> None:
        interruption.stop_raising()
        # `interruption` acts upon a second Ctrl-C if it watches.
        handler = (lambda *_: None) if interruption.watched() else signal.default_int_handler
        signal.signal(signal.SIGINT, handler)
        os.kill(os.getpid(), signal.SIGTERM)


def _left(newest: int | None) -> str:
    """A message about the newest checkpoint, for an immediate exit."""
    if newest is None:
        return "there is no checkpoint yet; give the same command again to begin anew"
    return f"the newest checkpoint is the one from step {newest:,}; give the same command again to go on from there"


class Patience:
    """Ends a phase after some evaluations in a row without a better score. The scores come from the log, so a resumed
    run ends at the same step as an uninterrupted one."""

    def __init__(self, phase: PhaseWork, log: MetricsLog):
        self._phase, self._log = phase, log

    def is_over(self) -> bool:
        """Whether the phase should end."""
        patience, scores = self._phase.patience, self._log.scores
        return patience is not None and len(scores) - 1 - _best(scores) >= patience

    def announce(self, step: int, steps: int) -> None:
        """Prints a message if patience ends the training after `step`, before the last of `steps`."""
        if not self.is_over() or step == steps:
            return
        best_step, best_score = list(self._log.scores.items())[_best(self._log.scores)]
        evaluations = counted(self._phase.patience or 0, "evaluations")
        say(
            f"training ends at step {step:,} of {steps:,}: in {evaluations} no {self._phase.score} was "
            f"better than {best_score:.4f}, of step {best_step:,}"
        )


def _best(scores: dict[int, float]) -> int:
    """Index of the first evaluation with the best score; -1 if there is none."""
    values = list(scores.values())
    return values.index(max(values)) if values else -1


class Skips:
    """Detects too many skipped steps in a row. Fetches the count from the device when it may have reached the limit."""

    def __init__(self, limit: int, state: TrainState):
        self._limit = limit
        self._look_at = int(state.step) + max(limit - int(state.skipped_in_a_row), 1)
        self._warned_of = int(state.skipped)

    def too_many(self, measured: Means, step: int) -> int:
        """The number of skipped steps in a row up to `step`, from its measurements; 0 below the limit."""
        if step < self._look_at:
            return 0
        in_a_row = int(measured["skipped_in_a_row"].total)
        self._look_at = step + max(self._limit - in_a_row, 1)
        return in_a_row if in_a_row >= self._limit else 0

    def warn(self, skipped: int, step: int) -> None:
        """Warns if `skipped`, the number of skipped steps of the first `step`, has grown since the last warning."""
        if skipped > self._warned_of:
            warn(f"{skipped:,} of {step:,} steps had no finite gradient and were skipped")
            self._warned_of = skipped


def no_finite_gradient(
    skipped: int, step: int, phase: PhaseWork, run: Place, good: Place | None, rate: float
) -> RunError:
    """The error after `skipped` skipped steps in a row, up to `step`. Writes their records to a file in `run`.

    `good`: the last good checkpoint; `rate`: the peak learning rate.
    """
    numbers = range(max(step - skipped, phase.first) + 1, step + 1)
    records = {number: list(phase.source.record_numbers(number - phase.first - 1)) for number in numbers}
    if is_first():
        write_json(run / _SKIPPED, records)
    first_records = ", ".join(map(str, records[numbers[0]][:8]))
    more = ", ..." if len(records[numbers[0]]) > 8 else ""
    return RunError(
        f"no finite gradient in {skipped} steps in a row, up to step {step:,}. Their training records are in "
        f"{run / _SKIPPED}; step {numbers[0]:,} had {first_records}{more} "
        f"({phase.records_hint(numbers[0])}). The last good checkpoint is "
        f"{good or 'none: nothing was saved before'}; lower {Setting('optimizer.peak_learning_rate')} ({rate:g}) "
        f"and start a new run{' from there' if good else ''}"
    )


class Watchdog:
    """Within the block, ends the process if `watched` reports no progress for too long. A thread counts ticks, so that
    the time of a suspended process or machine doesn't count."""

    def __init__(self, minutes: float | None, run: Place, watched: Whereabouts = here, tick: float = _TICK_S):
        """`minutes`: time without progress; None or 0: unlimited. `run`: the run's directory."""
        self._seconds, self._run, self._watched, self._tick = (minutes or 0) * 60, run, watched, tick
        self.step = 0
        """The step in progress."""
        self._over = threading.Event()

    def __enter__(self) -> "Watchdog":
        if self._seconds:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()

    def _watch(self) -> None:
        seen, idle = self._watched.changes, 0.0
        while not self._over.wait(self._tick):
            idle = idle + self._tick if self._watched.changes == seen else 0.0
            seen = self._watched.changes
            if idle >= self._seconds:
                self._end()

    def _end(self) -> None:
        report = threading.Thread(target=self._write_report, daemon=True)
        report.start()
        report.join(_REPORT_S)
        os._exit(STUCK)

    def _write_report(self) -> None:
        """Writes the stacks of all threads to a file and prints its path, without rich, whose lock may be held."""
        where = self._watched.text
        host = f"-host-{jax.process_index()}" if jax.process_count() > 1 else ""
        path = self._run / f"stuck-{self.step}{host}.txt"
        line = (
            f"\nbert-jax: no progress for {self._seconds / 60:g} minutes while {where}; the stacks of all threads are "
            f"in {path}. Give the same command again to go on from the newest checkpoint, or raise "
            "--execution.stuck-after-minutes if that may take so long\n"
        )
        os.write(2, line.encode())
        note("failed", f"no progress for {self._seconds / 60:g} minutes while {where}")
        with replacing(local_path(path)) as temporary, open(temporary, "w") as file:
            minutes = f"{self._seconds / 60:g} minutes"
            file.write(f"No progress for {minutes} while {where}. Python's threads, newest call first:\n")
            file.flush()
            faulthandler.dump_traceback(file, all_threads=True)
        publish(path)
