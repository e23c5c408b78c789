"""Reads the temporary files of finished chunks, and verifies their checksums."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Integer

from bert_jax.instances.checked_files import damage_error, read_bytes, read_numbers
from bert_jax.instances.chunk_worker import ChunkFiles, ChunkRecord
from bert_jax.system.errors import RunError
from bert_jax.system.files import FileSum
from bert_jax.system.json_file import parse_json


def held_out_documents(directory: Path, chunks: Sequence[ChunkRecord]) -> Iterator[tuple[int, list[str]]]:
    """Yields all held-out documents of the data set in `directory`, each with the index of its source.

    Raises RunError if a file isn't as it was written.
    """
    for index, chunk in enumerate(chunks):
        path = ChunkFiles.of(directory, index).held_out
        for line in _content(path, directory, chunk).splitlines():
            yield chunk.source, held_out_document(line, path)


def held_out_document(line: bytes | str, path: Path) -> list[str]:
    """Parses one line of the held-out file at `path` as a document. Raises RunError if it is anything else."""
    try:
        document = parse_json(line)
    except ValueError as error:
        raise damage_error(path, error) from None
    if not isinstance(document, list) or not all(isinstance(paragraph, str) for paragraph in document):
        raise damage_error(path, "a line is no list of paragraphs")
    return document


def chunk_numbers(
    directory: Path, index: int, chunk: ChunkRecord, name: str, kind: type[np.integer]
) -> Integer[np.ndarray, " n"]:
    """The array `name` in the numbers of chunk `index`. Raises RunError if the file isn't as it was written."""
    return read_numbers(_content(ChunkFiles.of(directory, index).numbers, directory, chunk), name, kind)


def _content(path: Path, directory: Path, chunk: ChunkRecord) -> bytes:
    """The content of a file of the chunk. Raises RunError if it can't be read or isn't as it was written."""
    try:
        content = read_bytes(path)
        if FileSum.of_bytes(content) == chunk.files.get(path.relative_to(directory).as_posix()):
            return content
        reason = "another program changed it"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    raise RunError(f"{path} can't be used ({reason}); give the same command again: it is made anew")
