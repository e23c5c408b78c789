"""Lets two programs do the same work in turn, each in a process of its own: the ratio of their rates then holds beside
whatever else the machine does."""

import json
import os
import statistics
import subprocess
import sys
from typing import Any

WORK = "work"
"""First argument of a process that does the work of one side."""


class Process:
    """One side at work: `script` called with `WORK` and `arguments`."""

    def __init__(self, script: str, *arguments: str, settings: dict[str, str] | None = None):
        self._process = subprocess.Popen(
            [sys.executable, script, WORK, *arguments],
            env=(settings or {}) | os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, name: str) -> Any:
        """What the side's method `name` returns."""
        print(name, file=self._process.stdin, flush=True)
        if answer := self._process.stdout.readline():
            return json.loads(answer)
        raise SystemExit(f"the process that should {name} has ended; what it said stands above")

    def end(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()


def answers_go_to_output() -> Any:
    """The file for the answers of a side's process; whatever else it prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def answer(side: Any, answers: Any) -> None:
    """Calls the methods of `side` that standard input names, a line each, and writes what they return as JSON."""
    for line in sys.stdin:
        print(json.dumps(getattr(side, line.strip())()), file=answers)


def tell_warm_up(sides: dict[str, Process]) -> None:
    """Warms each side up and prints what it tells of that."""
    for name, side in sides.items():
        for what, value in side.do("warm_up").items():
            print(f"{name}: {what} {value if isinstance(value, list) else round(value, 3)}", flush=True)


def take_turns(sides: dict[str, Process], what: str, count: int, rounds: int, unit: str = "rows/s") -> None:
    """Lets each side do `what`, which goes over `count` rows, in every round; prints rates and ratios to the last."""
    rates = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            rates[name].append(count / side.do(what))
        print(what, *(f"{name} {of_side[-1]:.2f}" for name, of_side in rates.items()), unit, flush=True)
    medians = ", ".join(f"{name} {statistics.median(of_side):.2f} {unit}" for name, of_side in rates.items())
    print(f"{what}, medians of {rounds}: {medians}", flush=True)
    *others, last = rates
    for name in others:
        ratio = statistics.median(rate / base for rate, base in zip(rates[name], rates[last]))
        print(f"{what}: {name} over {last}, median ratio {ratio:.2f}", flush=True)
