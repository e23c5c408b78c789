"""Metrics of predictions. Scores are shares of 1. Undefined scores, such as correlations of constants, are 0."""

import importlib
import itertools
import operator
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.character_spans import OUTSIDE, counted_tags
from bert_jax.run.results import ClassFigures, Confusion, Results
from bert_jax.system.errors import check_installed, quoted
from bert_jax.system.files import as_json
from bert_jax.text.scripts import sets_no_spaces

_MOST_BYTES = 3_000_000
"""Most bytes of the figures of classes as JSON, and of the confusion: readers of results.json refuse 16 MB."""
SHOWN, _NAMED = 30, 5
"""Most classes in a table, and most in a sentence."""
HEADINGS = ("class", ">gold", ">predicted", ">precision", ">recall", ">F1", "taken for")
Item = TypeVar("Item")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII_PUNCTUATION = frozenset(string.punctuation)


def class_metrics(golds: Sequence[int], predicted: Sequence[int], names: Sequence[str]) -> Results:
    """The metrics of classes, with the results of `class_results` and the `confusion`.

    They are `accuracy`, `f1`, `macro_f1` and `matthews`. With two classes, `f1` is that of the second class; with more,
    it is `macro_f1`. `macro_f1` is the mean over the classes in `golds` or `predicted`, as in scikit-learn.
    """
    true, guessed = ([names[number] for number in side] for side in (golds, predicted))
    right = (name for name, guess in zip(true, guessed, strict=True) if name == guess)
    counts = [Counter(some) for some in (true, guessed, right)]
    of_golds, of_guesses, of_right = (np.array([[float(of_one[name]) for name in names]]) for of_one in counts)
    arrays = class_scores(of_golds, of_guesses, of_right, len(golds))
    scores = {name: float(score) for name, (score,) in arrays.items()}
    return class_results(names, *counts).updated(scores | {"confusion": confusion_of(true, guessed)})


def class_scores(
    golds: Float[np.ndarray, "R K"], predicted: Float[np.ndarray, "R K"], right: Float[np.ndarray, "R K"], rows: int
) -> dict[str, Float[np.ndarray, " R"]]:
    """The metrics of `class_metrics`, by name, for R tables of counts over `rows` rows of data.

    The counts say for each of K classes how often it is the right answer, how often it is predicted, and how often
    both.
    """
    with np.errstate(invalid="ignore"):
        f1 = np.nan_to_num(2 * right / (golds + predicted))
        macro = f1.sum(axis=1) / np.maximum((golds + predicted > 0).sum(axis=1), 1)
        agreement = right.sum(axis=1) * rows - (golds * predicted).sum(axis=1)
        spread = (rows**2 - (golds**2).sum(axis=1)) * (rows**2 - (predicted**2).sum(axis=1))
        return {
            "accuracy": right.sum(axis=1) / rows,
            "f1": f1[:, 1] if f1.shape[1] == 2 else macro,
            "macro_f1": macro,
            "matthews": np.nan_to_num(agreement / np.sqrt(spread)),
        }


def label_metrics(golds: Sequence[Sequence[int]], predicted: Sequence[Sequence[int]], names: Sequence[str]) -> Results:
    """The metrics of labels, with the results of `class_results`.

    `micro_f1` is over all labels of all rows. `macro_f1` is the mean over labels. A label that is neither in the right
    answers nor in the predictions counts as 0. `exact_match` is the share of rows with all labels right. `golds` and
    `predicted` have 0 or 1 for each of `names`.
    """
    true, guessed = np.asarray(golds), np.asarray(predicted)
    counts = [side.sum(axis=0) for side in (true, guessed, true * guessed)]
    right, either = counts[2], counts[0] + counts[1]
    scores = {
        "micro_f1": 2 * float(right.sum()) / max(float(either.sum()), 1.0),
        "macro_f1": float(np.mean(2 * right / np.maximum(either, 1))),
        "exact_match": float(np.mean(np.all(true == guessed, axis=1))),
    }
    named = (Counter(dict(zip(names, of_one.tolist(), strict=True))) for of_one in counts)
    return class_results(names, *named).updated(scores)


def number_metrics(golds: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """The correlations `pearson` and `spearman`, and the mean `squared_error`."""
    statistics = _library("scipy.stats")
    varied = len(set(golds)) > 1 and len(set(predicted)) > 1
    return {
        "pearson": float(statistics.pearsonr(golds, predicted).statistic) if varied else 0.0,
        "spearman": float(statistics.spearmanr(golds, predicted).statistic) if varied else 0.0,
        "squared_error": float(np.mean(np.square(np.subtract(golds, predicted)))),
    }


def tag_metrics(golds: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], names: Sequence[str]) -> Results:
    """The metrics of tags, with the results of `class_results` by type of entity or, if tags name no entities, by tag,
    with the `confusion`.

    `accuracy` is over words. Tags that name entities also have `entity_f1`, `entity_precision` and `entity_recall`,
    which count whole entities as CoNLL's evaluation does.
    """
    pairs = [pair for sentence in zip(golds, predicted, strict=True) for pair in zip(*sentence, strict=True)]
    metrics: dict[str, Any] = {"accuracy": sum(gold == guess for gold, guess in pairs) / max(len(pairs), 1)}
    if counted := counted_tags(names):
        scores = _library("seqeval.metrics")
        both = [[[counted[tag] for tag in tags] for tags in side] for side in (golds, predicted)]
        for name in ("f1", "precision", "recall"):
            metrics[f"entity_{name}"] = float(getattr(scores, f"{name}_score")(*both, zero_division=0))
        entities = _library("seqeval.metrics.sequence_labeling").get_entities
        true, guessed = (set(entities(side)) for side in both)
        names = sorted({tag[2:] for tag in counted.values() if tag != OUTSIDE})
    else:
        true, guessed = ({(pair[side], word) for word, pair in enumerate(pairs)} for side in (0, 1))
        metrics["confusion"] = confusion_of(*map(list, zip(*pairs, strict=True))) if pairs else {}
    counters = (Counter(kind for kind, *_ in some) for some in (true, guessed, true & guessed))
    return class_results(names, *counters).updated(metrics)


def tag_counts(
    golds: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], names: Sequence[str]
) -> dict[str, list[list[int]]]:
    """For `accuracy` and, if tags name entities, `entity_f1`: the numbers of true, predicted and right words or
    entities of each sentence. The metric of `tag_metrics` is twice the sum of the right ones, divided by the sum of the
    others."""
    sentences = list(zip(golds, predicted, strict=True))
    counts = {"accuracy": [[len(gold), len(gold), sum(map(operator.eq, gold, guess))] for gold, guess in sentences]}
    if counted := counted_tags(names):
        entities = _library("seqeval.metrics.sequence_labeling").get_entities
        found = [[{*entities([counted[tag] for tag in tags])} for tags in pair] for pair in sentences]
        counts["entity_f1"] = [[len(true), len(guessed), len(true & guessed)] for true, guessed in found]
    return counts


def metric_of(task: TaskConfig) -> str:
    """The metric that chooses the best checkpoint: task.metric, or the kind's first one that can be measured."""
    measurable = (name for name in task.task_kind.metrics if name != "entity_f1" or counted_tags(task.labels or ()))
    return task.metric or next(measurable)


def check_measurable(task: TaskConfig) -> None:
    """Raises UsageError before training if the library that measures `task` isn't installed."""
    if task.task_kind.measured_by and ("entity_f1" not in task.task_kind.metrics or counted_tags(task.labels or ())):
        _library(task.task_kind.measured_by)


def _library(name: str) -> ModuleType:
    """Imports a module of the extra `tasks`. Raises UsageError if it isn't installed."""
    package = name.partition(".")[0]
    check_installed(f"measuring a task needs {package}", package, "tasks")
    return importlib.import_module(name)


def class_results(names: Sequence[str], golds: Counter[str], predicted: Counter[str], right: Counter[str]) -> Results:
    """The figures of each of the classes `names`; and in words, which classes are never predicted or never right.

    The counters say how often each class is the right answer, how often it is predicted, and how often both.
    """
    figures = [
        ClassFigures(
            label=name,
            rows=golds[name],
            predicted=predicted[name],
            precision=right[name] / max(predicted[name], 1),
            recall=right[name] / max(golds[name], 1),
            f1=2 * right[name] / max(golds[name] + predicted[name], 1),
        )
        for name in names
    ]
    figures.sort(key=lambda each: (not each.rows, each.f1, -each.rows))
    unlearned = _unlearned([each for each in figures if each.rows])
    sizes = [len(as_json([each.model_dump()]).encode()) for each in figures]
    return Results(classes=_cut_to_bytes(figures, sizes), unlearned="; ".join(unlearned))


def _unlearned(figures: Sequence[ClassFigures]) -> Iterator[str]:
    never = [each for each in figures if not each.predicted]
    wrong = [each for each in figures if each.predicted and not each.recall]
    for what, some in (("never predicted", never), ("predicted but never right", wrong)):
        named = [f"{quoted(each.label)} ({each.rows:,})" for each in some[:_NAMED]] + ["..."]
        if some:
            listed = ", ".join(named[: len(some)])
            yield f"{what}: {len(some):,} of {len(figures):,} classes, by rows {listed}"


def confusion_of(golds: Sequence[str], predicted: Sequence[str]) -> Confusion:
    """For each right class, how often each class is predicted for it.

    The class with the most errors comes first. Within a class the most frequent prediction comes first.
    """
    rows: Confusion = {}
    for (true, guess), count in Counter(zip(golds, predicted, strict=True)).most_common():
        rows.setdefault(true, {})[guess] = count
    worst = sorted(rows.items(), key=lambda row: sum(row[1].values()) - row[1].get(row[0], 0), reverse=True)
    return dict(_cut_to_bytes(worst, [len(as_json([each]).encode()) for each in worst]))


def _cut_to_bytes(items: Sequence[Item], sizes: Sequence[int]) -> list[Item]:
    """The first items whose JSON has at most _MOST_BYTES together. `sizes`: the bytes of each item's JSON."""
    ends = itertools.accumulate(sizes)
    return [item for item, end in zip(items, ends, strict=True) if end <= _MOST_BYTES]


def class_table(results: Results) -> tuple[str, list[list[str]]]:
    """A title, and a row under HEADINGS for each of the worst classes; no row without classes.

    ">" in HEADINGS aligns numbers.
    """
    rows = []
    for each in results.classes[:SHOWN]:
        wrong = [one for one in results.confusion.get(each.label, {}).items() if one[0] != each.label]
        counts = [f"{count:,}" for count in (each.rows, each.predicted)]
        shares = [f"{share:.4f}" for share in (each.precision, each.recall, each.f1)]
        rows.append([each.label, *counts, *shares, ", ".join(f"{name} {count:,}" for name, count in wrong[:2])])
    more = len(results.classes) - len(rows)
    return "Classes, the worst first" + f" ({more:,} more in results.json)" * (more > 0), rows


def answer_metrics(
    golds: Sequence[Sequence[str]], predictions: Sequence[dict[str, Any]], splits_characters: bool
) -> dict[str, float]:
    """The metrics of answers: `exact_match` and `f1`, each by the best of a question's `golds`.

    A question without an answer has no golds. `predictions` are those of BestSpans. If these have null odds, both
    metrics are also given for the questions with an answer (as `answerable_f1`) and for the questions without one (as
    `unanswerable_f1`). `best_f1` is then the best F1 over all thresholds of the odds, and `best_f1_threshold` is its
    threshold. `splits_characters`: the setting `task.span.by_character`.
    """
    pairs = list(zip(golds, predictions, strict=True))
    scores = np.array([scored(gold, one["predicted_answer"], splits_characters) for gold, one in pairs]).reshape(-1, 2)
    metrics = {"exact_match": _mean(scores[:, 0]), "f1": _mean(scores[:, 1])}
    if not pairs or predictions[0]["null_odds"] is None:
        return metrics
    answerable = np.array([any(gold) for gold in golds])
    for name, chosen in (("answerable", answerable), ("unanswerable", ~answerable)):
        if chosen.any():
            metrics[f"{name}_exact_match"], metrics[f"{name}_f1"] = (_mean(scores[chosen, place]) for place in (0, 1))
    texts = [next((answer["text"] for answer in one["best"] if answer["text"]), "") for one in predictions]
    f1_of_texts = np.array([scored(gold, text, splits_characters)[1] for gold, text in zip(golds, texts, strict=True)])
    odds = np.array([one["null_odds"] for one in predictions])
    metrics["best_f1"], metrics["best_f1_threshold"] = _best(f1_of_texts, ~answerable, odds)
    return metrics


def scored(golds: Sequence[str], answer: str, splits_characters: bool) -> tuple[float, float]:
    """Exact match and F1 of an answer, each the best over the gold answers. Without gold answers, the empty answer is
    right. `splits_characters`: the setting `task.span.by_character`."""
    golds = [gold for gold in golds if _normalised(gold, splits_characters)] or [""]
    exact = max(float(_normalised(gold, splits_characters) == _normalised(answer, splits_characters)) for gold in golds)
    return exact, max(_f1(_words(gold, splits_characters), _words(answer, splits_characters)) for gold in golds)


def _normalised(text: str, splits_characters: bool) -> str:
    """`text` in lower case, single-spaced, without articles and ASCII punctuation.

    With `splits_characters`, the punctuation of any script is removed.
    """
    letters = [character for character in text.lower() if character not in _ASCII_PUNCTUATION]
    if splits_characters:
        letters = [character for character in letters if not unicodedata.category(character).startswith("P")]
    return " ".join(_ARTICLES.sub(" ", "".join(letters)).split())


def _words(text: str, splits_characters: bool) -> list[str]:
    """The units that F1 counts: words; with `splits_characters`, also each character of a script without spaces."""
    plain = _normalised(text, splits_characters)
    if splits_characters:
        plain = "".join(f" {character} " if sets_no_spaces(character) else character for character in plain)
    return plain.split()


def _f1(gold: list[str], answer: list[str]) -> float:
    if not gold or not answer:
        return float(gold == answer)
    common = sum((Counter(gold) & Counter(answer)).values())
    return 2 * common / (len(gold) + len(answer))


def _best(f1: np.ndarray, unanswerable: np.ndarray, odds: np.ndarray) -> tuple[float, float]:
    """The best mean F1 and its threshold. Questions whose null odds exceed the threshold get no answer."""
    order = np.argsort(odds, kind="stable")
    gains = np.concatenate([[0.0], np.cumsum(f1[order] - unanswerable[order])])
    last = np.append(odds[order][1:] != odds[order][:-1], True)  # equal odds are on the same side of a threshold
    gains[1:][~last] = -np.inf
    best = int(gains.argmax())
    total = float(unanswerable.sum() + gains[best]) / len(f1)
    return total, float(odds[order][best - 1]) if best else float(odds.min() - 1.0)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0
