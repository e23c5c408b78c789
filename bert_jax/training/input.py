"""Batches from a prepared data set: the order of the records, and the arrays."""

import functools
import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from grain.experimental import index_shuffle
from jaxtyping import Int

from bert_jax.config.objective import TAGGED_EVERY
from bert_jax.instances.shards import InstanceSource
from bert_jax.system.errors import RunError
from bert_jax.training.batch import Batch, assemble

_SHUFFLE_ROUNDS = 4
_PERMUTED = 1 << 15
"""Largest number of records of a source whose order is a permutation in memory, with four bytes a record."""


@runtime_checkable
class Order(Protocol):
    """The order in which records are read."""

    def record(self, ordinal: int) -> int | None:
        """The record at `ordinal`; None for a filler."""


class ShuffledOrder(NamedTuple):
    """The endless order of training: every epoch has each record once, in another order.

    The record at an ordinal depends on these numbers and the ordinal alone, so resuming at any step needs no state.
    """

    size: int
    """Records in the data set."""
    seed: int
    phase: int

    def record(self, ordinal: int) -> int:
        epoch, index = divmod(ordinal, self.size)
        # Hashed, because consecutive seeds would otherwise give orders shifted by one epoch.
        seed = _hashed(4, self.seed, self.phase, epoch)
        return index_shuffle(index, max_index=self.size - 1, seed=seed, rounds=_SHUFFLE_ROUNDS)


class PermutedOrder:
    """An endless order like ShuffledOrder for few records, from a permutation that is computed once an epoch:
    `index_shuffle` takes up to 50 microseconds a record if their number isn't a power of two."""

    def __init__(self, size: int, seed: int, phase: int):
        self._size = size
        self._epoch = functools.lru_cache(maxsize=4)(functools.partial(permutation, size, seed, phase))

    def record(self, ordinal: int) -> int:
        epoch, index = divmod(ordinal, self._size)
        return int(self._epoch(epoch)[index])


class MixedOrder:
    """The endless order of training on several sources with fixed shares. Every record occurs once in each epoch of its
    source.

    Ordinals are divided into blocks of `BLOCK`. A source has the same number of records in every block (`places`), and
    each block is shuffled by itself. The record at an ordinal depends on the constructor's arguments and the ordinal
    alone.
    """

    BLOCK = 10_000

    @classmethod
    def places(cls, shares: Sequence[float]) -> tuple[int, ...]:
        """The number of records of each source in a block: in proportion to `shares`, and at least one for a source
        that has a share."""
        counts = list(apportion(shares, cls.BLOCK))
        for source, share in enumerate(shares):
            if share and not counts[source]:
                counts[source] = 1
                counts[counts.index(max(counts))] -= 1
        return tuple(counts)

    def __init__(self, sizes: Sequence[int], shares: Sequence[float], seed: int, phase: int):
        """`sizes`: number of records of each source; records are numbered source by source. `shares` add up to 1."""
        self.counts = self.places(shares)
        self._block = functools.lru_cache(maxsize=4)(functools.partial(_block, self.counts, seed, phase))
        self._begins = np.concatenate([[0], np.cumsum(sizes)]).tolist()
        self._orders = [
            (PermutedOrder if size <= _PERMUTED else ShuffledOrder)(size, _hashed(4, "source", source, seed), phase)
            for source, size in enumerate(sizes)
        ]

    def record(self, ordinal: int) -> int:
        block, index = divmod(ordinal, self.BLOCK)
        source, before = self._block(block)[index]
        ordinal_in_source = block * self.counts[source] + before
        return self._begins[source] + self._orders[source].record(ordinal_in_source)


class TaggedOrder:
    """The endless order of training on a text and a treebank: every `TAGGED_EVERY`-th record is one of the treebank.
    Text and treebank have epochs of their own, and each record occurs once in each epoch. The record at an ordinal
    depends on the constructor's arguments and the ordinal alone."""

    def __init__(self, text: Order, records: int, tagged: int, seed: int, phase: int):
        """`text`: the order of the text. `records` and `tagged`: the numbers of records of the text and of the
        treebank, whose records are numbered after those of the text."""
        self._text, self._records = text, records
        self._tagged = PermutedOrder(tagged, _hashed(4, "tags", seed), phase)

    def record(self, ordinal: int) -> int | None:
        before, place = divmod(ordinal, TAGGED_EVERY)
        if place == TAGGED_EVERY - 1:
            return self._records + self._tagged.record(before)
        return self._text.record(ordinal - before)


def apportion(shares: Sequence[float], places: int) -> tuple[int, ...]:
    """Divides `places` in proportion to `shares`, by the method of largest remainders."""
    exact = np.asarray(shares) * places / np.sum(shares)
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: places - counts.sum()]] += 1
    return tuple(counts.tolist())


def _block(counts: tuple[int, ...], seed: int, phase: int, block: int) -> list[tuple[int, int]]:
    """The source at each place of a block, and the number of records of that source before it in the block."""
    sources = np.repeat(np.arange(len(counts)), counts)[permutation(sum(counts), "block", seed, phase, block)]
    before = np.empty_like(sources)
    for source, count in enumerate(counts):
        before[sources == source] = np.arange(count)
    return list(zip(sources.tolist(), before.tolist(), strict=True))


def permutation(size: int, *words: str | int) -> Int[np.ndarray, " n"]:
    """A permutation of the numbers below `size` that `words` determine."""
    # Sorts random numbers instead of shuffling: later releases of numpy keep the stream of these numbers, but may
    # change shuffles.
    random = np.random.Philox(key=_hashed(16, *words)).random_raw(size)
    return np.argsort(random, kind="stable").astype(np.int32)


@functools.lru_cache(maxsize=1024)  # all records of an epoch share its seed
def _hashed(size: int, *words: str | int) -> int:
    """A number of `size` bytes that `words` determine."""
    return int.from_bytes(hashlib.blake2b(" ".join(map(str, words)).encode(), digest_size=size).digest())


class InOrder(NamedTuple):
    """The order of evaluation: records evenly spaced over a range of records, then fillers (None)."""

    size: int
    """Number of records in the range."""
    reads: int
    """Number of records to read."""
    first: int = 0
    """Number of the first record."""

    def record(self, ordinal: int) -> int | None:
        return self.first + ordinal * self.size // self.reads if ordinal < self.reads else None


class BatchSource:
    """The batches of a prepared data set."""

    def __init__(
        self,
        instances: InstanceSource,
        order: Order,
        *,
        batch_size: int,
        length: int,
        vocabulary_size: int,
        num_batches: int,
        rows: Int[np.ndarray, " b"] | None = None,
        sequences_a_row: int = 1,
    ):
        """`rows`: the rows of each batch that this process reads, in order; None: all."""
        self._rows = np.arange(batch_size) if rows is None else rows
        self._instances, self._order = instances, order
        self._batch_size, self._length, self._vocabulary_size = batch_size, length, vocabulary_size
        self._num_batches, self._sequences_a_row = num_batches, sequences_a_row

    def __len__(self) -> int:
        return self._num_batches

    def __getitem__(self, number: int) -> Batch:
        """Batch `number`. Raises RunError for a damaged file, too long a row, or an id past the vocabulary."""
        ordinals = number * self._batch_size + self._rows
        rows = self._instances.read(self._records(ordinals))
        longest = int(np.diff(rows.ends[rows.row_ends]).max(initial=0))
        if longest > self._length:
            raise RunError(
                f"{self._instances.directory} holds a row of {longest:,} tokens, and rows of {self._length:,} or fewer "
                "were expected; delete it and give the same command again to prepare it anew"
            )
        batch = assemble(rows, ordinals, self._length, self._sequences_a_row)
        largest = int(batch.tokens.ids.max(initial=0))
        if largest >= self._vocabulary_size:
            raise RunError(
                f"{self._instances.directory} holds piece id {largest} and the vocabulary has {self._vocabulary_size} "
                "pieces; the data was prepared with another vocabulary, so delete it and give the same command again"
            )
        return batch

    def record_numbers(self, number: int) -> list[int]:
        """The numbers of the training records in batch `number`, over all processes; fillers have none."""
        return self._records(np.arange(number * self._batch_size, (number + 1) * self._batch_size))

    def _records(self, ordinals: Int[np.ndarray, " b"]) -> list[int]:
        records = map(self._order.record, ordinals.tolist())
        return [record for record in records if record is not None]
