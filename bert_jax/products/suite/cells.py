"""The scores of a suite: a model on a task, an average over tasks, and what is compared of two models."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.products.suite.significance import bootstrap_error, pair_errors
from bert_jax.products.suite.suite_tables import AVERAGE
from bert_jax.products.suite.tasks import AND, RowOutcomes


class Cell(NamedTuple):
    """A model's scores on a task with its best setting, by seed."""

    model: str
    task: str
    metric: str
    scores: dict[int, float]
    planned: int = 1
    """Number of seeds with which it is measured."""
    setting: dict[str, Any] = {}
    outcomes: RowOutcomes = RowOutcomes()
    baseline: float | None = None
    """The score of a method that learns nothing; None if it isn't known."""
    share_seen: float | None = None
    """The share of the rows that was found in the model's pretraining text; None if it isn't known."""
    unread: str | None = None
    """Why a part of that text couldn't be looked through, so that the share may be larger."""

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores.values())

    @property
    def spread(self) -> float | None:
        return statistics.stdev(self.scores.values()) if len(self.scores) > 1 else None

    @property
    def text(self) -> str:
        spread = "" if self.spread is None else f" ± {self.spread:.3f}"
        seeds = f" ({len(self.scores)} of {self.planned} seeds)" if self.lacks_seeds else ""
        least = "at least " if self.unread else ""
        seen = "" if self.share_seen is None else f" ({least}{self.share_seen:.1%} seen)"
        return f"{self.mean:.3f}{spread}{seeds}{seen}"

    @property
    def lacks_seeds(self) -> bool:
        """Whether a run of some seed failed or isn't finished."""
        return len(self.scores) < self.planned


class Winner(NamedTuple):
    """The model with the highest score on a task."""

    task: str
    model: str
    score: float
    indistinguishable: list[str]
    """The models that are not distinguishable from it, by Holm's correction over the comparisons of all pairs of
    models, as any of them might have been the best."""

    @property
    def text(self) -> str:
        near = f"not distinguishable from it: {'; '.join(self.indistinguishable)}" if self.indistinguishable else ""
        return f"{self.task}: the best is {self.model} with {self.score:.3f}; {near or 'all others are worse'}"


def paired_scores(ours: Cell, theirs: Cell) -> tuple[list[float], list[float]]:
    """The scores of two models, paired by seed. The score of a model that is measured once stands for every seed."""
    seeds = max([list(ours.scores), list(theirs.scores)], key=len)
    first, second = ([cell.scores.get(seed, cell.mean) for seed in seeds] for cell in (ours, theirs))
    return first, second


def cells_of_common_pairs(cells: dict[str, Cell]) -> dict[str, Cell]:
    """The cells with the pairs alone that all models score, if there are some, and with the scores on these."""
    every = [outcomes for cell in cells.values() for outcomes in cell.outcomes.sums if len(cell.outcomes.files)]
    kept = ~np.isnan(sum(every, np.zeros((1, 1))))[:, 0]
    if kept.all() or not kept.any():
        return cells
    common = dict[str, Cell]()
    for name, cell in cells.items():
        files = np.unique(cell.outcomes.files[kept], return_inverse=True)[1]
        sums = tuple(each[kept] for each in cell.outcomes.sums)
        means = [np.bincount(files, each[:, 0]) / np.bincount(files) for each in sums]
        scores = {seed: float(mean.mean()) for seed, mean in zip(cell.scores, means, strict=True)}
        common[name] = cell._replace(outcomes=RowOutcomes(sums, files), scores=scores)
    return common


def row_errors(ours: Cell, theirs: Cell) -> list[tuple[float, int]]:
    """Standard errors of a difference by the choice of rows, and their numbers; [] where they aren't compared."""
    first, second = ours.outcomes.sums, theirs.outcomes.sums
    if not (first and second and len(first[0]) == len(second[0])):
        return []
    if len(ours.outcomes.files):
        return pair_errors(np.mean(first, axis=0)[:, 0] - np.mean(second, axis=0)[:, 0], ours.outcomes.files)
    return [(bootstrap_error(first, second, ours.metric.split(AND)), len(first[0]))]


def average_cell(cells: Sequence[Cell]) -> Cell:
    """The means over tasks, for the seeds of the task that has most. A task that lacks a seed counts with its mean over
    seeds."""
    seeds = max((list(cell.scores) for cell in cells), key=len)
    means = {seed: statistics.fmean(cell.scores.get(seed, cell.mean) for cell in cells) for seed in seeds}
    known = [cell.baseline for cell in cells if cell.baseline is not None]
    return Cell(
        cells[0].model,
        AVERAGE,
        "",
        means,
        planned=max(cell.planned for cell in cells),
        baseline=statistics.fmean(known) if len(known) == len(cells) else None,
    )


def rank_of(cells: Mapping[str, Cell], name: str) -> float:
    """The rank of a model by its mean, from 1 for the highest; equal means share theirs."""
    means = [cell.mean for cell in cells.values()]
    return 1 + sum(mean > cells[name].mean for mean in means) + (means.count(cells[name].mean) - 1) / 2
