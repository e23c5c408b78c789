"""Lets two programs do the same work in turn, each in a process of its own: the ratio of their rates then holds beside
whatever else the machine does."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bert_jax.cli.arguments import Arguments

WORK = "work"
"""First argument of a process that does the work of one side."""


class Process:
    """One side at work: `script` called with `WORK`, the side's name and `options` as JSON."""

    def __init__(self, script: str, name: str, options: Arguments, settings: dict[str, str]):
        self._process = subprocess.Popen(
            [sys.executable, script, WORK, name, options.model_dump_json(exclude={"config"})],
            env=settings | os.environ,
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


@contextmanager
def at_work(
    script: str, names: Iterable[str], options: Arguments, settings: dict[str, str] | None = None
) -> Iterator[dict[str, Process]]:
    """A process for each side, warmed up, which ends with the block; prints what each tells of the warm-up."""
    sides = {name: Process(script, name, options, settings or {}) for name in names}
    for name, side in sides.items():
        for what, value in side.do("warm_up").items():
            print(f"{name}: {what} {value if isinstance(value, list) else round(value, 3)}", flush=True)
    yield sides
    for side in sides.values():
        side.end()


@contextmanager
def exported(run: str) -> Iterator[str]:
    """The model of a run as a Hugging Face directory, which both sides read, until the end of the block."""
    import jax  # not needed by a side of another program, whose threads it would disturb

    from bert_jax.interchange.export import write_model_directory
    from bert_jax.model.sharding import on_first_device
    from bert_jax.run.trained_model import TrainedModel
    from bert_jax.system.bucket import place_of

    with tempfile.TemporaryDirectory() as folder:
        trained, params = TrainedModel.load(place_of(run), on_first_device)
        write_model_directory(Path(folder) / "model", trained.config, jax.device_get(params), trained.tokenizer)
        yield str(Path(folder) / "model")


def start(sides: dict[str, Callable[[Any], Any]], options: type[Arguments], compare: Callable[[Any], None]) -> None:
    """Does what the command line says: compares the sides, or in a process that another has started, works as one."""
    if sys.argv[1:2] == [WORK]:
        work(sides, options)
    else:
        compare(options.parse(sys.argv[1:]))


def work(sides: dict[str, Callable[[Any], Any]], options: type[Arguments]) -> None:
    """Does the work of the side that the command line names: calls its methods that standard input names, a line each,
    and writes what they return as JSON. Whatever else the process prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    side = sides[sys.argv[2]](options(**json.loads(sys.argv[3])))
    for line in sys.stdin:
        print(json.dumps(getattr(side, line.strip())()), file=answers)


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
