"""Batches of pretraining: of a prepared data set, or of random pieces for benchmarks."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, UInt32

from bert_jax.batching.grouping import ahead
from bert_jax.instances.instances import UNTAGGED, Instances
from bert_jax.layout import MASKABLE, WORD_START, Tokens, lay_out

_READ_THREADS = 2
_BATCHES_AHEAD = 8


@runtime_checkable
class AnyBatch(Protocol):
    """The fields of a batch that the step uses. A batch is a tree of arrays whose first axis is the batch's."""

    @property
    def tokens(self) -> Tokens:
        """Token arrays of shape [B, T]."""

    @property
    def weight(self) -> Float[Any, "B *N"]:
        """1 for a sequence or example, 0 for a filler."""

    @property
    def ordinal(self) -> UInt32[Any, "B *N"]:
        """The number of the sequence or example in the phase's order, from which its random keys are derived."""


@runtime_checkable
class NumberedBatches(Protocol):
    """The batches of a training, with random access by their number."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> AnyBatch: ...

    def record_numbers(self, number: int) -> list[int]:
        """The numbers of the records in batch `number`, over all processes; fillers have none."""


class Batch(NamedTuple):
    """B rows of pretraining: each sequence is [CLS] first [SEP] second [SEP] or, without a question about pairs,
    one segment with a [SEP] after each document's part. Numpy arrays or JAX arrays."""

    tokens: Tokens
    pair_label: Int[Any, "B N"]
    """0 if the second segment follows the first in its document, 1 if it was drawn at random."""
    weight: Float[Any, "B N"]
    """1 for a real sequence, 0 for a filler."""
    ordinal: UInt32[Any, "B N"]
    """Number of the sequence in its phase's order, from which its random keys are derived."""
    tags: Int[Any, "B T"] | None = None
    """The number of the tag of the word that begins with each token; UNTAGGED for other tokens. None: the run asks for
    no tags."""


def assemble(instances: Instances, ordinals: Int[np.ndarray, " B"], length: int, most: int = 1) -> Batch:
    """A batch with the rows of `instances`, each of `length` tokens and up to `most` sequences (N), filled up with
    empty rows to one row for each of `ordinals`.

    `ordinals`: the numbers of the rows in their phase's order. The sequences of row number r have the numbers from r N
    on, modulo 2^32. A sequence without tokens has weight 0: in an empty row, in place of an unreadable record, or past
    the last sequence of a row that has fewer than N.
    """
    shape = (len(ordinals), length)
    lengths, rows = np.diff(instances.ends), instances.rows
    tokens = lay_out(instances.ids, lengths, instances.first_length, shape, units=instances.units, rows=rows, most=most)
    row_ends = instances.row_ends
    rows = np.repeat(np.arange(len(row_ends) - 1), np.diff(row_ends)) if rows is None else rows
    labels = np.zeros(tokens.length.shape, np.int32)
    labels[rows, np.arange(instances.sequences) - np.searchsorted(rows, rows)] = instances.pair_label
    weights = (tokens.length > 0).astype(np.float32)
    numbers = np.asarray(ordinals, np.uint64)[:, None] * np.uint64(most) + np.arange(most, dtype=np.uint64)
    tags = None
    if instances.tags is not None:
        tags = np.full(shape, UNTAGGED, np.int32)
        tags[tokens.sequence > 0] = instances.tags
    return Batch(tokens, labels, weights, numbers.astype(np.uint32), tags)


def synthetic_batch(batch_size: int, length: int, vocabulary_size: int, most: int = 1) -> Batch:
    """A batch of random pieces in full rows. Each sequence has two segments of equal length, and each piece is a word.

    With `most` above 1 each row holds two sequences, the first of three quarters of its tokens.
    """
    rng = np.random.default_rng(0)
    row_lengths = np.array([length]) if most == 1 else np.array([length - length // 4, length // 4])
    lengths = np.tile(row_lengths, batch_size)
    rows = np.repeat(np.arange(batch_size), len(row_lengths))
    first, ends = lengths // 2, np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(0, vocabulary_size, ends[-1], np.int32)
    units = np.full(ends[-1], MASKABLE | WORD_START, np.uint8)
    units[np.concatenate([ends[:-1], ends[:-1] + first - 1, ends[1:] - 1])] = 0
    labels = rng.integers(0, 2, len(lengths), np.int32)
    instances = Instances(ids, units, ends, first, labels, rows if most > 1 else None)
    return assemble(instances, np.arange(batch_size), length, most)


def read_ahead(source: NumberedBatches, first: int = 0) -> Iterator[AnyBatch]:
    """The batches of `source` from number `first` on, read ahead by threads."""
    read = ahead(source.__getitem__, range(first, len(source)), _READ_THREADS, _BATCHES_AHEAD)
    return (batch for _, batch in read)
