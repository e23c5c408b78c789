"""A uniform sample of a stream whose length nobody knows."""

import heapq
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from bert_jax.corpora.corpus import Document

Sourced = tuple[int, Document]
"""A document and the number of its source."""


def sample_documents(documents: Iterable[Sourced], limit_bytes: float) -> list[Sourced]:
    """Documents of at most `limit_bytes` UTF-8 bytes together (but one at least), in their order.

    All of them if they fit; otherwise those with the smallest hashes. The same corpus gives the same sample. Memory:
    the sample.
    """
    sample = _Sample(limit_bytes)
    for document in documents:
        sample.add(document)
    return sample.documents


def sample_mixture(documents: Iterable[Sourced], shares: Sequence[float], limit_bytes: float) -> list[Sourced]:
    """Documents of all sources, of each so many that its bytes are its share of the sample, to within a document.

    The sample has as many bytes as the corpus, but at most `limit_bytes`. Where a source has less than its share, its
    documents are repeated, as training repeats them. Memory: `limit_bytes`.
    """
    samples = [_Sample(share * limit_bytes) for share in shares]
    seen = sum(samples[document[0]].add(document) for document in documents)
    drawn = []
    for share, sample in zip(shares, samples):
        if sample.size:
            times, rest = divmod(share * min(seen, limit_bytes), sample.size)
            drawn += sample.documents * int(times) + sample_documents(sample.documents, rest)
    return drawn


class _Sample:
    """The documents with the smallest hashes of those that it was given, within so many bytes."""

    def __init__(self, limit_bytes: float):
        self.size = 0
        self._limit, self._bound = limit_bytes, 2**64
        self._kept: list[tuple[int, int, int, Sourced]] = []  # a heap, the largest hash first
        self._count = 0

    def add(self, sourced: Sourced) -> int:
        """Takes the document or leaves it; returns its bytes."""
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
        """In the order in which they were given."""
        return [sourced for _, _, _, sourced in sorted(self._kept, key=lambda entry: -entry[1])]
