"""Commands of bert-jax as processes, a few at a time, which share the cores and end with the suite."""

import multiprocessing
import os
import queue
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.workers import available_cores, death

_CAN_PIN = hasattr(os, "sched_setaffinity")
"""Whether the system, such as Linux, lets a thread choose its cores."""
_ENTRY = (
    "from bert_jax.system.workers import die_with_parent; die_with_parent(); from bert_jax.cli.main import main; main()"
)
"""Program of a command that is killed when the suite is."""


class Commands:
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
        self._running: set[subprocess.Popen[str]] = set()

    def pool(self) -> ThreadPoolExecutor:
        """Threads whose processes share this one's cores."""
        shares = queue.SimpleQueue[list[int]]()
        for share in self.shares:
            shares.put(share)

        def take_share() -> None:
            if _CAN_PIN:
                os.sched_setaffinity(0, shares.get())

        return ThreadPoolExecutor(self.at_once, initializer=take_share)

    def run(self, *arguments: Any) -> str:
        """Runs a command; returns its output. Raises UsageError or RunError, as its exit code says."""
        line = [sys.executable, "-P", "-c", _ENTRY, *map(str, arguments)]
        with self._lock:
            if self.ending:
                raise RunError("the suite ends")
            process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self._running.add(process)
        printed, stderr = process.communicate()
        self._running.discard(process)
        if (code := process.returncode) < 0:
            raise RunError(f"bert-jax {arguments[0]} {death(code)}")
        if code:
            said = [each.strip() for each in stderr.splitlines() if each.strip()] or ["it said nothing"]
            kind = UsageError if code == UsageError.exit_code else RunError
            raise kind(f"bert-jax {arguments[0]} ended with {code}: {said[-1].removeprefix('bert-jax: ')}")
        return printed

    def end(self) -> None:
        """Ends the processes at work, which write their checkpoints first. No other starts."""
        with self._lock:
            self.ending = True
            for process in self._running:
                process.terminate()
            for worker in multiprocessing.active_children():
                worker.terminate()
