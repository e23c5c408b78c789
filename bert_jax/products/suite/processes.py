"""The processes of a suite: calls, a few at a time, which share the cores and end with the suite."""

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from bert_jax.system import interruption
from bert_jax.system.errors import BertJaxError, Interrupted, RunError, UsageError
from bert_jax.system.workers import OwnProcess, available_cores

Result = TypeVar("Result")
_CAN_PIN = hasattr(os, "sched_setaffinity")
"""Whether the system, such as Linux, lets a thread choose its cores."""


class Processes:
    """The processes of a suite."""

    def __init__(self, at_once: int):
        """Raises UsageError if `at_once` processes can't share the cores."""
        cores = sorted(os.sched_getaffinity(0)) if _CAN_PIN else list(range(available_cores()))
        if not 1 <= at_once <= len(cores):
            raise UsageError(f"--at-once {at_once}: this process may use {len(cores)} cores, so 1 to {len(cores)} runs")
        self.at_once, self.ending = at_once, False
        self.shares = [cores[worker::at_once] for worker in range(at_once)]
        """The cores of each process."""
        self._lock = threading.Lock()

    def pool(self) -> ThreadPoolExecutor:
        """Threads whose processes share this one's cores."""
        shares = queue.SimpleQueue[list[int]]()
        for share in self.shares:
            shares.put(share)

        def take_share() -> None:
            if _CAN_PIN:
                os.sched_setaffinity(0, shares.get())

        return ThreadPoolExecutor(self.at_once, initializer=take_share)

    def call(self, function: Callable[..., Result], *arguments: Any, log: Path | None = None) -> Result:
        """Calls `function` in a process of its own. With `log` it is a training: SIGTERM has it write a checkpoint, and
        its output goes to that file. Raises what it raises, and RunError if the process dies or the suite ends."""
        if log:
            log.parent.mkdir(exist_ok=True)
            function, arguments = _logged, (log, function, *arguments)
        with self._lock:
            if self.ending:
                raise RunError("the suite ends")
            process = OwnProcess(function, *arguments)
        return process.result()

    def end(self) -> None:
        """Ends the processes at work; trainings write their checkpoints first. No other starts."""
        with self._lock:
            self.ending = True
            for process in multiprocessing.active_children():
                process.terminate()


def _logged(log: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls `function` with this process's output in the file `log`. The first SIGTERM interrupts it. Raises what it
    raises, and Interrupted after a signal."""
    with open(log, "a", encoding="utf-8") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    interruption.listen()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the suite decides what Ctrl-C means
    try:
        return function(*arguments)
    except BaseException as error:
        ours = isinstance(error, BertJaxError)
        if interruption.interrupted(error) or not ours and interruption.raised():
            raise Interrupted(f"{log.stem} was stopped; give the same command again to go on") from None
        raise
    finally:
        interruption.stop_raising()
