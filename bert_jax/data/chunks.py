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
    documents_cut: int
    """Parts of documents that were too long for one chunk, first parts not counted."""


class _Part(NamedTuple):
    lines: list[str]
    size: int
    crc32: int
    continues: bool


def cut_chunks(documents: Iterable[list[str]], chunk_bytes: int) -> Iterator[Chunk]:
    """Cuts by the text alone: a chunk ends with the document that brings it to `chunk_bytes`.

    A document longer than that is cut between two lines. What is left at the end joins the chunk before it if it is
    less than half a chunk. Memory: two chunks.
    """
    waiting: list[_Part] | None = None
    parts: list[_Part] = []
    index, size = 0, 0
    for part in _parts(documents, chunk_bytes):
        parts.append(part)
        size += part.size
        if size >= chunk_bytes:
            if waiting:
                yield _chunk(index, waiting)
                index += 1
            waiting, parts, size = parts, [], 0
    if waiting and parts and size < chunk_bytes / 2:
        waiting, parts = waiting + parts, []
    for rest in filter(None, (waiting, parts)):
        yield _chunk(index, rest)
        index += 1


def _parts(documents: Iterable[list[str]], limit: int) -> Iterator[_Part]:
    for document in documents:
        begin, size, continues = 0, 0, False
        for end, line in enumerate(document, 1):
            size += len(line.encode()) + 1
            if size >= limit and end < len(document):
                yield _part(document[begin:end], continues)
                begin, size, continues = end, 0, True
        yield _part(document[begin:], continues)


def _part(lines: list[str], continues: bool) -> _Part:
    encoded = "\n".join(lines).encode()
    return _Part(lines, len(encoded), zlib.crc32(encoded), continues)


def _chunk(index: int, parts: list[_Part]) -> Chunk:
    return Chunk(
        index,
        documents=[part.lines for part in parts],
        size=sum(part.size for part in parts),
        crc32=zlib.crc32(b"".join(part.crc32.to_bytes(4) for part in parts)),
        documents_cut=sum(part.continues for part in parts),
    )
