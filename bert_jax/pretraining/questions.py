"""The names of measurements in tables and sentences."""

import re
from collections.abc import Mapping

from bert_jax.config.prediction import QUESTIONS
from bert_jax.run.remarks import score_text

_COUNTS = ("sequences", "predicted_tokens")
"""The measurements of each language."""


def name_in_words(name: str) -> str:
    """A measurement for a reader: "MLM accuracy" of mlm_accuracy, "macro F1" of macro_f1, "nDCG@10, width 64" of
    64/ndcg@10."""
    width, _, name = name.rpartition("/")
    if width:
        return f"{name_in_words(name)}, width {width}"
    for question in QUESTIONS:
        if name in (question.loss, question.accuracy):
            return f"{question.label} {'loss' if name == question.loss else 'accuracy'}"
    return re.sub(r"\bf1\b", "F1", name.replace("_", " ").replace("ndcg@", "nDCG@"))


def by_language(
    measured: Mapping[str, float | int], baseline: Mapping[str, float]
) -> tuple[list[str], list[list[str]]]:
    """The headings and lines of a table of measurements like those of results.json; no lines where there are none by
    language. Without `baseline`, the scores stand alone."""
    asked = (name for question in QUESTIONS for name in (question.loss, question.accuracy))
    names, lines = [name for name in asked if not baseline or name in baseline], []
    for language in sorted({name.partition("/")[0] for name in measured if "/" in name}):
        counts = [_cell(measured, f"{language}/{name}") for name in _COUNTS]
        scores = [_cell(values, f"{language}/{name}") for name in names for values in (measured, baseline)]
        lines.append([language, *counts, *scores])
    headings = [heading for name in names for heading in (name_in_words(name), "by frequency")]
    return ["language", *(name.replace("_", " ") for name in _COUNTS), *headings], lines


def _cell(values: Mapping[str, float | int], name: str) -> str:
    value = values.get(name)
    return "" if value is None else f"{value:,}" if isinstance(value, int) else score_text(value)
