"""Metrics of predictions. Scores are shares of 1; undefined ones, such as correlations of constants, are 0."""

import importlib
import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from bert_jax.config.task import TaskConfig
from bert_jax.system.errors import UsageError, install_extra

OUTSIDE = "O"
"""The tag of a word outside of every entity."""
_ENTITY_TAG = re.compile(r"O|[BIMESLU]-.+")
_INSIDE = {"M": "I", "L": "E", "U": "S"}
"""Maps the letters of BMES and BILOU tags to those of IOBES."""


def class_metrics(golds: Sequence[int], predicted: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    """`accuracy`; `f1` of the second class where there are two, or else `macro_f1`; `macro_f1`, the mean over classes
    that are in `golds` or `predicted`, as in scikit-learn; `matthews`; and `confusion`: the `labels` and how often
    each (row) was taken for each (column)."""
    scores, numbers = _library("sklearn.metrics"), list(range(len(names)))
    macro = float(scores.f1_score(golds, predicted, average="macro", zero_division=0.0))
    of_second = scores.f1_score(golds, predicted, labels=[1], average="macro", zero_division=0.0)
    return {
        "accuracy": float(scores.accuracy_score(golds, predicted)),
        "f1": float(of_second) if len(names) == 2 else macro,
        "macro_f1": macro,
        "matthews": float(scores.matthews_corrcoef(golds, predicted)) if len({*golds, *predicted}) > 1 else 0.0,
        "confusion": {
            "labels": list(names),
            "counts": scores.confusion_matrix(golds, predicted, labels=numbers).tolist(),
        },
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


def names_entities(tags: Sequence[str]) -> bool:
    """Whether `tags` name entities, as B-PER, I-PER and O do."""
    return OUTSIDE in tags and all(map(_ENTITY_TAG.fullmatch, tags))


def tag_metrics(golds: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], names: Sequence[str]) -> dict:
    """`accuracy` by words; of tags that name entities also `entity_f1`, `entity_precision` and `entity_recall`: whole
    entities, as CoNLL's evaluation counts them."""
    pairs = [pair for sentence in zip(golds, predicted) for pair in zip(*sentence, strict=True)]
    found = {"accuracy": sum(gold == guess for gold, guess in pairs) / max(len(pairs), 1)}
    if names_entities(names):
        scores = _library("seqeval.metrics")
        both = [[list(map(_iobes, tags)) for tags in side] for side in (golds, predicted)]
        for name in ("f1", "precision", "recall"):
            found[f"entity_{name}"] = float(getattr(scores, f"{name}_score")(*both, zero_division=0))
    return found


def _iobes(tag: str) -> str:
    prefix, dash, kind = tag.partition("-")
    return _INSIDE.get(prefix, prefix) + dash + kind


def check_measurable(task: TaskConfig) -> None:
    """Raises UsageError where the library that measures `task` isn't installed: before anything is learned."""
    if task.facts.loss == "tags" and names_entities(task.labels or ()):
        _library("seqeval.metrics")
    elif task.facts.measured_by:
        _library(task.facts.measured_by)


def _library(name: str) -> ModuleType:
    """A module of the extra `tasks`. Raises UsageError where it isn't installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(
            f"measuring a task needs {name.partition('.')[0]}, which isn't installed; {install_extra('tasks')}"
        ) from None
