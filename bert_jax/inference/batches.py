"""Texts of any length as batches of few shapes, so that little is padded and little is compiled."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Int

from bert_jax.text.vocabulary import Vocabulary

_SHORTEST = 16
"""Sequences are padded to this length or one of its doubles ..."""
_WINDOW = 1 << 16
"""... and are sorted by length among their neighbours, of so many tokens together."""

Item = TypeVar("Item")


class Row(NamedTuple):
    """A text as the model reads it: [CLS] text [SEP], or [CLS] first [SEP] second [SEP]."""

    ids: list[int]
    second: int
    """Where the second segment begins; the row's length where there is none."""
    cut: bool
    """Whether it was too long and lost its end."""


class Batch(NamedTuple):
    """Rows together; those past `places` are padding."""

    places: list[int]
    """Which rows they are, counted from the first of all."""
    ids: Int[np.ndarray, "B T"]
    segments: Int[np.ndarray, "B T"]
    mask: Bool[np.ndarray, "B T"]


def row(segments: Sequence[list[int]], vocabulary: Vocabulary, longest: int) -> Row:
    """The pieces of one text or of a pair's two, cut to `longest` tokens.

    A pair loses pieces off the end of the longer one, of the second where they are equally long, as in the original's
    run_classifier.py.
    """
    most = longest - 1 - len(segments)
    first = segments[0][:most]
    if len(segments) == 1:
        ids = [vocabulary.cls_id, *first, vocabulary.sep_id]
        return Row(ids, len(ids), len(segments[0]) > most)
    second = segments[1][: max(most - len(first), most // 2)]
    first = first[: most - len(second)]
    ids = [vocabulary.cls_id, *first, vocabulary.sep_id, *second, vocabulary.sep_id]
    return Row(ids, len(first) + 2, sum(map(len, segments)) > most)


def batches(rows: Iterable[Row], pad_id: int, longest: int, tokens: int) -> Iterator[Batch]:
    """All `rows`, longest first within a window of some thousands of short ones; reads one window at a time.

    A batch has the length of its longest row, padded (to at most `longest`), and as many rows as make `tokens`, or
    as many of 1, 4, 16, 64, ... as take those that need this length; shorter rows fill it up. With 512 positions and
    8,192 tokens that makes 6 lengths and 27 shapes in all.
    """
    begin = 0
    for window in _windows(rows):
        lengths = [len(one.ids) for one in window]
        order = sorted(range(len(window)), key=lengths.__getitem__, reverse=True)
        while order:
            length = _padded_length(lengths[order[0]], longest)
            most = max(tokens // length, 1)
            needing = sum(_padded_length(lengths[place], longest) == length for place in order[:most])
            count = row_count(needing, most)
            yield _batch([window[place] for place in order[:count]], begin, order[:count], (count, length), pad_id)
            order = order[count:]
        begin += len(window)


def row_count(needed: int, most: int) -> int:
    """The number of rows, 1, 4, 16, ... or `most`, that a batch of `needed` ones is padded to."""
    count = 1
    while count < needed:
        count *= 4
    return min(count, most)


def ahead(items: Iterable[Item], count: int = 4) -> Iterator[Item]:
    """`items`, each handed on when `count` more have been drawn: what drawing starts goes on while one is used."""
    waiting: deque[Item] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting


def _windows(rows: Iterable[Row]) -> Iterator[list[Row]]:
    window, tokens = [], 0
    for one in rows:
        window.append(one)
        tokens += len(one.ids)
        if tokens >= _WINDOW:
            yield window
            window, tokens = [], 0
    if window:
        yield window


def _padded_length(length: int, longest: int) -> int:
    return min(max(_SHORTEST, 1 << (length - 1).bit_length()), longest)


def _batch(rows: list[Row], begin: int, places: list[int], shape: tuple[int, int], pad_id: int) -> Batch:
    ids = np.full(shape, pad_id, np.int32)
    lengths, seconds = np.zeros((2, shape[0], 1), np.int32)
    for number, one in enumerate(rows):
        ids[number, : len(one.ids)] = one.ids
        lengths[number], seconds[number] = len(one.ids), one.second
    columns = np.arange(shape[1])
    mask = columns < lengths
    return Batch([begin + place for place in places], ids, ((columns >= seconds) & mask).astype(np.int32), mask)
