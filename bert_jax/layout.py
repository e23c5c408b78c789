"""The layout of rows of tokens, the only form in which sequences travel from disk to attention.

Letters in shapes: B rows, T tokens a row, N sequences that a row may hold. Arrays are numpy's or JAX'. The readers of
text, which don't import JAX, and the model use the same form.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Integer, UInt8

WORD_START = 1
"""Bit of a token's unit byte: a word begins here."""
PHRASE_START = 2
"""Bit of a token's unit byte: a phrase begins here, or a word that is in none."""
ENTITY_START = 4
"""Bit of a token's unit byte: an entity begins here, or a word that is in none."""
MASKABLE = 8
"""Bit of a token's unit byte: an ordinary token, one that masking may take."""
UNPOOLED = 16
"""Bit of a token's unit byte: the token is left out of the pooled vector of its text."""


class Tokens(NamedTuple):
    """B rows of T tokens each.

    A row holds up to N sequences, one after the other from its first token on, and padding after them. Values for each
    sequence have the axis N: here, in labels, weights and random keys, and in the model's results.
    """

    ids: Int[Any, "*B T"]
    """Piece ids; in the padding the id of [PAD]."""
    sequence: Int[Any, "*B T"]
    """Which of the row's sequences the token belongs to, from 1; 0 in the padding."""
    position: Int[Any, "*B T"]
    """The token's place within its sequence, from 0; 0 in the padding."""
    segment: Int[Any, "*B T"]
    """0 in a sequence's first segment, with its [CLS] and [SEP], and 1 in the second; 0 in the padding."""
    units: UInt8[Any, "*B T"]
    """Unit bits of the token. Where masking isn't used, only UNPOOLED may be set."""
    begin: Int[Any, "*B N"]
    """The place in the row of each sequence's first token; 0 for an absent sequence."""
    length: Int[Any, "*B N"]
    """Number of tokens of each sequence; 0 for an absent sequence."""


class TokenSequence(NamedTuple):
    """One sequence by itself: [CLS] text [SEP], or [CLS] first [SEP] second [SEP]; [CLS] may be last instead."""

    ids: Sequence[int]
    first_length: int
    """Number of tokens of the first segment with its [CLS] and [SEP]; without a second segment, of the whole
    sequence."""
    cut: bool = False
    """Whether the text was too long and lost its end."""
    unpooled: int = 0
    """Number of leading tokens, those of a prompt, that are left out of the pooled vector of the text."""

    @property
    def units(self) -> UInt8[np.ndarray, " T"]:
        """The unit byte of each token."""
        return (np.arange(len(self.ids)) < self.unpooled) * np.uint8(UNPOOLED)


def lay_out(
    ids: Integer[np.ndarray, " M"],
    lengths: Int[np.ndarray, " n"],
    first_lengths: Int[np.ndarray, " n"],
    shape: tuple[int, int],
    *,
    units: UInt8[np.ndarray, " M"] | None = None,
    rows: Int[np.ndarray, " n"] | None = None,
    most: int = 1,
    pad_id: int = 0,
) -> Tokens:
    """Lays out n sequences in `shape`, (number of rows, tokens in a row).

    `ids` (and `units`) hold the M tokens of all sequences, one sequence after the other. `first_lengths`: the number of
    tokens of each sequence's first segment. `rows`: the row of each sequence, in ascending order; None gives each a row
    of its own. The axis N of the result has the length `most`, or more if a row holds more sequences. Unused rows and
    places hold padding.
    """
    lengths = np.asarray(lengths, np.int32)
    rows = np.arange(len(lengths)) if rows is None else rows
    first_of_row = np.searchsorted(rows, rows)
    number = np.arange(len(lengths)) - first_of_row  # in its row, from 0
    before = np.cumsum(lengths) - lengths
    places_of_row = max(int(number.max(initial=0)) + 1, most)
    begin, length, first_length = np.zeros((3, shape[0], places_of_row), np.int32)
    begin[rows, number] = np.where(lengths > 0, before - before[first_of_row], 0)
    length[rows, number], first_length[rows, number] = lengths, first_lengths

    places = np.arange(shape[1], dtype=np.int32)
    sequence, position, segment = np.zeros((3, *shape), np.int32)
    for one in range(length.shape[1]):
        place = places - begin[:, one, None]
        inside = (place >= 0) & (place < length[:, one, None])
        sequence += inside * np.int32(one + 1)
        position += inside * place
        segment += inside & (place >= first_length[:, one, None])
    # Within a row the sequences lie in the order of `ids`.
    real = sequence > 0
    placed_ids, placed_units = np.full(shape, pad_id, np.int32), np.zeros(shape, np.uint8)
    placed_ids[real] = ids
    if units is not None:
        placed_units[real] = units
    return Tokens(placed_ids, sequence, position, segment, placed_units, begin, length)


def lay_out_sequences(
    sequences: Sequence[TokenSequence],
    shape: tuple[int, int],
    pad_id: int,
    rows: Int[np.ndarray, " n"] | None = None,
    most: int = 1,
) -> Tokens:
    """Lays out `sequences` in `shape`, (number of rows, tokens in a row). `rows` and `most`: see `lay_out`."""
    ids = [np.asarray(one.ids, np.int32) for one in sequences]
    return lay_out(
        np.concatenate([np.zeros(0, np.int32), *ids]),
        np.array([len(one) for one in ids], int),
        np.array([one.first_length for one in sequences], int),
        shape,
        units=np.concatenate([np.zeros(0, np.uint8), *(one.units for one in sequences)]),
        rows=rows,
        most=most,
        pad_id=pad_id,
    )
