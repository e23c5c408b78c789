"""Overlapping windows over a long text."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from bert_jax.text.vocabulary import PieceSpan


class Window(NamedTuple):
    """A range of a text's pieces, begin to end - 1, that stands in one sequence with the question."""

    begin: int
    end: int


class TextWindow(NamedTuple):
    """The window of a text that an example holds."""

    window: Window
    best_context: Bool[np.ndarray, " N"]
    """Pieces that have their best context in this window: an answer may begin with these alone."""
    spans: Sequence[PieceSpan]
    """The pieces of all the text."""
    offset: int
    """Place in the sequence of the window's first piece."""


def windows(count: int, most: int, stride: int) -> list[Window]:
    """Windows of at most `most` pieces over `count`, each `stride` pieces after the one before; the last ends there."""
    found = [Window(0, min(most, count))]
    while found[-1].end < count:
        begin = found[-1].begin + min(most, stride)
        found.append(Window(begin, min(begin + most, count)))
    return found


def with_best_context(all_windows: list[Window], count: int) -> list[Bool[np.ndarray, " N"]]:
    """For each window which of its pieces have the best context there: an answer may begin with these alone.

    It is the window where min(pieces to the left, pieces to the right) + 0.01 x its size is largest, the first of
    several, as in the original's run_squad.py.
    """
    places = np.arange(count)
    scores = np.full((len(all_windows), count), -np.inf)
    for row, (begin, end) in zip(scores, all_windows):
        inside = places[begin:end]
        row[begin:end] = np.minimum(inside - begin, end - 1 - inside) + 0.01 * (end - begin)
    best = scores.argmax(axis=0) if count else places
    return [best[begin:end] == number for number, (begin, end) in enumerate(all_windows)]
