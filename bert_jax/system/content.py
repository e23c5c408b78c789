"""Hashes that identify contents and settings."""

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from bert_jax.system.bucket import in_bucket, objects
from bert_jax.system.copies import cache_directory
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.files import open_regular
from bert_jax.system.sealed import Sealed

_READ_ALWAYS_BYTES = 1_000_000
"""Total size up to which files are read again each time."""
_SETTLED_NS = 3_000_000_000
"""Once a file is this old, its times reveal every later change: some file systems count in steps of two seconds."""


class _KeptHash(Sealed):
    """The hash of files that were read before, in the user's cache directory."""

    status: str
    """Hash of the files' status when they were read."""
    content: str


def content_hash(*parts: object) -> str:
    """Hash of contents. A path counts by the names and bytes of its file or of all files below it, any other value by
    its `repr`. A missing path counts as an empty folder.

    Large files that were read before are read again only if their size, times or inode have changed. Objects in a
    bucket count by their revisions. Raises UsageError for a file that can't be read.
    """
    values = [part for part in parts if not isinstance(part, os.PathLike)]
    places: list[Any] = [part for part in parts if isinstance(part, os.PathLike)]
    values += [sorted(objects(place).items()) for place in places if in_bucket(place)]
    if local := [place for place in places if not in_bucket(place)]:
        try:
            values.append(_hash_of_files([*map(_files, local)]))
        except OSError as error:
            raise UsageError(f"{error.filename} can't be read ({error.strerror}); make it readable") from None
    return _short_hash(repr(values[0] if len(values) == 1 else values))


def settings_hash(*values: Any) -> str:
    """Hash of settings and other JSON values. A value that JSON lacks, such as a path, counts by its text."""
    return _short_hash(json.dumps(values, default=str, sort_keys=True))


def _files(place: Path) -> dict[str, Path]:
    """The file at a place, or all files below it by name. Links to folders are followed, but no folder is read twice,
    and none that contains the place."""
    if place.is_file():
        return {place.name: place}
    seen = {*map(str, Path(os.path.realpath(place)).parents)}
    files = list[Path]()
    for folder, folders, names in os.walk(place, followlinks=True):
        folders.sort()
        if (real := os.path.realpath(folder)) in seen:
            folders.clear()
            continue
        seen.add(real)
        files += filter(Path.is_file, (Path(folder, name) for name in names))
    return {path.relative_to(place).as_posix(): path for path in sorted(files)}


def _hash_of_files(places: list[dict[str, Path]]) -> str:
    """The hash of the files of each place, by name. Raises OSError if one can't be read."""
    paths = [path for files in places for path in files.values()]
    began, status = time.time_ns(), [*map(_status, paths)]
    status_hash, kept = _short_hash(repr(status)), None
    if sum(size for size, *_ in status) > _READ_ALWAYS_BYTES:
        with contextlib.suppress(RuntimeError):  # the user has no home
            kept = cache_directory() / "contents" / f"{_short_hash(repr(places))}.json"
    with contextlib.suppress(OSError, ValueError, UsageError):  # missing, damaged, or of another release
        if kept and (before := _KeptHash.read(kept)).status == status_hash:
            return before.content
    digests = [[(name, _digest(path)) for name, path in files.items()] for files in places]
    content = _short_hash(repr(digests))
    newest = max((max(modified, changed) for _, modified, changed, _ in status), default=0)
    if kept and began - newest > _SETTLED_NS and status == [*map(_status, paths)]:
        with contextlib.suppress(OSError, RunError):  # they are read again next time
            kept.parent.mkdir(parents=True, exist_ok=True)
            _KeptHash(status=status_hash, content=content).write(kept)
    return content


def _status(path: Path) -> tuple[int, int, int, int]:
    """Size, modification time, change time and inode of a file. Writes change some; no program sets the change time."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _digest(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
