"""The documents and lines that curation drops from a corpus, by their places in the text."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import UInt64

from bert_jax.system.bucket import Place
from bert_jax.system.copies import fetched
from bert_jax.system.errors import Setting, UsageError
from bert_jax.text.text_spans import plain

_DOCUMENTS, _LINES = "documents.npy", "lines.npy"
_LINE_BITS, _PORTION_BITS = 32, 20
_PORTIONS, _LINES_OF_PORTION = 1 << _PORTION_BITS, 1 << _LINE_BITS


def first_place(source: int, portion: int) -> int:
    """The place of a portion's first line, before anything is dropped.

    The next line has the next number, so places have the order of the text. Raises UsageError if `portion` doesn't fit
    in 20 bits.
    """
    if portion >= _PORTIONS:
        raise UsageError(
            f"a source has more than {_PORTIONS:,} portions of text; raise {Setting('data.chunk_megabytes')}"
        )
    return (source << _PORTION_BITS | portion) << _LINE_BITS


def check_lines(lines: int) -> None:
    """Raises UsageError if a portion has more lines than there are places for."""
    if lines > _LINES_OF_PORTION:
        raise UsageError(f"a file has more than {_LINES_OF_PORTION:,} lines of text; cut it into several")


class _Counting(Protocol):
    """A corpus, whose counts start at 0 in each pass."""

    @property
    def repairs(self) -> Counter[str]: ...


class Drops(NamedTuple):
    """What is dropped from a corpus."""

    directory: Place
    """Directory with two sorted arrays of places: of the first line of each dropped document, and of dropped lines. A
    dropped line stands for all equal lines of its document."""

    @staticmethod
    def write(directory: Path, documents: UInt64[np.ndarray, " N"], lines: UInt64[np.ndarray, " M"]) -> None:
        """Writes the places of dropped documents and dropped lines, both in ascending order."""
        np.save(directory / _DOCUMENTS, documents)
        np.save(directory / _LINES, lines)

    def remaining(
        self, documents: Iterable[list[str]], source: int, portion: int, corpus: _Counting
    ) -> Iterator[list[str]]:
        """Yields the documents of a portion of `corpus`, without the dropped documents and lines.

        `corpus.repairs` counts what is dropped. Memory doesn't grow with the number of places.
        """
        directory = fetched(self.directory)
        of_documents, of_lines = (
            np.load(directory / name, mmap_mode="r", allow_pickle=False) for name in (_DOCUMENTS, _LINES)
        )
        end = first_place(source, portion)
        for document in documents:
            begin, end = end, end + len(document)
            bounds = np.array([begin, end], np.uint64)
            first, last = np.searchsorted(of_documents, bounds)
            if first < last:
                corpus.repairs["documents dropped"] += 1
                continue
            first, last = np.searchsorted(of_lines, bounds)
            if first < last:
                dropped = {plain(document[place - begin]) for place in of_lines[first:last].tolist()}
                lines = [line for line in document if plain(line) not in dropped]
                corpus.repairs["lines dropped"] += len(document) - len(lines)
                document = lines
            if document:
                yield document
