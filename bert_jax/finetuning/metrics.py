"""Metrics of predictions. Scores are shares of 1; undefined ones, such as correlations of constants, are 0."""

import importlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.classes import class_results, confusion_of
from bert_jax.system.errors import UsageError, install_extra, listed, quoted
from bert_jax.system.progress import warn

_SHOWN = 5
"""Most tags that a message lists."""
OUTSIDE = "O"
"""The tag of a word outside of every entity."""
_PREFIXED = re.compile(r"([BIMESLU])(?:[-_](.+))?")
"""A tag like B-PER, B_PER, or B where all entities are of one type."""
_BARE_TYPE = re.compile(r"(?!.*[-_][BIMESLU]$)[^\W\d_]{2}.*")
"""A type alone, as in PER; not PER-B, nor single characters, which are mistyped more often than meant."""
_BEGIN_OR_INSIDE = re.compile(r"[BI][-_].", re.IGNORECASE)
_INSIDE = {"M": "I", "L": "E", "U": "S"}
"""Maps the letters of BMES and BILOU tags to those of IOBES."""


def class_metrics(golds: Sequence[int], predicted: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    """`accuracy`; `f1` of the second of two classes, or else `macro_f1`; `macro_f1`, the mean over classes that are in
    `golds` or `predicted`, as in scikit-learn; `matthews`; what `class_results` has; and the `confusion`."""
    scores = _library("sklearn.metrics")
    macro = float(scores.f1_score(golds, predicted, average="macro", zero_division=0.0))
    of_second = scores.f1_score(golds, predicted, labels=[1], average="macro", zero_division=0.0)
    true, guessed = ([names[number] for number in side] for side in (golds, predicted))
    right = (name for name, guess in zip(true, guessed, strict=True) if name == guess)
    counts = [Counter(some) for some in (true, guessed, right)]
    return {
        "accuracy": float(scores.accuracy_score(golds, predicted)),
        "f1": float(of_second) if len(names) == 2 else macro,
        "macro_f1": macro,
        "matthews": _matthews(*counts),
        **class_results(names, *counts),
        "confusion": confusion_of(true, guessed),
    }


def _matthews(golds: Counter[str], predicted: Counter[str], right: Counter[str]) -> float:
    """Matthews' correlation, without scikit-learn's table of all pairs of classes."""
    rows = golds.total()
    agreement = right.total() * rows - sum(count * predicted[name] for name, count in golds.items())
    spread = math.prod(rows**2 - sum(count**2 for count in side.values()) for side in (golds, predicted))
    return agreement / math.sqrt(spread) if spread else 0.0


def label_metrics(
    golds: Sequence[Sequence[int]], predicted: Sequence[Sequence[int]], names: Sequence[str]
) -> dict[str, Any]:
    """`micro_f1` over all labels of all rows, `macro_f1`, the mean over labels (0 for one that neither has),
    `exact_match`, the share of rows with all labels right, and what `class_results` has. `golds` and `predicted`
    have 0 or 1 for each of `names`."""
    scores = _library("sklearn.metrics")
    right, guessed = np.asarray(golds), np.asarray(predicted)
    micro, macro = (
        float(scores.f1_score(right, guessed, average=mean, zero_division=0.0)) for mean in ("micro", "macro")
    )
    times = (dict(zip(names, side.sum(axis=0).tolist(), strict=True)) for side in (right, guessed, right * guessed))
    return {
        "micro_f1": micro,
        "macro_f1": macro,
        "exact_match": float(np.mean(np.all(right == guessed, axis=1))),
        **class_results(names, *map(Counter, times)),
    }


def number_metrics(golds: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """`pearson` and `spearman` correlations, and the `squared_error`'s mean."""
    statistics = _library("scipy.stats")
    varied = len(set(golds)) > 1 and len(set(predicted)) > 1
    return {
        "pearson": float(statistics.pearsonr(golds, predicted).statistic) if varied else 0.0,
        "spearman": float(statistics.spearmanr(golds, predicted).statistic) if varied else 0.0,
        "squared_error": float(np.mean(np.square(np.subtract(golds, predicted)))),
    }


def entity_forms(tags: Sequence[str]) -> dict[str, str]:
    """Maps each tag to the form in which entities are counted (IOB2 or IOBES); empty where `tags` name no entities.

    They name entities if O is among them and most of the others are read as B-PER, B_PER, B, or PER alone (which is
    I-PER). The rest, such as a mistyped `0`, count as O.
    """
    forms = {tag: _entity_form(tag) for tag in tags if tag != OUTSIDE}
    odd = sum(form is None for form in forms.values())
    if OUTSIDE not in tags or 2 * odd >= len(forms):
        return {}
    return {OUTSIDE: OUTSIDE} | {tag: form or OUTSIDE for tag, form in forms.items()}


def _entity_form(tag: str) -> str | None:
    if prefixed := _PREFIXED.fullmatch(tag):
        return f"{_INSIDE.get(prefixed[1], prefixed[1])}-{prefixed[2] or '_'}"
    return f"I-{tag}" if _BARE_TYPE.fullmatch(tag) else None


def tag_scheme(tags: Iterable[str]) -> str | None:
    """How `tags` name entities by their letters, as "IOB" or "BIOES"; None where they name none."""
    forms = entity_forms([*tags])
    letters = {form[0] for form in forms.values()} - {OUTSIDE}
    if not letters:
        return None
    return "BIOES" if letters & {"E", "S"} else "IOB" if "B" in letters else "IO: neighbouring entities are one"


def check_entity_tags(config: TaskConfig, counts: Counter[str]) -> None:
    """Warns of tags that name no entity if the other tags seem to; `counts` are those of the training rows.

    The other tags seem to name entities if O is among them, or one like B-PER in any case. Raises UsageError if
    task.metric is entity_f1 and the tags name no entities.
    """
    labels = config.labels or ()
    if "entity_f1" not in config.facts.metrics:
        return
    odd = [tag for tag in labels if tag != OUTSIDE and _entity_form(tag) is None]
    named = ", ".join(f"{quoted(tag)} ({counts[tag]:,} of {counts.total():,} words)" for tag in odd[:_SHOWN])
    named += ", ..." if len(odd) > _SHOWN else ""
    if odd and entity_forms(labels):
        warn(f"{config.train}: entity F1 counts these tags as {OUTSIDE}, since they name no entity: {named}")
    elif config.metric == "entity_f1" and not entity_forms(labels):
        lacks = f"these don't name any: {named}" if OUTSIDE in labels else f"there is no {OUTSIDE}: {listed(labels)}"
        raise UsageError(
            f"task.metric=entity_f1 measures tags like O, B-PER and I-PER, and {lacks}; correct them, or leave "
            "task.metric out to measure accuracy"
        )
    elif odd and OUTSIDE in labels:
        warn(f"{config.train}: accuracy alone is measured and no entity F1, since these tags name no entity: {named}")
    elif OUTSIDE not in labels and any(map(_BEGIN_OR_INSIDE.match, labels)):
        which = f"these tags name no entity: {named}" if odd else f"there are only {listed(labels)}"
        warn(f"{config.train}: accuracy alone is measured and no entity F1, since no tag is {OUTSIDE} and {which}")


def tag_metrics(golds: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], names: Sequence[str]) -> dict:
    """`accuracy` by words; of tags that name entities also `entity_f1`, `entity_precision` and `entity_recall`: whole
    entities, as CoNLL's evaluation counts them; and what `class_results` has, by type of entity or else by tag."""
    pairs = [pair for sentence in zip(golds, predicted, strict=True) for pair in zip(*sentence, strict=True)]
    found = {"accuracy": sum(gold == guess for gold, guess in pairs) / max(len(pairs), 1)}
    if forms := entity_forms(names):
        scores = _library("seqeval.metrics")
        both = [[[forms[tag] for tag in tags] for tags in side] for side in (golds, predicted)]
        for name in ("f1", "precision", "recall"):
            found[f"entity_{name}"] = float(getattr(scores, f"{name}_score")(*both, zero_division=0))
        entities = _library("seqeval.metrics.sequence_labeling").get_entities
        true, guessed = (set(entities(side)) for side in both)
        names = sorted({form[2:] for form in forms.values() if form != OUTSIDE})
    else:
        true, guessed = ({(pair[side], word) for word, pair in enumerate(pairs)} for side in (0, 1))
    counters = (Counter(kind for kind, *_ in some) for some in (true, guessed, true & guessed))
    return found | class_results(names, *counters)


def metric_of(task: TaskConfig) -> str:
    """The metric that the best checkpoint is chosen by: as set, or the first of the kind's that can be measured."""
    measurable = (name for name in task.facts.metrics if name != "entity_f1" or entity_forms(task.labels or ()))
    return task.metric or next(measurable)


def check_measurable(task: TaskConfig) -> None:
    """Raises UsageError where the library that measures `task` isn't installed: before anything is learned."""
    if task.facts.measured_by and ("entity_f1" not in task.facts.metrics or entity_forms(task.labels or ())):
        _library(task.facts.measured_by)


def _library(name: str) -> ModuleType:
    """A module of the extra `tasks`. Raises UsageError where it isn't installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(
            f"measuring a task needs {name.partition('.')[0]}, which isn't installed; {install_extra('tasks')}"
        ) from None
