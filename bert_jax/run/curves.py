"""The measurements of a run as curves over its steps, and how they are thinned for a chart."""

from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bert_jax.run.metrics import DamagedLine, Line, listed_damage, metrics_lines
from bert_jax.system.bucket import Place
from bert_jax.system.errors import BertJaxError, first_line

MOST_POINTS = 1000
"""Most points of a curve in a chart: more than a screen has columns."""
_MOST_NAMES = 600
"""Most measurements that are read. A run has some twenty, and four for each of about a hundred languages."""
_LONGEST_NAME = 80
"""Most characters of a name that is read."""
_FINITE = 1e300
"""Largest number that is shown: beyond it the differences that charts compute are infinite."""


class Curve(NamedTuple):
    """One measurement over the steps, in their order; only finite values."""

    steps: np.ndarray
    """[N], whole numbers."""
    values: np.ndarray
    """[N]."""

    def __bool__(self) -> bool:
        return len(self.steps) > 0

    @property
    def last(self) -> float:
        """The newest value."""
        return float(self.values[-1])

    def thinned(self, most: int = MOST_POINTS) -> "Curve":
        """At most `most` points: the first, the last, and the least and greatest value of equal parts of the others."""
        count = len(self.steps)
        if count <= most:
            return self
        bounds = np.linspace(1, count - 1, (most - 2) // 2 + 1).astype(int)
        parts = [(begin, self.values[begin:end]) for begin, end in zip(bounds[:-1], bounds[1:], strict=True)]
        extremes = {begin + int(pick(part)) for begin, part in parts for pick in (np.argmin, np.argmax)}
        kept = np.array(sorted({0, *extremes, count - 1}))
        return Curve(self.steps[kept], self.values[kept])


NO_CURVE = Curve(np.zeros(0, np.int64), np.zeros(0))


class Curves:
    """All measurements of a metrics.jsonl. Reads it line by line, so a million lines take little memory."""

    def __init__(self, path: Place):
        self.lines = 0
        """Number of lines that could be read."""
        self.last_step = 0
        self.last_evaluation = 0
        """The newest step at which held-out data was measured."""
        self.without_loss = 0
        """Number of training lines whose loss was not finite."""
        self.lost_evaluations = 0
        """Number of evaluations in a row, up to the newest, whose loss was not finite."""
        self.damage: str | None = None
        """The lines that couldn't be read, in words."""
        damaged: list[DamagedLine] = []
        read: dict[tuple[str, str], tuple[array, array]] = {}
        try:
            for line in metrics_lines(path):
                if isinstance(line, Line):
                    self._take(line.values, read)
                else:
                    damaged.append(line)
        except (OSError, BertJaxError) as error:
            self.damage = first_line(error)
        if damaged:
            self.damage = listed_damage(damaged)
        self._curves = {key: _curve(steps, values) for key, (steps, values) in read.items()}

    def _take(self, values: dict[str, Any], read: dict[tuple[str, str], tuple[array, array]]) -> None:
        step, split = values["step"], values["split"]
        self.lines += 1
        self.last_step = max(self.last_step, step)
        if split == "train" and "loss" in values and _finite(values["loss"]) is None:
            self.without_loss += 1
        if split == "eval" and "loss" in values:
            self.last_evaluation = max(self.last_evaluation, step)
            self.lost_evaluations = self.lost_evaluations + 1 if _finite(values["loss"]) is None else 0
        for name, value in values.items():
            if name == "step" or (number := _finite(value)) is None:
                continue
            if (split, name) not in read and len(read) < _MOST_NAMES and len(name) <= _LONGEST_NAME:
                read[split, name] = array("q"), array("d")
            if columns := read.get((split, name)):
                columns[0].append(step)
                columns[1].append(number)

    def of(self, split: str, name: str) -> Curve:
        """The measurement `name` in the lines of `split`, train or eval; without points if there is none."""
        return self._curves.get((split, name), NO_CURVE)

    def by_language(self, name: str) -> dict[str, Curve]:
        """The held-out measurement `name` of each language that has one, by language: `hi/loss` has the key `hi`."""
        return dict(sorted(self._by_language(name)))

    def _by_language(self, name: str) -> Iterator[tuple[str, Curve]]:
        for (split, full), curve in self._curves.items():
            language, slash, last = full.rpartition("/")
            if split == "eval" and slash and last == name:
                yield language, curve


def _finite(value: Any) -> float | None:
    """`value` as a number that a chart can show; None for any other."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _FINITE:
        return None
    return float(value)


def _curve(steps: array, values: array) -> Curve:
    by_step = np.asarray(steps, np.int64)
    order = np.argsort(by_step, kind="stable")
    return Curve(by_step[order], np.asarray(values)[order])
