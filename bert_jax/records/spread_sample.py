"""Reads a spread sample of a source, in bounded time."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bert_jax.records.corpus import Corpus, Document
from bert_jax.records.sample import sample_documents
from bert_jax.system.progress import stage

_PIECES_BYTES, _SECONDS = 64_000_000, 15.0
"""Most text that is read of files of which ranges can be read, and the time after which reading ends."""
SAMPLE_BYTES = 16e6
"""Most text that is kept, to be prepared for a trial."""


class SpreadSample(NamedTuple):
    """A sample of a source."""

    documents: list[Document]
    """A uniform sample of the documents that were read, of at most SAMPLE_BYTES."""
    number: int
    """How many documents were read."""
    bytes: int
    """Bytes of their text, with line ends and blank lines between documents."""
    repairs: Counter[str]
    """Kinds of damage that were repaired while reading, with their counts."""
    share: float
    """Share of the source that was read, from 0 to 1."""
    seconds: float
    """Time of reading it."""
    described: str
    """How what was read lies in the source."""

    @property
    def has_all(self) -> bool:
        """Whether `documents` are all of the source."""
        return self.share == 1 and len(self.documents) == self.number

    @property
    def text_bytes(self) -> float:
        """Bytes of text of the whole source, estimated."""
        return self.bytes / self.share


def read_sample(
    source: Corpus, each: Callable[[Document], None] = lambda document: None, most_bytes: int | None = None
) -> SpreadSample:
    """Reads a sample of `source`, and calls `each` with every document. `most_bytes`: about the most text that is read.

    Raises UsageError if the source is damaged or a record lacks the field of the text.
    """
    sample = _read(source, source.sampled(most_bytes or _PIECES_BYTES), each, most_bytes)
    # No document of a few long ones may begin in a range.
    return sample if sample.documents else _read(source, source, each, most_bytes)


def _read(source: Corpus, sample: Corpus, each: Callable[[Document], None], most_bytes: int | None) -> SpreadSample:
    """Reads `sample`, which is `source` or ranges of it."""
    count, size, seconds, ended = 0, 0, 0.0, True
    in_ranges = sample.source.in_ranges

    def read() -> Iterator[tuple[int, Document]]:
        nonlocal count, size, seconds, ended
        documents, began = sample.documents(), time.perf_counter()
        while True:
            before = time.perf_counter()
            document = next(documents, None)
            seconds += time.perf_counter() - before
            if document is None:
                return
            each(document)
            count += 1
            size += sum(len(line.encode()) + 1 for line in document) + 1
            bar.advance(1)
            yield 0, document
            if time.perf_counter() > began + _SECONDS or most_bytes and size >= most_bytes and not in_ranges:
                ended = False
                return

    with stage("Reading a sample", None, "documents") as bar:
        documents = [document for _, document in sample_documents(read(), SAMPLE_BYTES)]
    if in_ranges:
        share, described = sample.position / source.source.total, "pieces spread over the files"
    elif ended:
        share, described = 1.0, "the whole"
    else:
        share, described = sample.position / source.source.total, "the beginning alone"
    return SpreadSample(documents, count, size, sample.repairs, min(share, 1.0), seconds, described)
