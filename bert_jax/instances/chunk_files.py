"""The files of a finished chunk, which exist until the whole data set is finished."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
from jaxtyping import Integer
from pydantic import Field, TypeAdapter

from bert_jax.instances.checked_files import damage_error, read_bytes, read_numbers
from bert_jax.instances.statistics import Count, Statistics
from bert_jax.system.errors import RunError
from bert_jax.system.files import FileSum
from bert_jax.system.sealed import Sealed

RECORD, DOCUMENTS, NUMBERS = ".json", ".held_out.jsonl", ".safetensors"
"""Suffixes of a chunk's files: the ChunkRecord, written last; held-out documents, each a JSON list of its lines in one
line; distinct hashes of the training paragraphs (PARAGRAPHS) and occurrences of each piece in them (PIECE_COUNTS)."""
_DOCUMENT = TypeAdapter(list[str])


def chunk_file(directory: Path, index: int, suffix: str) -> Path:
    """The path of a file of chunk `index` of the data set in `directory`."""
    return directory / "chunks" / f"{index:05d}{suffix}"


class ChunkRecord(Sealed):
    """The record of a finished chunk, which seals its shard and the files beside the record."""

    directory: Annotated[Path, Field(exclude=True)]
    """The data set's directory."""
    index: Annotated[int, Field(exclude=True)]
    """Position of the chunk in the corpus, from 0."""
    fingerprint: str
    """Fingerprint of the settings."""
    text_crc32: Annotated[int, Field(ge=0, lt=1 << 32)]
    source: Count
    """Index of the chunk's source."""
    statistics: Statistics
    """Statistics of the training documents."""
    held_out: Count
    """Number of held-out documents."""

    def held_out_documents(self) -> Iterator[list[str]]:
        """Yields the held-out documents. Raises RunError if their file isn't as it was written."""
        for line in self._content(DOCUMENTS).splitlines():
            try:
                yield _DOCUMENT.validate_json(line)
            except ValueError as error:
                raise damage_error(chunk_file(self.directory, self.index, DOCUMENTS), error) from None

    def numbers(self, name: str, kind: type[np.integer]) -> Integer[np.ndarray, " n"]:
        """The array `name` in the chunk's numbers. Raises RunError if their file isn't as it was written."""
        return read_numbers(self._content(NUMBERS), name, kind)

    def _content(self, suffix: str) -> bytes:
        path = chunk_file(self.directory, self.index, suffix)
        try:
            content = read_bytes(path)
            if FileSum.of_bytes(content) == self.files.get(path.relative_to(self.directory).as_posix()):
                return content
            reason = "another program changed it"
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
        raise RunError(f"{path} can't be used ({reason}); give the same command again: it is made anew")
