"""Uniform samples of a stream of documents of unknown length."""

import heapq
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from bert_jax.corpora.corpus import Document

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


def sample_mixture(documents: Iterable[Sourced], shares: Sequence[float], limit_bytes: float) -> list[Sourced]:
    """A sample of all sources in which each source has its share of the bytes, to within one document.

    The sample has as many bytes as the corpus, but at most `limit_bytes`; that is also the memory it takes. The
    documents of a source that is smaller than its share are repeated, as they are in training.
    """
    samples = [_Sample(share * limit_bytes) for share in shares]
    seen = sum(samples[document[0]].add(document) for document in documents)
    drawn = []
    for share, sample in zip(shares, samples, strict=True):
        if sample.size:
            times, rest = divmod(share * min(seen, limit_bytes), sample.size)
            drawn += sample.documents * int(times) + sample_documents(sample.documents, rest)
    return drawn


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
            while self.size > self._limit and len(self._kept) > 1:
                order, _, size, _ = heapq.heappop(self._kept)
                self._bound, self.size = -order, self.size - size
        return len(encoded)

    @property
    def documents(self) -> list[Sourced]:
        """The documents of the sample, in the order in which they were added."""
        return [sourced for _, _, _, sourced in sorted(self._kept, key=lambda entry: -entry[1])]
