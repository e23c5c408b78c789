"""Cuts the corpus into chunks, the units of work of preparation."""

import itertools
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True)
class Chunk:
    """Consecutive documents of one source."""

    index: int
    """Position of the chunk in the corpus, from 0."""
    source: int
    """Index of the documents' source."""
    documents: list[list[str]]
    """The lines of each document."""
    size: int
    """Size of the text in bytes."""
    crc32: int
    """Checksum of the text, by which a resumed preparation recognizes finished chunks."""


def cut_chunks(
    portions: Iterable[tuple[int, Iterable[list[str]]]], chunk_bytes: int, first: int = 0
) -> Iterator[Chunk]:
    """Cuts each portion of a source into chunks: a chunk ends with the document that brings it to `chunk_bytes`.

    `portions`: of each the index of its source, and its documents. `first`: the index of the first chunk. The rest at
    the end of a portion joins the previous chunk if it is less than half a chunk. The cuts depend on the portion's text
    alone. At most two chunks are in memory.
    """
    indices = itertools.count(first)
    for source, documents in portions:
        for group in _cut(documents, chunk_bytes):
            size, crc32 = 0, 0
            for document in group:
                encoded = ("\n".join(document) + "\n\n").encode()
                size, crc32 = size + len(encoded), zlib.crc32(encoded, crc32)
            yield Chunk(next(indices), source, group, size, crc32)


def text_hash(chunks: Iterable[tuple[int, int]]) -> str:
    """Hash of the whole corpus, computed from the source and the checksum of each chunk."""
    return blake2b(repr([(source, crc32) for source, crc32 in chunks]).encode(), digest_size=8).hexdigest()


def _cut(documents: Iterable[list[str]], chunk_bytes: int) -> Iterator[list[list[str]]]:
    waiting: list[list[str]] = []
    chunk: list[list[str]] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += sum(len(line.encode()) + 1 for line in document)
        if size >= chunk_bytes:
            if waiting:
                yield waiting
            waiting, chunk, size = chunk, [], 0
    if waiting and size < chunk_bytes / 2:
        waiting, chunk = waiting + chunk, []
    yield from filter(None, (waiting, chunk))
