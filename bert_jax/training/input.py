"""Batches from a prepared data set: which records, in which order, and as which arrays."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import grain
import numpy as np
from grain.experimental import index_shuffle

from bert_jax.data.instances import Instance
from bert_jax.data.store import InstanceSource
from bert_jax.system.batch import Batch
from bert_jax.system.errors import RunError

_SHUFFLE_ROUNDS = 4
_READ_THREADS = 2
_PREFETCHED_BATCHES = 8


class ShuffledOrder(NamedTuple):
    """The endless order of training: every record once an epoch, each epoch in an order of its own.

    The record at ordinal o is a function of these numbers and o alone, so going on at any step needs no state.
    """

    size: int
    """Records in the data set."""
    seed: int
    phase: int

    def record(self, ordinal: int) -> int:
        """The record at `ordinal`."""
        epoch, index = divmod(ordinal, self.size)
        # Hashed, since seeds that differ by one would give orders that differ by one epoch.
        words = f"{self.seed} {self.phase} {epoch}".encode()
        seed = int.from_bytes(hashlib.blake2b(words, digest_size=4).digest())
        return index_shuffle(index, max_index=self.size - 1, seed=seed, rounds=_SHUFFLE_ROUNDS)


class InOrder(NamedTuple):
    """Every record once, in the order of the files: for evaluation. Past the end there are fillers (None)."""

    size: int

    def record(self, ordinal: int) -> int | None:
        """The record at `ordinal`."""
        return ordinal if ordinal < self.size else None


class BatchSource:
    """A random-access source whose element i is batch i: what Grain reads, prefetches and counts."""

    def __init__(
        self,
        instances: InstanceSource,
        order: ShuffledOrder | InOrder,
        *,
        batch_size: int,
        length: int,
        vocabulary_size: int,
        num_batches: int,
    ):
        self._instances, self._order = instances, order
        self._batch_size, self._length, self._vocabulary_size = batch_size, length, vocabulary_size
        self._num_batches = num_batches

    def __len__(self) -> int:
        return self._num_batches

    def __getitem__(self, number: int) -> Batch:
        """Raises RunError for a damaged file and for an id past the vocabulary."""
        first = number * self._batch_size
        ordinals = range(first, first + self._batch_size)
        records = [self._order.record(ordinal) for ordinal in ordinals]
        found = self._instances.__getitems__([record for record in records if record is not None])
        batch = assemble(found, ordinals, self._length)
        largest = int(batch.ids.max(initial=0))
        if largest >= self._vocabulary_size:
            raise RunError(
                f"{self._instances.directory} holds piece id {largest} and the vocabulary has {self._vocabulary_size} "
                "pieces; the data was prepared with another vocabulary, so delete it and give the same command again"
            )
        return batch

    def batches(self, first: int = 0) -> Iterator[Batch]:
        """Batches from number `first` on, read ahead by threads."""
        dataset = grain.MapDataset.source(self)[first:]
        options = grain.ReadOptions(num_threads=_READ_THREADS, prefetch_buffer_size=_PREFETCHED_BATCHES)
        return iter(dataset.to_iter_dataset(options))


def assemble(instances: Sequence[Instance], ordinals: Sequence[int], length: int) -> Batch:
    """Pads `instances` to `length` and, with rows of weight 0, to as many rows as there are `ordinals`."""
    rows = len(ordinals)
    ids = np.zeros((rows, length), np.int32)
    units = np.zeros((rows, length), np.uint8)
    lengths, first_lengths, labels = np.zeros((3, rows), np.int32)
    for row, instance in enumerate(instances):
        size = len(instance.ids)
        ids[row, :size] = instance.ids
        units[row, :size] = instance.units
        lengths[row], first_lengths[row], labels[row] = size, instance.first_length, instance.pair_label
    weights = (np.arange(rows) < len(instances)).astype(np.float32)
    return Batch(ids, units, lengths, first_lengths, labels, weights, np.asarray(ordinals, np.uint32))
