"""Results by language: each score beside that of the baseline, and how much was measured."""

from collections.abc import Mapping
from typing import Any

from bert_jax.pretraining.questions import QUESTIONS
from bert_jax.report.facts import name_in_words, score_text

_COUNTS = ("sequences", "predicted_tokens")


def by_language(results: Mapping[str, Any], baseline: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The headings and lines of a table of measurements like those of results.json; no lines where there are none by
    language. Without `baseline`, the scores stand alone."""
    asked = (name for question in QUESTIONS for name in (question.loss, question.accuracy))
    names, lines = [name for name in asked if not baseline or name in baseline], []
    for language in sorted({name.partition("/")[0] for name in results if "/" in name}):
        counts = [_cell(results, f"{language}/{name}") for name in _COUNTS]
        scores = [_cell(values, f"{language}/{name}") for name in names for values in (results, baseline)]
        lines.append([language, *counts, *scores])
    headings = [heading for name in names for heading in (name_in_words(name), "by frequency")]
    return ["language", *(name.replace("_", " ") for name in _COUNTS), *headings], lines


def _cell(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return f"{value:,}" if type(value) is int else score_text(value) if isinstance(value, float) else ""
