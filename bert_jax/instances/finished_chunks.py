"""Reads the temporary files of finished chunks, and verifies their checksums."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt64

from bert_jax.instances.checked_files import damage_error, read_numbers
from bert_jax.instances.chunk_worker import ChunkFiles, ChunkRecord
from bert_jax.system.errors import RunError
from bert_jax.system.files import FileSum
from bert_jax.system.json_file import parse_json


def held_out_documents(directory: Path, chunks: Sequence[ChunkRecord]) -> Iterator[tuple[int, list[str]]]:
    """Yields all held-out documents of the data set in `directory`, each with the index of its source.

    Raises RunError if a file isn't as it was written.
    """
    for index, chunk in enumerate(chunks):
        path = _unchanged(ChunkFiles.of(directory, index).held_out, chunk.held_out_file)
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                yield chunk.source, held_out_document(line, path)


def held_out_document(line: str, path: Path) -> list[str]:
    """Parses one line of the held-out file at `path` as a document. Raises RunError if it is anything else."""
    try:
        document = parse_json(line)
    except ValueError as error:
        raise damage_error(path, error) from None
    if not isinstance(document, list) or not all(isinstance(paragraph, str) for paragraph in document):
        raise damage_error(path, "a line is no list of paragraphs")
    return document


def read_paragraphs(directory: Path, index: int, chunk: ChunkRecord) -> UInt64[np.ndarray, " n"]:
    """The hashes of the training paragraphs of chunk `index`. Raises RunError if the file isn't as it was written."""
    return _numbers(ChunkFiles.of(directory, index).paragraphs, chunk.paragraphs_file, np.uint64)


def read_piece_counts(directory: Path, index: int, chunk: ChunkRecord) -> Int[np.ndarray, " V"]:
    """The number of occurrences of each piece in the training documents of chunk `index`.

    Raises RunError if the file isn't as it was written.
    """
    return _numbers(ChunkFiles.of(directory, index).piece_counts, chunk.piece_counts_file, np.int64)


def _numbers(path: Path, written: FileSum, kind: type[np.integer]) -> np.ndarray:
    try:
        return read_numbers(_unchanged(path, written), kind)
    except ValueError as error:
        raise damage_error(path, error) from None


def _unchanged(path: Path, written: FileSum) -> Path:
    """Returns `path`. Raises RunError if the file can't be read or its checksum isn't `written`."""
    try:
        if FileSum.of(path) == written:
            return path
        reason = "another program changed it"
    except OSError as error:
        reason = error.strerror or str(error)
    raise RunError(f"{path} can't be used ({reason}); give the same command again: it is made anew")
