"""What a step learns from: batches of a prepared data set, or of made-up pieces where there is no data."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, UInt32

from bert_jax.instances.instances import Instances
from bert_jax.layout import MASKABLE, WORD_START, Tokens, lay_out


@runtime_checkable
class AnyBatch(Protocol):
    """What the step needs of a batch, whatever else it has: a tree of arrays whose first axis is the batch's."""

    tokens: Tokens
    """[B, T], or of several choices [B, C, T]."""
    weight: Float[Any, "B *N"]
    """1 for what counts, 0 for a filler: for each sequence of a row, or for the whole row."""
    ordinal: UInt32[Any, "B *N"]
    """Its number in the phase's order: the source of its random keys."""


class Batch(NamedTuple):
    """B rows of pretraining: each sequence is [CLS] first [SEP] second [SEP] or, where nothing is asked about pairs,
    one segment with a [SEP] after each document's part. Numpy arrays or JAX arrays."""

    tokens: Tokens
    pair_label: Int[Any, "B N"]
    """0: the second segment follows the first in its document; 1: it was drawn at random."""
    weight: Float[Any, "B N"]
    """1 for a sequence that counts, 0 for a filler."""
    ordinal: UInt32[Any, "B N"]
    """Number of the sequence in its phase's order: the source of its random keys."""


def assemble(instances: Instances, ordinals: Int[np.ndarray, " B"], length: int) -> Batch:
    """One instance a row, in rows of `length` tokens; rows without tokens follow, up to as many as `ordinals` are.

    A row without tokens has weight 0: such a filler, or a record that couldn't be read.
    """
    shape = (len(ordinals), length)
    lengths = np.diff(instances.ends)
    tokens = lay_out(instances.ids, lengths, instances.first_length, shape, units=instances.units)
    labels = np.zeros((len(ordinals), 1), np.int32)
    labels[: instances.count, 0] = instances.pair_label
    weights = (tokens.length > 0).astype(np.float32)
    return Batch(tokens, labels, weights, np.asarray(ordinals, np.uint32)[:, None])


def synthetic_batch(batch_size: int, length: int, vocabulary_size: int) -> Batch:
    """A batch of random pieces at full length, with two segments of equal length; each piece is a word."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, vocabulary_size, batch_size * length, np.int32)
    units = np.full((batch_size, length), MASKABLE | WORD_START, np.uint8)
    first = length // 2
    units[:, [0, first - 1, -1]] = 0
    ends = np.arange(batch_size + 1) * length
    labels = rng.integers(0, 2, batch_size, np.int32)
    instances = Instances(ids, units.reshape(-1), ends, np.full(batch_size, first), labels)
    return assemble(instances, np.arange(batch_size), length)
