"""Results by language: each score beside that of the baseline, and how much was measured."""

from collections.abc import Mapping

from bert_jax.pretraining.questions import QUESTIONS
from bert_jax.report.facts import name_in_words, score_text

_COUNTS = ("sequences", "predicted_tokens")


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
