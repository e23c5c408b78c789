"""Files that are whole or absent, and their checksums."""

import contextlib
import errno
import json
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.system.errors import RunError, UsageError

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, a quota and a file-size limit."""
_BLOCK_BYTES = 1 << 22


class FileSum(NamedTuple):
    """Size in bytes and CRC-32 of one file."""

    size: int
    crc32: int

    @classmethod
    def of(cls, path: Path) -> "FileSum":
        """Reads `path` once, in blocks: what is on the disk, if that has been synced, not what is still in memory."""
        size, crc = 0, 0
        with open(path, "rb") as file:
            if hasattr(os, "posix_fadvise"):  # not on macOS
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while block := file.read(_BLOCK_BYTES):
                size += len(block)
                crc = zlib.crc32(block, crc)
        return cls(size, crc)


def sync(path: Path) -> None:
    """Returns when the file or directory at `path` is on the disk. Raises OSError where it can't be written there."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; what was written there takes its place if the block ends well.

    A reader sees the old file or the whole new one, also after a power cut. Raises RunError where the disk is full.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with full_disk_explained(path):
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yields an empty directory beside `path`, which becomes `path` if the block ends well, and otherwise is deleted.

    Raises UsageError where there is something at `path` already, or where it can't be made; RunError where the disk
    is full.
    """
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise UsageError(f"{path} exists already; choose another place, or delete it first")
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with full_disk_explained(path):
            try:
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir(parents=True)
            except OSError as error:
                if error.errno in FULL_DISK:
                    raise
                raise UsageError(f"{path} can't be written ({error.strerror}); choose another place") from None
            yield temporary
            os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Writes `text` as UTF-8, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def full_disk_explained(path: Path) -> Iterator[None]:
    """Turns a full disk, quota or file-size limit into the RunError that says what to do."""
    try:
        yield
    except Exception as error:  # libraries in other languages give the system's words in exceptions of their own
        words = [os.strerror(number) for number in FULL_DISK]
        if getattr(error, "errno", None) not in FULL_DISK and not any(word in str(error) for word in words):
            raise
        raise RunError(
            f"no space left to write {path}; free some (or choose another --workdir) and give the same command "
            "again: what was finished is kept"
        ) from error
