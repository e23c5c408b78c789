"""Sealed records: JSON files that list other files with size and checksum, and that contain their own checksum.

A sealed record is written last and atomically. A directory without one is not finished.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, TypeVar

from pydantic import Field, PrivateAttr

from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.errors import RunError, first_line
from bert_jax.system.files import FileSum, as_json, write_json
from bert_jax.system.json_file import (
    MOST_JSON_BYTES,
    JsonObject,
    Shape,
    as_shape,
    check_format,
    parse_object,
    read_bytes,
)

Natural = Annotated[int, Field(ge=0, lt=2**63)]
_SUM = "sum"
"""Key of the record's own checksum."""

SealedKind = TypeVar("SealedKind", bound="Sealed")


class Sealed(Shape):
    """A record that lists files with their sizes and checksums."""

    FORMAT: ClassVar[int] = 1
    """Version of the format that this release reads and writes."""
    files: dict[str, FileSum] = {}
    """Size and checksum of each file, by its path relative to the sealed directory."""
    _file_sum: FileSum | None = PrivateAttr(None)

    @property
    def file_sum(self) -> FileSum | None:
        """Size and checksum of the record's own file; None if it wasn't read from one."""
        return self._file_sum

    @classmethod
    def read(cls: type[SealedKind], path: Place, **others: object) -> SealedKind:
        """Reads the record at `path`; `others` are fields that aren't in the file.

        Raises OSError if it can't be read, ValueError if it is damaged, UsageError if another release wrote it,
        RunError if it is in a bucket that doesn't answer.
        """
        with bucket_answering(path):
            content = read_bytes(path, MOST_JSON_BYTES)
        value = parse_object(content)
        as_written = as_json(value).encode()
        if value.pop(_SUM, None) != _checksum(value):
            raise ValueError("its checksum is missing or another")
        check_format(path, value.get("format"), cls.FORMAT)  # checked before the fields, which depend on the version
        found = as_shape(value | others, cls)
        for name in found.files:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
                raise ValueError(f"it names {name!r}, which is outside its directory")
        if content != as_written:
            raise ValueError("its values are as they were written, but not the spaces between them")
        found._file_sum = FileSum.of_bytes(content)
        return found

    def write(self, path: Place) -> None:
        """Writes the record with its checksum, atomically."""
        write_json(path, self.as_sealed())

    def as_sealed(self) -> JsonObject:
        """The JSON object that `write` writes."""
        value = {"format": self.FORMAT, **self.model_dump(mode="json")}
        return value | {_SUM: _checksum(value)}


def _checksum(value: JsonObject) -> str:
    """Checksum of a JSON object's fields, in any order."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def file_damage(path: Place, written: FileSum, contents: bool = True) -> str | None:
    """How the file at `path` differs from what was written, or None. Without `contents`, only the size is compared.
    Raises RunError if a bucket doesn't answer: its file may be undamaged."""
    try:
        with bucket_answering(path):
            if contents:
                found = FileSum.of(path)
            else:
                found = FileSum(os.path.getsize(path) if path.is_file() else 0, written.crc32)
    except FileNotFoundError:
        return "it is gone"
    except OSError as error:
        return error.strerror or str(error)
    if found.size != written.size:
        return f"its size is {found.size:,} and should be {written.size:,} bytes"
    return None if found == written else "its checksum is another"


def first_damaged(directory: Place, files: Mapping[str, FileSum]) -> str | None:
    """The name of the first of `files` whose content differs from what was written, or None. Reads all of them."""
    return next((name for name, written in files.items() if file_damage(directory / name, written)), None)


@contextlib.contextmanager
def bucket_answering(path: Place) -> Iterator[None]:
    """Raises RunError if a read from a bucket fails, unless the object doesn't exist."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if not in_bucket(path):
            raise
        raise RunError(f"{path} can't be read now ({first_line(error)}); give the same command again") from None
