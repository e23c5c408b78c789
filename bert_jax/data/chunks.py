"""The corpus cut into chunks: what one unit of preparation takes."""

import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Chunk(NamedTuple):
    """Consecutive documents."""

    index: int
    """Position in the corpus, from 0."""
    documents: list[list[str]]
    """Lines of each document."""
    size: int
    """Bytes of text."""
    crc32: int
    """Checksum of the text: an interrupted preparation knows by it what it has done already."""


def cut_chunks(documents: Iterable[list[str]], chunk_bytes: int) -> Iterator[Chunk]:
    """Cuts by the text alone: a chunk ends with the document that brings it to `chunk_bytes`.

    What is left at the end joins the chunk before it if it is less than half a chunk. Memory: two chunks.
    """
    waiting: list[list[str]] = []
    chunk: list[list[str]] = []
    index, size = 0, 0
    for document in documents:
        chunk.append(document)
        size += sum(len(line.encode()) + 1 for line in document)
        if size >= chunk_bytes:
            if waiting:
                yield _chunk(index, waiting)
                index += 1
            waiting, chunk, size = chunk, [], 0
    if waiting and size < chunk_bytes / 2:
        waiting, chunk = waiting + chunk, []
    for rest in filter(None, (waiting, chunk)):
        yield _chunk(index, rest)
        index += 1


def _chunk(index: int, documents: list[list[str]]) -> Chunk:
    size, crc32 = 0, 0
    for document in documents:
        encoded = ("\n".join(document) + "\n\n").encode()
        size += len(encoded)
        crc32 = zlib.crc32(encoded, crc32)
    return Chunk(index, documents, size, crc32)
