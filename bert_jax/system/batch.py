"""What a batch holds: the one shape in which sequences travel from the input to the device."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int, UInt8, UInt32

WORD_START = 1
"""Bit of a token's unit byte: a word begins here."""
MASKABLE = 8
"""Bit of a token's unit byte: an ordinary token, one that masking may take. (2 and 4: phrase, entity.)"""


@runtime_checkable
class AnyBatch(Protocol):
    """What the step needs of a batch, whatever else it has: a tree of arrays whose first axis is the batch's."""

    ids: Int[Any, "B *rest"]
    """Piece ids: [B, T], or of several sequences a row [B, C, T]."""
    length: Int[Any, "B *C"]
    """Tokens of each sequence that are not padding."""
    weight: Float[Any, " B"]
    """1 for a row that counts, 0 for a filler."""
    ordinal: UInt32[Any, " B"]
    """Number of the row in its phase's order: the source of its random keys."""


class Batch(NamedTuple):
    """B sequences of T tokens: [CLS] first [SEP] second [SEP] (or, where nothing is asked about pairs, one segment with
    a [SEP] after each document's part), then padding. Numpy arrays or JAX arrays."""

    ids: Int[Any, "B T"]
    """Piece ids; 0 in the padding."""
    units: UInt8[Any, "B T"]
    """Unit bits of each token; 0 in the padding."""
    length: Int[Any, " B"]
    """Tokens that are not padding."""
    first_length: Int[Any, " B"]
    """Tokens of the first segment with its [CLS] and [SEP]; the rest belongs to the second."""
    pair_label: Int[Any, " B"]
    """0: the second segment follows the first in its document; 1: it was drawn at random."""
    weight: Float[Any, " B"]
    """1 for a sequence that counts, 0 for a filler."""
    ordinal: UInt32[Any, " B"]
    """Number of the sequence in its phase's order: the source of its random keys."""
