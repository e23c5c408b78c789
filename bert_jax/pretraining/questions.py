"""The questions of pretraining, and the names of their measurements in tables and sentences."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from bert_jax.run.remarks import score_text

_COUNTS = ("sequences", "predicted_tokens")
"""The measurements of each language."""


class Question(NamedTuple):
    """One of the prediction tasks whose losses pretraining adds up."""

    name: str
    """Prefix of the names of its measurements."""
    label: str
    """Name in tables and in the progress line."""
    title: str
    """Name in sentences."""
    guessed_accuracy: str
    """Text about the baseline's guess."""
    guessed_loss: str | None = None
    """Text about the baseline's probabilities; None if the baseline's loss isn't measured."""
    second_segment: tuple[str, str] | None = None
    """For a question about pairs, the meaning of the answers 0 and 1 as texts about the second segment."""

    @property
    def loss(self) -> str:
        """Name of the measurement of the question's cross-entropy."""
        return f"{self.name}_loss"

    @property
    def accuracy(self) -> str:
        """Name of the measurement of the question's accuracy."""
        return f"{self.name}_accuracy"


_OF_PIECES = ("always the most frequent piece", "each piece at its share of the text")
MASKED_TOKENS = Question("mlm", "MLM", "masked-language", *_OF_PIECES)
NEXT_TOKENS = Question("lm", "LM", "next-token", *_OF_PIECES)
PERMUTED_TOKENS = Question("plm", "PLM", "permuted-token", *_OF_PIECES)
BOTH_NEIGHBOURS = Question("bilm", "biLM", "next- and previous-token", *_OF_PIECES)
_MORE_FREQUENT = "always the more frequent class"
NEXT_SENTENCE = Question(
    "nsp", "NSP", "next-sentence", _MORE_FREQUENT, second_segment=("follows the first", "drawn at random")
)
SENTENCE_ORDER = Question(
    "sop", "SOP", "sentence-order", _MORE_FREQUENT, second_segment=("follows the first", "comes before the first")
)
REPLACED_TOKENS = Question(
    "rtd", "RTD", "replaced-token", "always an original token", "each token at the share that is replaced"
)
REPLACED_SHARE = "rtd_replaced"
"""Name of the measurement of the share of replaced tokens, which the baseline of REPLACED_TOKENS uses."""
QUESTIONS = (
    MASKED_TOKENS,
    NEXT_TOKENS,
    PERMUTED_TOKENS,
    BOTH_NEIGHBOURS,
    NEXT_SENTENCE,
    SENTENCE_ORDER,
    REPLACED_TOKENS,
)
OF_PAIRS = {"next_sentence": NEXT_SENTENCE, "sentence_order": SENTENCE_ORDER, "none": None}
"""The question about pairs, by the setting objective.pair."""


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
