"""Texts as the model reads them, one by one and put together."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from bert_jax.text.vocabulary import Vocabulary


class Row(NamedTuple):
    """A text as the model reads it: [CLS] text [SEP], or [CLS] first [SEP] second [SEP]."""

    ids: Sequence[int]
    second: int
    """Where the second segment begins; the row's length where there is none."""
    cut: bool
    """Whether it was too long and lost its end."""


class Padded(NamedTuple):
    """R rows of T tokens. Rows that are only there to fill up have length 0."""

    ids: Int[np.ndarray, "R T"]
    length: Int[np.ndarray, " R"]
    second: Int[np.ndarray, " R"]
    """Where the second segment begins."""


def row(segments: Sequence[list[int]], vocabulary: Vocabulary, longest: int) -> Row:
    """The pieces of one text or of a pair's two, cut to `longest` tokens.

    A pair loses pieces off the end of the longer one, of the second where they are equally long, as in the original's
    run_classifier.py.
    """
    sizes = kept(tuple(map(len, segments)), longest)
    parts = [segment[:size] for segment, size in zip(segments, sizes)]
    ids = [vocabulary.cls_id]
    for part in parts:
        ids += [*part, vocabulary.sep_id]
    return Row(ids, len(parts[0]) + 2, sum(sizes) < sum(map(len, segments)))


def kept(sizes: tuple[int, ...], longest: int) -> tuple[int, ...]:
    """How many pieces of each of a row's one or two segments are kept so that it has at most `longest` tokens."""
    most = longest - 1 - len(sizes)
    if len(sizes) == 1:
        return (min(sizes[0], most),)
    first, second = sizes
    second = min(second, max(most - min(first, most), most // 2))
    return min(first, most - second), second


def padded(rows: Sequence[Row], shape: tuple[int, int], pad_id: int) -> Padded:
    """`rows` filled up to `shape`, a number of rows and their length."""
    ids = np.full(shape, pad_id, np.int32)
    length, second = np.zeros((2, shape[0]), np.int32)
    for number, one in enumerate(rows):
        ids[number, : len(one.ids)] = one.ids
        length[number], second[number] = len(one.ids), one.second
    return Padded(ids, length, second)
