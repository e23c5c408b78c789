"""Whether two models differ: differences paired over seeds, and a paired bootstrap over rows."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num, UInt8
from scipy.optimize import brentq
from scipy.special import stdtrit
from scipy.stats import rankdata

from bert_jax.config.wording import counted
from bert_jax.finetuning.metrics import class_scores

LEVEL = 0.05
"""Probability of calling at least one of several equal models different."""
_LEAST = 1e-12
"""Probability that stands for all smaller ones."""
_ROUNDING = 1e-12
"""Standard errors and differences below this come from rounding."""
_NO_CHANCE = "neither seeds nor rows show how much scores vary by chance"
_RESAMPLES = 1000
"""Draws of the bootstrap."""
_LEAST_PAIRS = 10
"""A file of at least this many pairs shows by itself how much outcomes vary."""
_AT_ONCE = 64
"""Draws of the bootstrap that are multiplied together, to bound its memory."""


class Difference(NamedTuple):
    """The difference of two models' scores on a task, and what it rests on."""

    difference: float
    """Mean over seeds of a model's score less the first model's."""
    error: float
    """Standard error of `difference`."""
    p: float
    """Probability of a difference at least as large between equal models; 1 if neither seeds nor rows vary."""
    seeds: int
    rows: int
    """Rows or pairs whose answers were compared; 0 where none were."""
    obstacle: str = ""
    """Why there is no verdict; empty if there is one."""

    @property
    def is_significant(self) -> bool:
        return not self.obstacle and self.p < LEVEL


def score_difference(
    scores: Sequence[float], first_scores: Sequence[float], row_errors: Sequence[tuple[float, int]] = ()
) -> Difference:
    """Compares scores that are paired by seed, by Student's t.

    The variance is the sum over all sources of chance: the mean over seeds, and each set of rows in `row_errors`, which
    has the bootstrap's error and the number of rows. The quantile of t is the mean of the sources' own quantiles,
    weighted by their variances (Cochran and Cox 1950); the test is conservative.
    """
    differences = np.subtract(scores, first_scores)
    of_seeds = float(np.var(differences, ddof=1)) / len(differences) if len(differences) > 1 else 0.0
    parts = [(of_seeds, len(differences) - 1), *((error**2, rows - 1) for error, rows in row_errors)]
    error, mean = math.sqrt(sum(part for part, _ in parts)), float(np.mean(differences))
    rows = sum(count for _, count in row_errors)
    if not math.isfinite(error) or not math.isfinite(mean):
        return Difference(mean, 0.0, 1.0, len(differences), rows, "no row is scored by both")
    if error < _ROUNDING:
        are_equal = (len(differences) > 1 or rows) and abs(mean) < _ROUNDING
        return Difference(mean, 0.0, 1.0, len(differences), rows, "" if are_equal else _NO_CHANCE)
    return Difference(mean, error, _probability(abs(mean) / error, parts), len(differences), rows)


def _probability(t: float, parts: Sequence[tuple[float, int]]) -> float:
    """The probability at which `t` is the quantile of the `parts`, each a variance with its degrees of freedom."""
    weights, freedom = np.array([part for part in parts if part[0]]).T

    def beyond(p: float) -> float:
        return -float(np.average(stdtrit(freedom, p / 2), weights=weights)) - t

    return float(brentq(beyond, _LEAST, 1.0)) if beyond(_LEAST) > 0 else _LEAST


def difference_text(name: str, first: str, compared: Difference, rows: str = "rows") -> str:
    """The verdict on a difference, in words. `rows`: what its rows are called."""
    on = ", ".join([counted(compared.seeds, "seeds"), *([counted(compared.rows, rows)] if compared.rows else [])])
    if compared.obstacle:
        return f"{name} scores {compared.difference:+.3f} beside {first}; no verdict, as {compared.obstacle} ({on})"
    how = f"{compared.difference:+.3f} ± {compared.error:.3f}, p {compared.p:.2g}, {on}"
    if not compared.is_significant:
        return f"{name} and {first} are not distinguishable ({how})"
    return f"{name} is {'better' if compared.difference > 0 else 'worse'} than {first} ({how})"


def adjusted(probabilities: Sequence[float], family: int | None = None) -> list[float]:
    """Holm's probabilities for several comparisons (Holm 1979). A difference counts if its probability is below LEVEL.

    `family`: the number of comparisons, if some of them aren't among `probabilities`. The others count as if their
    probabilities were larger. No result is then smaller than with all comparisons.
    """
    order = np.argsort(probabilities)
    factors = (len(probabilities) if family is None else family) - np.arange(len(probabilities))
    raised = np.maximum.accumulate(np.minimum(np.asarray(probabilities)[order] * factors, 1.0))
    return raised[np.argsort(order)].tolist()


def row_sums(golds: Num[np.ndarray, " N"], predicted: Num[np.ndarray, " N"], classes: bool) -> Float[np.ndarray, "N K"]:
    """What each row adds to the sums from which `scored_sums` computes a metric.

    Of classes: for each class, whether it is the label, the prediction, both. Of numbers: the two numbers, their
    squares and their product, and the same of their ranks.
    """
    if classes:
        names = np.arange(max(golds.max(), predicted.max(), 1) + 1)
        is_gold, is_predicted = golds[:, None] == names, predicted[:, None] == names
        return np.concatenate([is_gold, is_predicted, is_gold & is_predicted], axis=1).astype(float)
    pairs = [(golds, predicted), (rankdata(golds), rankdata(predicted))]
    return np.stack([each for x, y in pairs for each in (x, y, x * x, y * y, x * y)], axis=1).astype(float)


def scored_sums(sums: Float[np.ndarray, "R K"], rows: int, metric: str) -> Float[np.ndarray, " R"]:
    """The metric for each of the R lines of `sums`. Each line is a sum over `rows` rows of data. Sums of `tag_counts`
    have three columns."""
    if metric in ("pearson", "spearman"):
        x, y, xx, yy, xy = (sums[:, 5 * (metric == "spearman") + place] / rows for place in range(5))
        with np.errstate(all="ignore"):
            return np.nan_to_num((xy - x * y) / np.sqrt((xx - x * x) * (yy - y * y)))
    golds, predicted, right = np.split(sums, 3, axis=1)
    if sums.shape[1] == 3:
        return (2 * right / np.maximum(golds + predicted, 1))[:, 0]
    return class_scores(golds, predicted, right, rows)[metric]


_NO_TABLES = np.zeros((0, 2))
SUMMED_METRICS = frozenset({"pearson", "spearman", *class_scores(_NO_TABLES, _NO_TABLES, _NO_TABLES, 0)})
"""The metrics that `scored_sums` computes from `row_sums`. Rows aren't compared by other metrics, such as those of
probabilities."""


def bootstrap_error(
    sums: Sequence[Float[np.ndarray, "N K"]], first_sums: Sequence[Float[np.ndarray, "N K"]], metrics: Sequence[str]
) -> float:
    """Standard deviation, over drawn rows, of the mean over seeds of a model's score less the first model's.

    `sums` and `first_sums` have the `row_sums` of each seed's model on the same rows; the same rows are drawn for all.
    The score is the mean of `metrics`.
    """
    rows = len(sums[0])
    counts = _resamples(rows)
    scores = np.zeros(len(counts))
    for sign, side in ((1, sums), (-1, first_sums)):
        for seed_sums in side:
            drawn = [counts[at : at + _AT_ONCE].astype(float) @ seed_sums for at in range(0, len(counts), _AT_ONCE)]
            for metric in metrics:
                scores += sign * scored_sums(np.concatenate(drawn), rows, metric) / len(side) / len(metrics)
    return float(scores.std()) * math.sqrt(rows / max(rows - 1, 1))  # the bootstrap's variance is too low for few rows


def pair_errors(differences: Float[np.ndarray, " N"], files: Int[np.ndarray, " N"]) -> list[tuple[float, int]]:
    """Standard errors of a mean over files by the choice of each file's pairs, with the numbers of these pairs.

    `differences` are our outcomes less theirs. The files are strata and no sample: a score is the mean over exactly
    these files, so its error comes from the pairs within them (Cochran 1977, section 5.3). Files of fewer than
    _LEAST_PAIRS pairs are taken together, which makes the error larger (section 5A.12). A pair of either sign is added
    to each stratum, so that models that differ in a few pairs or in all have an error, too (Bonett and Price 2012).
    """
    sizes = np.bincount(files)[files]
    weights, errors = 1 / sizes / (files.max() + 1), list[tuple[float, int]]()
    strata = np.where(sizes < _LEAST_PAIRS, -1, files)
    for stratum in np.unique(strata):
        terms, weight = (differences * weights)[strata == stratum], float(weights[strata == stratum].mean())
        deviation = float(np.std([*terms, weight, -weight]))
        errors.append((len(terms) * deviation / math.sqrt(len(terms) + 2), max(len(terms), 2)))
    return errors


@lru_cache(maxsize=4)
def _resamples(rows: int) -> UInt8[np.ndarray, "R N"]:
    """How often each row is drawn, in each of _RESAMPLES draws of as many rows with replacement."""
    generator = np.random.default_rng(0)
    drawn = (np.bincount(generator.integers(rows, size=rows), minlength=rows) for _ in range(_RESAMPLES))
    return np.stack([each.astype(np.uint8) for each in drawn])
