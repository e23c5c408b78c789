"""Overlapping windows over a long text, and the best answers over all of them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from bert_jax.config.task import SpanConfig
from bert_jax.finetuning.pieces import characters_of
from bert_jax.finetuning.task import Prediction, probabilities
from bert_jax.text.vocabulary import PieceSpan


class TextWindow(NamedTuple):
    """The window of a text that an example holds."""

    window: range
    """The numbers of its pieces in the text."""
    best_context: Bool[np.ndarray, " N"]
    """The pieces of the window that have their best context there: an answer may begin with these alone."""
    spans: Sequence[PieceSpan]
    """The pieces of the whole text."""
    offset: int
    """Place in the sequence of the window's first piece."""


def windows(count: int, most: int, stride: int) -> list[range]:
    """Windows of at most `most` pieces over `count`, each `stride` pieces after the one before, up to the end."""
    found = [range(min(most, count))]
    while found[-1].stop < count:
        begin = found[-1].start + min(most, stride)
        found.append(range(begin, min(begin + most, count)))
    return found


def with_best_context(all_windows: Sequence[range], count: int) -> list[Bool[np.ndarray, " N"]]:
    """For each window, which of its pieces have their best context there.

    That is the first window with the largest min(pieces to the left, pieces to the right) + 0.01 x its size, as in the
    original's run_squad.py.
    """
    scores = np.full((len(all_windows), count), -np.inf)
    for row, window in zip(scores, all_windows, strict=True):
        inside = np.arange(len(window))
        row[window.start : window.stop] = np.minimum(inside, len(window) - 1 - inside) + 0.01 * len(window)
    best = scores.argmax(axis=0) if count else np.arange(0)
    return [best[window.start : window.stop] == number for number, window in enumerate(all_windows)]


class _Candidate(NamedTuple):
    score: float
    """Sum of the scores of its first and its last token."""
    begin: int
    """Place of its first character in the text."""
    end: int


class BestSpans:
    """Collects candidates of all windows and picks the answer."""

    def __init__(self, text: str, config: SpanConfig):
        self._text, self._config = text, config
        self._candidates: list[_Candidate] = []
        self._null = math.inf

    def add(self, part: TextWindow, logits: Float[np.ndarray, "T 2"]) -> None:
        """Adds the candidates of one window: pairs of its best first and last tokens."""
        self._null = min(self._null, float(logits[0].sum()))
        firsts, lasts = (np.argsort(-scores, kind="stable")[: self._config.best] - part.offset for scores in logits.T)
        size = len(part.window)
        for first in firsts.tolist():
            if not (0 <= first < size and part.best_context[first]):
                continue
            for last in lasts.tolist():
                if first <= last < min(size, first + self._config.answer_length):
                    score = logits[first + part.offset, 0] + logits[last + part.offset, 1]
                    begin, end = characters_of(self._text, part.spans, part.window[first], part.window[last])
                    if begin < end:  # a boundary by itself stands for nothing
                        self._candidates.append(_Candidate(float(score), begin, end))

    def prediction(self) -> Prediction:
        """`predicted_answer`, its `probability`, the `best` answers with theirs and their characters, and `null_odds`:
        the score of no answer, the lowest of all windows, minus the best answer's, or None if every question has one.
        """
        listed = self._listed()
        shares = probabilities(np.array([one.score for one in listed])).tolist() if listed else []
        best = [
            {"text": self._text[one.begin : one.end], "probability": share, "begin": one.begin, "end": one.end}
            for one, share in zip(listed, shares, strict=True)
        ]
        chosen, odds = next((one for one in best if one["text"]), None), None
        if self._config.null_answers:
            odds = self._null - max((one.score for one in self._candidates), default=0.0)
            if odds > self._config.null_threshold:
                chosen = next((one for one in best if not one["text"]), None)
        return {
            "predicted_answer": chosen["text"] if chosen else "",
            "probability": chosen["probability"] if chosen else 0.0,
            "best": best,
            "null_odds": odds,
        }

    def _listed(self) -> list[_Candidate]:
        """Candidates from the best on, each text once; no answer, where that may be, is among them or comes last."""
        candidates = sorted(self._candidates, key=lambda one: -one.score)
        if self._config.null_answers:
            candidates.append(_Candidate(self._null, 0, 0))
            candidates.sort(key=lambda one: -one.score)
        different: dict[str, _Candidate] = {}
        for one in candidates:
            different.setdefault(self._text[one.begin : one.end], one)
            if len(different) == self._config.best:
                break
        if self._config.null_answers:
            different.setdefault("", _Candidate(self._null, 0, 0))
        return list(different.values())
