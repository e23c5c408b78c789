"""Samples of documents: uniform samples of a stream of unknown length, and samples spread over a source, read in
bounded time."""

import heapq
import itertools
import operator
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from bert_jax.records.corpus import Corpus, Document, Mixture, TextSettings
from bert_jax.records.decoded_lines import Pass
from bert_jax.records.source import Source
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.progress import stage

_RANGES_BYTES, _SECONDS = 64_000_000, 15.0
"""Most bytes of text that are read from files whose ranges can be read alone, and the seconds after which reading
ends."""
SAMPLE_BYTES = 16e6
"""Most bytes of text that are kept to be prepared, of all sources together."""
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
    documents: Iterable[Sourced], sources: int, shares: Callable[[Sequence[int]], Sequence[float]], limit_bytes: float
) -> "MixedSample":
    """A sample of all sources in which each source has its share of the bytes, to within one document.

    `shares` returns the share of each source, from the bytes of each; documents come source by source. The sample has
    as many bytes as the corpus, but at most `limit_bytes`; up to twice that is in memory meanwhile. If a source is
    smaller than its share, its documents are repeated, as in training.
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
            drawn += sample.documents * int(times)
            drawn += sample_documents(sample.documents, rest) if rest >= 1 or not times else []
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


@dataclass(frozen=True)
class SpreadSample:
    """A sample of a source."""

    documents: list[Document]
    """A uniform sample of the documents that were read, of at most SAMPLE_BYTES."""
    number: int
    """How many documents were read."""
    bytes: int
    """Bytes of the text that was read, with line ends and blank lines between documents."""
    repairs: Counter[str]
    """Kinds of damage that were repaired while reading, with their counts."""
    share: float
    """Share of the source that was read, from 0 to 1."""
    seconds: float
    """Seconds that reading took."""
    described: str
    """Which part of the source was read."""

    @property
    def has_all(self) -> bool:
        """Whether `documents` are all of the source."""
        return self.share == 1 and len(self.documents) == self.number

    @property
    def text_bytes(self) -> float:
        """Estimated bytes of text in the whole source."""
        return self.bytes / self.share

    @property
    def kept_bytes(self) -> int:
        """Bytes of the text of `documents`, with line ends and blank lines between documents."""
        return sum(map(_text_bytes, self.documents))

    def as_corpus(self, chunk_bytes: int) -> Mixture:
        """The documents as a corpus of one source. `chunk_bytes`: the size of a chunk when they were read."""
        return Mixture([Corpus(_SampledSource(self.documents), TextSettings("replace", chunk_bytes))])


class _SampledSource(Source):
    """Documents in memory as a source."""

    name, unit = "the sample", "documents"

    def __init__(self, documents: Sequence[Document]):
        self._documents, self.total = documents, len(documents)

    @property
    def content_hash(self) -> str:
        return ""

    def document_lines(self, progress: Pass) -> Iterator[str]:
        for document in self._documents:
            yield from document
            yield ""
            progress.position += 1


def read_sample(
    source: Corpus,
    on_document: Callable[[Document], None] = lambda document: None,
    most_bytes: int | None = None,
    sources: int = 1,
    name: str | None = None,
) -> SpreadSample:
    """Reads a sample of `source` and calls `on_document` with every document that is read.

    `most_bytes`: about the most bytes of text to read; None: the limits of time and of ranges alone apply. `sources`:
    the number of sources that share these limits and the memory. `name`: the source in data.source; with it, a source
    without text is refused. Raises UsageError if the source is damaged or a record lacks the field of the text.
    """
    part = source.sampled(most_bytes or _RANGES_BYTES // sources)
    sample = _read(source, part, on_document, most_bytes, sources)
    if not sample.documents:  # a source has only a few long documents, and perhaps none begins in a range
        sample = _read(source, source, on_document, most_bytes, sources)
    if name and not sample.documents:
        raise UsageError(f"{Setting('data.source')}={name!r} holds no text; give another")
    return sample


def _read(
    source: Corpus, part: Corpus, on_document: Callable[[Document], None], most_bytes: int | None, sources: int
) -> SpreadSample:
    """Reads `part`, which is `source` or ranges of it."""
    count, size, seconds, ended = 0, 0, 0.0, True
    has_ranges, kept = part.source.has_ranges, _Sample(SAMPLE_BYTES / sources)
    with stage("Reading a sample", None, "documents") as bar:
        began = before = time.perf_counter()
        for document in part.documents():
            seconds += time.perf_counter() - before
            on_document(document)
            kept.add((0, document))
            count += 1
            size += _text_bytes(document)
            bar.advance(1)
            before = time.perf_counter()
            if before > began + _SECONDS / sources or (most_bytes and size >= most_bytes and not has_ranges):
                ended = False
                break
    share, described = 1.0, "the whole"
    if has_ranges or not ended:
        share = min(part.position / source.source.total, 1.0)
        described = "stretches spread over the files" if has_ranges else "the beginning alone"
    documents = [document for _, document in kept.documents]
    return SpreadSample(documents, count, size, part.repairs, share, seconds, described)


def _text_bytes(document: Document) -> int:
    """Bytes of a document's text, with line ends and the blank line after it."""
    return sum(len(line.encode()) + 1 for line in document) + 1
