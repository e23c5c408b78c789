"""Uniform samples of a stream of documents of unknown length."""

import heapq
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from bert_jax.records.corpus import Document

Sourced = tuple[int, Document]
"""The index of a document's source, and the document."""


def sample_documents(documents: Iterable[Sourced], limit_bytes: float) -> list[Sourced]:
    """A sample of at most `limit_bytes` UTF-8 bytes, but of at least one document, in input order.

    If all documents fit, the sample is all of them; otherwise it is those with the smallest hashes, so the same corpus
    gives the same sample. Only the sample is in memory.
    """
    sample = _Sample(limit_bytes)
    for document in documents:
        sample.add(document)
    return sample.documents


def sample_mixture(
    documents: Iterable[Sourced],
    sources: int,
    shares: Callable[[Sequence[int]], Sequence[float]],
    limit_bytes: float,
) -> "MixedSample":
    """A sample of all sources in which each source has its share of the bytes, to within one document.

    `shares` returns the share of each source, from the bytes of each; documents come source by source. The sample has
    as many bytes as the corpus, but at most `limit_bytes`; meanwhile it takes twice that in memory. The documents of a
    source that is smaller than its share are repeated, as they are in training.
    """
    samples = [_Sample(limit_bytes) for _ in range(sources)]
    sizes = [0] * sources
    for source, of_source in itertools.groupby(documents, key=operator.itemgetter(0)):
        for document in of_source:
            sizes[source] += samples[source].add(document)
        for sample, share in zip(samples[: source + 1], shares(sizes), strict=False):
            sample.shrink(share * limit_bytes)  # shares become smaller with each source that is read
    drawn: list[Sourced] = []
    for sample, share in zip(samples, shares(sizes), strict=True):
        if sample.size:
            times, rest = divmod(share * min(sum(sizes), limit_bytes), sample.size)
            drawn += sample.documents * int(times) + sample_documents(sample.documents, rest)
    return MixedSample(drawn, sizes)


class MixedSample(NamedTuple):
    """A sample of several sources."""

    documents: list[Sourced]
    sizes: list[int]
    """Bytes of all documents of each source."""


class _Sample:
    """Keeps the documents with the smallest hashes of all those added, in at most `limit_bytes` bytes."""

    def __init__(self, limit_bytes: float):
        self.size = 0
        self._limit, self._bound = limit_bytes, 2**64
        # A heap with the largest hash first: negated hash, negated position, bytes, document.
        self._kept: list[tuple[int, int, int, Sourced]] = []
        self._count = 0

    def add(self, sourced: Sourced) -> int:
        """Offers a document to the sample, which keeps it or not; returns the document's size in bytes."""
        encoded = "\n".join(sourced[1]).encode()
        order = int.from_bytes(blake2b(encoded, digest_size=8).digest())
        if order < self._bound:
            self._count += 1
            heapq.heappush(self._kept, (-order, -self._count, len(encoded), sourced))
            self.size += len(encoded)
            self.shrink(self._limit)
        return len(encoded)

    def shrink(self, limit_bytes: float) -> None:
        """Keeps at most `limit_bytes`, and at least one document. A sample doesn't grow again for a larger limit."""
        self._limit = min(self._limit, limit_bytes)
        while self.size > self._limit and len(self._kept) > 1:
            order, _, size, _ = heapq.heappop(self._kept)
            self._bound, self.size = -order, self.size - size

    @property
    def documents(self) -> list[Sourced]:
        """The documents of the sample, in the order in which they were added."""
        return [sourced for _, _, _, sourced in sorted(self._kept, key=lambda entry: -entry[1])]
