"""Texts of any length as batches for the encoder, and what was computed of them as texts again."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from jaxtyping import Float

from bert_jax.batching.grouping import WINDOW_GROUPS, grouped, usual_lengths
from bert_jax.layout import Tokens, TokenSequence, lay_out_sequences
from bert_jax.model.bert import Encoded

Text = str | tuple[str, str]
"""A text, or a pair of them: the model's first and second segment."""


class Batch(NamedTuple):
    """Sequences together, each in a row of its own; rows past `places` hold nothing."""

    places: list[int]
    """Which sequences they are, counted from the first of all."""
    tokens: Tokens


class Output(NamedTuple):
    """Vectors of a batch, or of one sequence; None for what wasn't asked for."""

    tokens: Float[Any, "..."] | None
    """Of each token."""
    pooled: Float[Any, "..."] | None
    """One for all of them."""


def batches(
    sequences: Iterable[TokenSequence],
    pad_id: int,
    longest: int,
    tokens: int,
    compiling: float = 0,
    window: int = WINDOW_GROUPS,
) -> Iterator[Batch]:
    """All `sequences` in `grouped` batches, padded to 16, 24, 32, 48, 64, ... or `longest` tokens."""
    for group in grouped(sequences, lambda one: len(one.ids), usual_lengths(longest), tokens, compiling, window):
        yield Batch(group.places, lay_out_sequences(group.items, group.shape, pad_id))


def in_order(computed: Iterable[tuple[Batch, Encoded | Output]]) -> Iterator[Output]:
    """What was computed of each sequence, without padding, in the order of the sequences."""
    found, next_place = {}, 0
    for batch, output in computed:
        tokens, pooled = output.tokens, output.pooled
        for number, (place, length) in enumerate(zip(batch.places, batch.tokens.length[:, 0].tolist())):
            found[place] = Output(
                None if tokens is None else tokens[number, :length], None if pooled is None else pooled[number]
            )
        while next_place in found:
            yield found.pop(next_place)
            next_place += 1
