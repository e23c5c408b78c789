"""The corpus cut into chunks: what one unit of preparation takes."""

import itertools
import zlib
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple


class Chunk(NamedTuple):
    """Consecutive documents."""

    index: int
    """Position in the corpus, from 0."""
    source: int
    """Number of the source that the documents are from."""
    documents: list[list[str]]
    """Lines of each document."""
    size: int
    """Bytes of text."""
    crc32: int
    """Checksum of the text: an interrupted preparation knows by it what it has done already."""


def cut_chunks(sources: Iterable[Iterable[list[str]]], chunk_bytes: int) -> Iterator[Chunk]:
    """Cuts the documents of each source by the text alone: a chunk ends with the one that brings it to `chunk_bytes`.

    What is left at a source's end joins the chunk before it if it is less than half a chunk. Memory: two chunks.
    """
    indices = itertools.count()
    for source, documents in enumerate(sources):
        for group in _cut(documents, chunk_bytes):
            yield _chunk(next(indices), source, group)


def text_hash(chunks: Iterable[tuple[int, int]]) -> str:
    """Hash of all text, from the source and the checksum of each chunk."""
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


def _chunk(index: int, source: int, documents: list[list[str]]) -> Chunk:
    size, crc32 = 0, 0
    for document in documents:
        encoded = ("\n".join(document) + "\n\n").encode()
        size += len(encoded)
        crc32 = zlib.crc32(encoded, crc32)
    return Chunk(index, source, documents, size, crc32)
