"""Texts of any length as batches for the encoder, and what was computed of them as texts again."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bert_jax.data.grouping import WINDOW_GROUPS, grouped, usual_lengths
from bert_jax.data.rows import Row, padded
from bert_jax.model.bert import Encoded

Text = str | tuple[str, str]
"""A text, or a pair of them: the model's first and second segment."""


class Batch(NamedTuple):
    """Rows together; those past `places` are padding."""

    places: list[int]
    """Which rows they are, counted from the first of all."""
    ids: Int[np.ndarray, "B T"]
    segments: Int[np.ndarray, "B T"]
    mask: Bool[np.ndarray, "B T"]


class Output(NamedTuple):
    """Vectors of a batch, or of one row; None for what wasn't asked for."""

    tokens: Float[Any, "..."] | None
    """Of each token."""
    pooled: Float[Any, "..."] | None
    """One for all of them."""


def batches(
    rows: Iterable[Row], pad_id: int, longest: int, tokens: int, compiling: float = 0, window: int = WINDOW_GROUPS
) -> Iterator[Batch]:
    """All `rows` in `grouped` batches, padded to 16, 24, 32, 48, 64, ... or `longest` tokens."""
    for group in grouped(rows, lambda row: len(row.ids), usual_lengths(longest), tokens, compiling, window):
        ids, length, second = padded(group.items, group.shape, pad_id)
        columns = np.arange(group.shape[1])
        mask = columns < length[:, None]
        yield Batch(group.places, ids, ((columns >= second[:, None]) & mask).astype(np.int32), mask)


def in_order(computed: Iterable[tuple[Batch, Encoded | Output]]) -> Iterator[Output]:
    """What was computed of each row, without padding, in the order of the rows."""
    found, next_place = {}, 0
    for batch, output in computed:
        tokens, pooled = output.tokens, output.pooled
        for number, (place, length) in enumerate(zip(batch.places, batch.mask.sum(axis=1).tolist())):
            found[place] = Output(
                None if tokens is None else tokens[number, :length], None if pooled is None else pooled[number]
            )
        while next_place in found:
            yield found.pop(next_place)
            next_place += 1
