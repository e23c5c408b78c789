"""Ends a training that makes no progress, so that whoever started it can start it again."""

import faulthandler
import os
import threading
from typing import TextIO

import jax

from bert_jax.system.bucket import Place
from bert_jax.system.copies import publish, worked_on
from bert_jax.system.journal import note
from bert_jax.system.whereabouts import Whereabouts, here

STUCK = 124
"""Exit code of a run that got stuck, as of `timeout`."""
_TICK_S = 1.0
_LAST_WORDS_S = 20.0
"""Seconds for writing the stacks of all threads: they may be waiting for the disk itself."""


class Watchdog:
    """Within the block the process is ended if `here` tells of no progress for too long.

    Time is counted by ticks of a thread, so that a process that was stopped, or a machine that slept, isn't stuck.
    """

    def __init__(self, minutes: float | None, run: Place, watched: Whereabouts = here, tick: float = _TICK_S):
        """`minutes`: how long; None or 0: the process is never ended. `run`: the run's directory."""
        self._seconds, self._run, self._watched, self._tick = (minutes or 0) * 60, run, watched, tick
        self.step = 0
        """The newest step that has begun."""
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
        words = threading.Thread(target=self._tell, daemon=True)
        words.start()
        words.join(_LAST_WORDS_S)
        os._exit(STUCK)

    def _tell(self) -> None:
        """Writes the stacks of all threads to a file and says so, without rich: the main thread may hold its lock."""
        where = self._watched.text
        host = f"-host-{jax.process_index()}" if jax.process_count() > 1 else ""
        path = self._run / f"stuck-{self.step}{host}.txt"
        line = (
            f"\nbert-jax: no progress for {self._seconds / 60:g} minutes while {where}; what every thread was at is in "
            f"{path}. Give the same command again to go on from the newest checkpoint, or raise "
            "--execution.stuck-after-minutes if that may take so long\n"
        )
        os.write(2, line.encode())
        note("failed", f"no progress for {self._seconds / 60:g} minutes while {where}")
        with open(worked_on(path), "w") as file:
            self._dump(file, where)
        publish(path)

    def _dump(self, file: TextIO, where: str) -> None:
        file.write(
            f"No progress for {self._seconds / 60:g} minutes while {where}. Python's threads, newest call first:\n"
        )
        file.flush()
        faulthandler.dump_traceback(file, all_threads=True)
