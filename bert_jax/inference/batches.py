"""Texts of any length as batches for the encoder."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from bert_jax.data.grouping import doublings, grouped
from bert_jax.data.rows import Row, padded


class Batch(NamedTuple):
    """Rows together; those past `places` are padding."""

    places: list[int]
    """Which rows they are, counted from the first of all."""
    ids: Int[np.ndarray, "B T"]
    segments: Int[np.ndarray, "B T"]
    mask: Bool[np.ndarray, "B T"]


def batches(rows: Iterable[Row], pad_id: int, longest: int, tokens: int) -> Iterator[Batch]:
    """All `rows` in `grouped` batches, padded to 16, 32, 64, ... or `longest` tokens."""
    for group in grouped(rows, lambda row: len(row.ids), doublings(longest), tokens):
        ids, length, second = padded(group.items, group.shape, pad_id)
        columns = np.arange(group.shape[1])
        mask = columns < length[:, None]
        yield Batch(group.places, ids, ((columns >= second[:, None]) & mask).astype(np.int32), mask)
