"""Atomic writes of files and directories, and checksums."""

import contextlib
import errno
import glob
import io
import json
import math
import os
import secrets
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from bert_jax.system.bucket import (
    FileState,
    Place,
    delete_objects,
    in_bucket,
    matching,
    objects,
    open_object,
    scheme_of,
    upload,
    upload_folder,
)
from bert_jax.system.errors import FULL_DISK, UsageError, disk_explained

_BLOCK_BYTES = 1 << 22


class FileSum(NamedTuple):
    """Size in bytes and CRC-32 of one file."""

    size: Annotated[int, Field(ge=0, lt=1 << 53)]
    crc32: Annotated[int, Field(ge=0, lt=1 << 32)]

    @classmethod
    def of(cls, path: Place) -> "FileSum":
        """Size and checksum of the file at `path`, which is read once, in blocks, by `open_on_disk`."""
        size, crc = 0, 0
        with open_on_disk(path) as file:
            while block := file.read(_BLOCK_BYTES):
                size += len(block)
                crc = zlib.crc32(block, crc)
        return cls(size, crc)

    @classmethod
    def of_bytes(cls, content: bytes) -> "FileSum":
        """Size and checksum of a file with this content."""
        return cls(len(content), zlib.crc32(content))


def open_binary(path: Place) -> io.BufferedReader:
    """Opens the file or object at `path` for reading. Raises OSError."""
    return open_object(path) if in_bucket(path) else open(path, "rb")


def open_regular(path: Place) -> io.BufferedReader:
    """Opens the file or object at `path` for reading. Raises OSError, also for pipes and devices."""
    if in_bucket(path):
        return open_object(path)
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # without O_NONBLOCK, opening a pipe waits for its writer
    mode = os.fstat(opened).st_mode
    if stat.S_ISREG(mode):
        return open(opened, "rb")
    os.close(opened)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))


def open_on_disk(path: Place) -> io.BufferedReader:
    """Opens the file or object at `path` as `open_regular` does. A synced file is read from the disk and not from the
    page cache."""
    file = open_regular(path)
    if not in_bucket(path) and hasattr(os, "posix_fadvise"):  # not on macOS
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return file


def open_lock(path: Path) -> io.BufferedWriter:
    """Opens the lock file at `path`, which is created if it is missing. Raises OSError for a link or a pipe."""
    special = os.O_NOFOLLOW | os.O_NONBLOCK  # without O_NONBLOCK, opening a pipe waits for its reader
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags | special, 0o666))


def refuse_links(*paths: Place) -> None:
    """Raises UsageError if one of `paths` is a symbolic link, because a write through it would change files
    elsewhere."""
    for path in paths:
        if not in_bucket(path) and os.path.islink(path):
            raise UsageError(
                f"{path} is a link, and files would be written to {os.path.realpath(path)}; put the folder itself "
                "there, or remove the link"
            )


def temporary_path(path: Path) -> Path:
    """A path beside `path` that nobody can guess, so that no link can be put there before the file is created."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def remove_temporary(directory: Place, name: str = "*") -> None:
    """Deletes temporary files and directories in `directory` that killed processes left for files called `name`.
    Buckets have no such files."""
    if in_bucket(directory):
        return
    for left in directory.glob(f".{name if name == '*' else glob.escape(name)}.{'[0-9a-f]' * 16}.tmp"):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def sync(path: Place) -> None:
    """Flushes the file or directory at `path` to the disk; does nothing in a bucket. Raises OSError."""
    if in_bucket(path):
        return
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def replacing(path: Place) -> Iterator[Path]:
    """Yields a temporary path for the block to write; the file replaces `path` if the block raises nothing.

    A reader sees the old file or the whole new one, also after a power cut. The temporary path is beside `path`, or in
    a local temporary folder if `path` is in a bucket. Raises RunError for disk errors.
    """
    if in_bucket(path):
        with disk_explained(path), tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / path.name
            upload(Path(folder) / path.name, path)
        return
    temporary = temporary_path(path)
    try:
        with disk_explained(path):
            open(temporary, "xb").close()  # doesn't follow a link
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):  # a disk may have become read-only
            temporary.unlink(missing_ok=True)


def check_written(path: Place, read: str) -> None:
    """Raises UsageError if a command that reads `read` can't write the file `path`. Reasons: the parent folder is
    missing, the path is a folder, it isn't writable, or it is the input file."""
    read_file = os.path.expanduser(read)
    same = str(path) in (read, os.path.abspath(read_file))
    if os.path.exists(read_file) and os.path.exists(path):
        same |= os.path.samefile(read_file, path)
    if same:
        raise UsageError(f"{path} is the input ({read}); choose another output")
    if in_bucket(path):
        return
    if not path.parent.is_dir():
        raise UsageError(f"{path} can't be written: there is no folder {path.parent}; make it or choose another place")
    if path.is_dir():
        raise UsageError(f"{path} can't be written: it is a folder; choose another name")
    temporary = temporary_path(path)
    try:
        open(temporary, "xb").close()
        temporary.unlink()
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise UsageError(f"{path} can't be written ({error.strerror}); choose another place") from None


@contextlib.contextmanager
def new_directory(path: Place) -> Iterator[Path]:
    """Yields an empty temporary directory, which is renamed to `path` if the block raises nothing, and deleted
    otherwise.

    For a `path` in a bucket, the files are uploaded one by one at the end. Raises UsageError if `path` exists already
    or can't be created, RunError if the disk is full.
    """
    if in_bucket(path):
        if path.exists():
            raise UsageError(f"{path} exists already; choose another place, or delete it first")
        with disk_explained(path), tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
            upload_folder(Path(folder), path)
        return
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise UsageError(f"{path} exists already; choose another place, or delete it first")
    temporary = temporary_path(path)
    try:
        with disk_explained(path):
            try:
                remove_temporary(path.parent, path.name)
                temporary.mkdir(parents=True)
            except OSError as error:
                if error.errno in FULL_DISK:
                    raise
                raise UsageError(f"{path} can't be written ({error.strerror}); choose another place") from None
            yield temporary
            os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def files_below(directory: Place) -> dict[str, Place]:
    """All files below `directory` at any depth, by their relative path, sorted."""
    if in_bucket(directory):
        return {name: directory / name for name in sorted(objects(directory)) if name}
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path for path in paths}


def sync_below(directory: Place) -> None:
    """Flushes `directory` and everything below it to the disk. Raises OSError."""
    if not in_bucket(directory):
        for path in (*directory.rglob("*"), directory):
            sync(path)


def matching_files(pattern: str) -> dict[Place, FileState]:
    """The files whose paths match `pattern`, sorted by path. A file with the name `pattern` is taken alone, so that
    names may hold * ? and [."""
    if scheme_of(pattern):
        return {**matching(pattern)}
    if "\0" in pattern:  # no file has such a name, and glob raises ValueError for it
        return {}
    files: dict[Place, FileState] = {}
    expanded = os.path.expanduser(pattern)
    for path in map(Path, [expanded] if os.path.isfile(expanded) else sorted(glob.glob(expanded, recursive=True))):
        if path.is_file():
            status = path.stat()
            files[path] = FileState(status.st_size, str(status.st_mtime_ns))
    return files


def remove_directory(path: Place) -> None:
    """Deletes `path` and everything below it, and ignores errors."""
    if in_bucket(path):
        with contextlib.suppress(Exception):
            delete_objects(path)
    else:
        shutil.rmtree(path, ignore_errors=True)


def write_text(path: Place, text: str) -> None:
    """Writes `text` as UTF-8, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Place, value: object) -> None:
    """Writes `value` as indented JSON, atomically."""
    write_text(path, as_json(value))


def as_json(value: object) -> str:
    """The text that `write_json` writes. Numbers that are not finite are null."""
    return json.dumps(finite_or_null(value), indent=2, ensure_ascii=False) + "\n"


def finite_or_null(value: Any) -> Any:
    """A JSON value with None in place of each number that is not finite, which JSON doesn't have."""
    if isinstance(value, dict):
        return {name: finite_or_null(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_null(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
