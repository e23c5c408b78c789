"""Chunks of the corpus, the units of work of preparation, and the files of a finished chunk.

These files exist until the whole data set is finished.
"""

import errno
import itertools
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Integer
from pydantic import Field, TypeAdapter
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from bert_jax.instances.statistics import Statistics, Tally
from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError, first_line
from bert_jax.system.files import FileSum, replacing
from bert_jax.system.json_file import read_bytes
from bert_jax.system.safetensors_file import write_safetensors
from bert_jax.system.sealed import Sealed

SUMMARY, NUMBERS = ".json", ".safetensors"
"""Suffixes of a chunk's files beside its shard: the FinishedChunk, written last, and arrays of numbers."""
PARAGRAPHS, PIECE_COUNTS, DOCUMENTS = "paragraphs", "piece_counts", "held_out"
"""Names of the arrays: the distinct hashes of the training paragraphs; how often each piece occurs in training; the
held-out documents, each a list of lines, as bytes of JSON."""
MOST_NUMBERS_BYTES = 1 << 30
"""Largest file of numbers that is read, in bytes. A chunk's file has about 500 MB at most."""
_DOCUMENTS = TypeAdapter(list[list[str]])


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

    `portions` has for each portion the index of its source, and its documents. `first`: the index of the first chunk. A
    last chunk of less than half that size joins the previous chunk of its portion. The cuts depend on the portion's
    text alone. At most two chunks are in memory.
    """
    indices = itertools.count(first)
    for source, documents in portions:
        for group in _cut(documents, chunk_bytes):
            size, crc32 = 0, 0
            for document in group:
                encoded = ("\n".join(document) + "\n\n").encode()
                size, crc32 = size + len(encoded), zlib.crc32(encoded, crc32)
            yield Chunk(next(indices), source, group, size, crc32)


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


def chunk_file(directory: Place, index: int, suffix: str) -> Place:
    """The path of a file of chunk `index` of the data set in `directory`."""
    return directory / "chunks" / f"{index:05d}{suffix}"


class FinishedChunk(Sealed):
    """A finished chunk, as its JSON file describes it. It seals the chunk's shard and other files."""

    directory: Annotated[Place, Field(exclude=True)]
    """The data set's directory."""
    index: Annotated[int, Field(exclude=True)]
    """Position of the chunk in the corpus, from 0."""
    fingerprint: str
    """Fingerprint of the settings."""
    text_crc32: Annotated[int, Field(ge=0, lt=1 << 32)]
    source: Tally
    """Index of the chunk's source."""
    statistics: Statistics
    """Statistics of the training documents."""
    held_out: Tally
    """Number of held-out documents."""
    text_seconds: Annotated[float, Field(exclude=True)] = 0.0
    """Seconds in which the text was split and encoded, for all lengths together; 0 if the record was read."""
    cutting_seconds: Annotated[float, Field(exclude=True)] = 0.0
    """Seconds in which the text was cut into sequences and written; 0 if the record was read."""

    def held_out_documents(self) -> list[list[str]]:
        """The held-out documents. Raises RunError if their file isn't as it was written."""
        try:
            return _DOCUMENTS.validate_json(self.numbers(DOCUMENTS, np.uint8).tobytes())
        except ValueError as error:
            raise damaged_set(chunk_file(self.directory, self.index, NUMBERS), error) from None

    def numbers(self, name: str, kind: type[np.integer]) -> Integer[np.ndarray, " n"]:
        """The array `name` in the chunk's numbers. Raises RunError if their file isn't as it was written."""
        path = chunk_file(self.directory, self.index, NUMBERS)
        try:
            content = read_bytes(path, MOST_NUMBERS_BYTES)
            if FileSum.of_bytes(content) == self.files.get(path.relative_to(self.directory).as_posix()):
                return read_numbers(content, name, kind)
            reason = "another program changed it"
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
        raise RunError(f"{path} can't be used ({reason}); give the same command again, which writes it again")


def write_numbers(path: Place, arrays: Mapping[str, Integer[np.ndarray, " _"]]) -> None:
    """Writes named arrays atomically as a safetensors file."""
    with replacing(path) as temporary:
        write_safetensors(temporary, arrays)


def read_numbers(content: bytes, name: str, kind: type[np.integer]) -> Integer[np.ndarray, " n"]:
    """The array `name` of type `kind` in a safetensors file with this content. Raises ValueError for anything else."""
    try:
        numbers = safetensors.load(content)[name]
    except (SafetensorError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"it holds no {name} ({first_line(error)})") from None
    if numbers.dtype != kind or numbers.ndim != 1:
        raise ValueError(f"{name} has type {numbers.dtype} and shape {numbers.shape}, not a row of {kind.__name__}")
    return numbers


def damaged_set(path: Place, error: Exception | str) -> RunError:
    """The error for a file of a prepared data set that can't be used because of `error`."""
    refused = os.strerror(errno.EACCES)
    if isinstance(error, PermissionError) or error == refused:
        return RunError(f"{path} can't be read ({refused}); give yourself the permission (ls -l shows who has it)")
    return RunError(
        f"{path} is damaged ({first_line(error)}); delete {path.parent} and give the same command again to prepare it "
        "anew"
    )
