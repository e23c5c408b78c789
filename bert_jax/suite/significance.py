"""Whether two models differ: differences paired over seeds, and a paired bootstrap over rows."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Num, UInt8
from scipy.optimize import brentq
from scipy.special import stdtrit

from bert_jax.config.wording import counted

LEVEL = 0.05
"""Probability of calling at least one of several equal models different."""
_LEAST = 1e-12
"""Probability that stands for all smaller ones."""
_RESAMPLES = 1000
"""Draws of the bootstrap."""
_AT_ONCE = 64
"""Draws of the bootstrap that are multiplied together, to bound its memory."""


class Difference(NamedTuple):
    """The difference of two models' scores on a task, and what it rests on."""

    apart: float
    """Mean over seeds of our score less theirs."""
    error: float
    """Standard error of `apart`."""
    p: float
    """Probability of a difference at least as large between equal models; 1 if nothing shows what chance does."""
    seeds: int
    rows: int
    """Rows whose answers were compared; 0 without a bootstrap."""

    @property
    def is_judged(self) -> bool:
        """Whether seeds or rows show what chance does."""
        return self.seeds > 1 or self.rows > 0

    @property
    def counts(self) -> bool:
        """Whether the models are called different."""
        return self.p < LEVEL


def score_difference(
    ours: Sequence[float], theirs: Sequence[float], of_rows: Sequence[tuple[float, int]] = ()
) -> Difference:
    """The difference of scores that are paired by seed, by Student's t with the variances of all sources of chance.

    They are that of the mean over seeds, and those of `of_rows`: the bootstrap's error for each set of rows, with the
    number of its rows. The quantile of t is the mean of the sources' own, weighted by their variances (Cochran and Cox
    1950), which seldom errs towards a difference.
    """
    apart = np.subtract(ours, theirs)
    of_seeds = float(np.var(apart, ddof=1)) / len(apart) if len(apart) > 1 else 0.0
    parts = [(of_seeds, len(apart) - 1), *((error**2, rows - 1) for error, rows in of_rows)]
    variance, mean = sum(part for part, _ in parts), float(np.mean(apart))
    p = _probability(abs(mean) / math.sqrt(variance), parts) if variance else 1.0
    return Difference(mean, math.sqrt(variance), p, len(apart), sum(rows for _, rows in of_rows))


def _probability(t: float, parts: Sequence[tuple[float, int]]) -> float:
    """The probability at which `t` is the quantile of the `parts`, each a variance with its degrees of freedom."""
    weights, freedom = np.array([part for part in parts if part[0]]).T

    def beyond(p: float) -> float:
        return -float(np.average(stdtrit(freedom, p / 2), weights=weights)) - t

    return float(brentq(beyond, _LEAST, 1.0)) if beyond(_LEAST) > 0 else _LEAST


def difference_text(name: str, first: str, found: Difference, rows: str = "rows") -> str:
    """What is said of a difference, in words. `rows`: what its rows are."""
    on = ", ".join([counted(found.seeds, "seeds"), *([counted(found.rows, rows)] if found.rows else [])])
    if not found.is_judged or found.error < _LEAST and found.apart:
        return f"{name} has {found.apart:+.3f} beside {first}; nothing shows what chance does ({on})"
    how = f"{found.apart:+.3f} ± {found.error:.3f}, p {found.p:.2g}, {on}"
    if not found.counts:
        return f"{name} and {first} are not distinguishable ({how})"
    caution = "; with one seed this is said of these two models, not of how they are made" if found.seeds == 1 else ""
    return f"{name} is {'better' if found.apart > 0 else 'worse'} than {first} ({how}{caution})"


def adjusted(probabilities: Sequence[float]) -> list[float]:
    """Holm's probabilities for several comparisons (Holm 1979): each below LEVEL counts."""
    order = np.argsort(probabilities)
    factors = len(probabilities) - np.arange(len(probabilities))
    raised = np.maximum.accumulate(np.minimum(np.asarray(probabilities)[order] * factors, 1.0))
    return raised[np.argsort(order)].tolist()


def row_sums(golds: Num[np.ndarray, " N"], predicted: Num[np.ndarray, " N"], classes: bool) -> Float[np.ndarray, "N K"]:
    """What each row adds to the sums from which `scored_sums` computes a metric.

    Of classes: for each class, whether it is label and prediction, the label, the prediction. Of numbers: the two
    numbers, their squares and their product, and the same of their ranks.
    """
    if classes:
        names = np.arange(max(golds.max(), predicted.max(), 1) + 1)
        is_gold, is_predicted = golds[:, None] == names, predicted[:, None] == names
        return np.concatenate([is_gold & is_predicted, is_gold, is_predicted], axis=1).astype(float)
    pairs = [(golds, predicted), (_ranks(golds), _ranks(predicted))]
    return np.stack([each for x, y in pairs for each in (x, y, x * x, y * y, x * y)], axis=1).astype(float)


def scored_sums(sums: Float[np.ndarray, "R K"], rows: int, metric: str) -> Float[np.ndarray, " R"] | None:
    """The metric of each row of `sums`, which are over `rows` rows of data; None for one that isn't known here."""
    with np.errstate(all="ignore"):
        if sums.shape[1] == 1:  # the mean of values
            return sums[:, 0] / rows
        if metric in ("pearson", "spearman"):
            x, y, xx, yy, xy = (sums[:, 5 * (metric == "spearman") + place] / rows for place in range(5))
            return np.nan_to_num((xy - x * y) / np.sqrt((xx - x * x) * (yy - y * y)))
        right, golds, predicted = np.split(sums, 3, axis=1)
        f1 = np.nan_to_num(2 * right / (golds + predicted))
        macro = f1.sum(axis=1) / np.maximum((golds + predicted > 0).sum(axis=1), 1)
        agreement = right.sum(axis=1) * rows - (golds * predicted).sum(axis=1)
        spread = (rows**2 - (golds**2).sum(axis=1)) * (rows**2 - (predicted**2).sum(axis=1))
        metrics = {
            "accuracy": right.sum(axis=1) / rows,
            "f1": f1[:, 1] if f1.shape[1] == 2 else macro,
            "macro_f1": macro,
            "matthews": np.nan_to_num(agreement / np.sqrt(spread)),
        }
    return metrics.get(metric)


def bootstrap_error(
    ours: Sequence[Float[np.ndarray, "N K"]], theirs: Sequence[Float[np.ndarray, "N K"]], metrics: Sequence[str]
) -> float | None:
    """Standard deviation, over drawn rows, of the mean over seeds of our score less theirs; None for other metrics.

    `ours` and `theirs` have the `row_sums` of each seed's model on the same rows; the same rows are drawn for all. The
    score is the mean of `metrics`.
    """
    rows = len(ours[0])
    counts = _resamples(rows)
    scores = np.zeros(len(counts))
    for sign, side in ((1, ours), (-1, theirs)):
        for sums in side:
            drawn = [counts[at : at + _AT_ONCE].astype(float) @ sums for at in range(0, len(counts), _AT_ONCE)]
            for metric in metrics:
                values = scored_sums(np.concatenate(drawn), rows, metric)
                if values is None:
                    return None
                scores += sign * values / len(side) / len(metrics)
    return float(scores.std()) * math.sqrt(rows / max(rows - 1, 1))  # drawn rows vary too little, which counts for few


@lru_cache(maxsize=4)
def _resamples(rows: int) -> UInt8[np.ndarray, "R N"]:
    """How often each row is drawn, in each of _RESAMPLES draws of as many rows with replacement."""
    generator = np.random.default_rng(0)
    drawn = (np.bincount(generator.integers(rows, size=rows), minlength=rows) for _ in range(_RESAMPLES))
    return np.stack([each.astype(np.uint8) for each in drawn])


def _ranks(values: Num[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """The rank of each value, from 0; equal values have the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[places]
