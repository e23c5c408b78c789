"""Minimal pairs: of two sentences that differ little, a model should score the acceptable one higher (BLiMP,
Warstadt et al. 2020, arXiv:1912.00582)."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import tee

import numpy as np
from jaxtyping import Float

from bert_jax.config.wording import counted
from bert_jax.finetuning.dataset import say_repairs
from bert_jax.inference.bert import Bert
from bert_jax.inference.pair_files import ASSUMED_LINES, MinimalPair, read_pairs
from bert_jax.inference.scoring import ScoredText
from bert_jax.run.results import Results
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, listed
from bert_jax.system.progress import stage

_ALL = ("", "")
"""The group of all pairs."""
_LEFT_OUT = "pairs left out, as a sentence has no score"
_OUTCOMES = {"1": 1.0, "0": 0.0, "=": 0.5, "-": math.nan}
"""Outcomes of a pair and how they are written: the acceptable sentence has the higher score, the lower score, the same
score as the other sentence, or a sentence has no score."""
_ACCURACIES = ("accuracy", "accuracy_per_token", "accuracy_of_shorter")
"""Accuracies by file: of the scores, of scores divided by the number of tokens, of choosing fewer tokens."""
_LENGTH_EFFECT = 0.1
"""Distance from chance at which a choice by length alone is worth a remark."""


def outcome_numbers(outcomes: str) -> Float[np.ndarray, " N"]:
    """The outcomes of a file's pairs: 1 where the acceptable sentence has the higher score, 0 where the other one has,
    0.5 for a tie, NaN where a sentence has no score."""
    return np.array([_OUTCOMES[outcome] for outcome in outcomes])


def pair_results(
    bert: Bert,
    files: Mapping[str, Place],
    columns: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    method: str | None = None,
    normalized: bool = False,
) -> Results:
    """The `pair_accuracies` of a model on the pairs of `files`, and how texts were scored. Shows progress, and says
    what was mended. Raises what `read_pairs` and `Bert.score_stream` do."""
    repairs = Counter[str]()
    with stage("score", None, "sentences") as bar:
        pairs = read_pairs(files, columns, groups, repairs)
        stream = partial(bert.score_stream, method=method)
        results = pair_accuracies(files, pairs, lambda texts: bar.counted(stream(texts)), repairs, normalized)
    say_repairs("pairs", repairs)
    how = {"method": bert.scorer.method(method) or "log-likelihood", "normalized": normalized}
    return results.updated(how | ({"steps": bert.steps[-1]} if bert.steps else {}))


def pair_accuracies(
    files: Iterable[str],
    pairs: Iterable[MinimalPair],
    stream: Callable[[Iterable[str]], Iterator[ScoredText]],
    repairs: Counter[str],
    normalized: bool = False,
) -> Results:
    """How often `stream` gives the acceptable sentence of a pair the higher score; equal scores count half.

    The accuracy is the mean over `files`; the accuracy of a group is the mean over the files that have pairs of the
    group. `normalized`: scores are divided by the number of tokens. Sentences of the same tokens have equal scores.
    `repairs` counts pairs of equal sentences, and pairs that are left out because a sentence has no score. Raises
    UsageError if all pairs of a file are left out.
    """
    pairs, read = tee(pairs)
    texts = stream(sentence for pair in pairs for sentence in (pair.good, pair.bad))
    rows: dict[tuple[str, str], dict[str, list[list[float]]]] = {_ALL: {name: [] for name in files}}
    for pair, good, bad in zip(read, texts, texts, strict=True):
        outcome = _outcomes(good, bad, normalized)
        is_scored = not math.isnan(outcome[0])
        repairs[_LEFT_OUT] += not is_scored
        repairs["pairs of equal sentences, which are ties"] += is_scored and good.text == bad.text
        for group in (_ALL, *(pair.groups.items() if is_scored else ())):
            rows.setdefault(group, {}).setdefault(pair.file, []).append(outcome)
    own = rows.pop(_ALL)
    if lacking := [name for name, of_file in own.items() if all(math.isnan(outcome[0]) for outcome in of_file)]:
        raise UsageError(f"no pair of {listed(lacking)} could be scored; give files with pairs of texts")
    figures, groups = {name: _figures(of_file) for name, of_file in own.items()}, dict[str, dict[str, float]]()
    for (column, value), of_files in sorted(rows.items()):
        groups.setdefault(column, {})[value] = _means([_figures(of_file) for of_file in of_files.values()])["accuracy"]
    means, marks = _means([*figures.values()]), {number: mark for mark, number in _OUTCOMES.items()}
    outcomes = {name: "".join(marks.get(outcome[0], "-") for outcome in of_file) for name, of_file in own.items()}
    results = Results(task="minimal pairs", metric="accuracy", score=means["accuracy"], file_figures=figures)
    files, baseline = {name: each["accuracy"] for name, each in figures.items()}, {"accuracy": 0.5}
    results = results.updated({"files": files, "groups": groups, "baseline": baseline})
    ties = "".join(outcomes.values()).count("=")
    noted = {what: repairs.pop(what, 0) for what in (ASSUMED_LINES, _LEFT_OUT)}
    remarks = [f"{counted(count, what)}." for what, count in noted.items() if count]
    remarks += [] if normalized else _length_remarks(means)
    return results.updated({**means, "ties": ties, "remarks": remarks, "outcomes": outcomes})


def _outcomes(good: ScoredText, bad: ScoredText, normalized: bool) -> list[float]:
    """The numbers of `outcome_numbers` for each of _ACCURACIES."""
    if good.score is None or bad.score is None or good.ids == bad.ids:
        # The same tokens in different batches may have scores that differ by rounding.
        return [math.nan if good.score is None or bad.score is None else 0.5] * len(_ACCURACIES)
    a_token = good.score / len(good.ids) - bad.score / len(bad.ids)
    better = [a_token if normalized else good.score - bad.score, a_token, len(bad.ids) - len(good.ids)]
    return ((1 + np.sign(better)) / 2).tolist()


def _figures(outcomes: Sequence[Sequence[float]]) -> dict[str, float]:
    """A file's accuracies, the standard error of the first one over the pairs, and how many pairs are scored and left
    out."""
    scored = np.array([outcome for outcome in outcomes if not math.isnan(outcome[0])])
    error = float(scored[:, 0].std()) / math.sqrt(max(len(scored) - 1, 1))
    accuracies = dict(zip(_ACCURACIES, scored.mean(axis=0).tolist(), strict=True))
    return accuracies | {"standard_error": error, "pairs": len(scored), "left_out": len(outcomes) - len(scored)}


def _means(files: Sequence[dict[str, float]]) -> dict[str, float]:
    """The means of the files' accuracies, the standard error of the first one, and the sums of the numbers of pairs."""
    sums = {name: sum(each[name] for each in files) for name in files[0]}
    error = math.hypot(*(each["standard_error"] for each in files)) / len(files)
    return sums | {name: sums[name] / len(files) for name in _ACCURACIES} | {"standard_error": error}


def _length_remarks(means: Mapping[str, float]) -> list[str]:
    """A remark if the number of tokens alone tells the acceptable sentences from the others."""
    whole, a_token, shorter = (means[name] for name in _ACCURACIES)
    if abs(shorter - 0.5) < max(_LENGTH_EFFECT, 1 / math.sqrt(means["pairs"])):  # two standard errors of a guess
        return []
    return [
        f"The acceptable sentence mostly has {'fewer' if shorter > 0.5 else 'more'} pieces: a choice by length alone "
        f"is right for {max(shorter, 1 - shorter):.1%}. A longer sentence has a lower score, so {whole:.3f} is partly "
        f"an effect of length; with scores divided by the number of pieces (--normalize) it is {a_token:.3f}."
    ]
