"""Objects in a bucket of Cloud Storage: gs://BUCKET/NAME, by etils.epath and the gcsfs under it."""

import base64
import io
import logging
import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeAlias

import fsspec
from etils import epath

from bert_jax.system.errors import RunError, UsageError, install_extra

# One library for every gs:// path, whatever else is installed: epath would take TensorFlow where it finds it.
os.environ.setdefault("EPATH_USE_TF", "false")

Place: TypeAlias = Path | epath.Path
"""A path on this machine or in a bucket. Both have the same methods to join, compare, list and read text; for
everything else use the functions of this module, of files.py and of copies.py."""
TRANSFERS = 16
"""Objects copied in parallel, since a single transfer mostly waits for answers."""
SCHEME = "gs://"
_BLOCK_BYTES = 1 << 23
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(gs|s3|az|abfs|https?|memory):/")
"""The scheme of a URL. pathlib reduces gs:// to gs:/, so known schemes are found in that form too."""


class Stored(NamedTuple):
    """What a bucket stores about an object."""

    size: int
    """Size in bytes."""
    generation: str
    """Changes whenever the object is written."""
    crc32c: str
    """Checksum, in the form of `crc32c_of`."""


def place_of(path: str | os.PathLike) -> Place:
    """The place that `path` names: in a bucket if it begins with gs://, otherwise on this machine.

    A local path is returned absolute and without `..`; `~` is the user's home. Symbolic links are kept, except those
    before a `..`, whose parent is that of the link's target. Raises UsageError if the path is empty, has another
    scheme than gs://, the libraries for buckets aren't installed, or the bucket doesn't answer.
    """
    text = os.fspath(path)
    if not text:
        raise UsageError("a path is empty, as of a variable that isn't set; give a path (. for this folder)")
    scheme = scheme_of(text)
    if scheme is None:
        return _normal(Path(os.path.expanduser(text)).absolute())
    if scheme != "gs":
        raise UsageError(
            f"{text} has the scheme {scheme}://, which isn't supported; give a path on this machine, to which the "
            "files are copied first, or gs://BUCKET/NAME (the extra gcs)"
        )
    inside = PurePosixPath(text.removeprefix(SCHEME.removesuffix("//")).lstrip("/"))
    if not inside.parts or ".." in inside.parts:
        raise UsageError(f"{text} names no place in a bucket; give one like gs://BUCKET/FOLDER")
    _check_answers(inside.parts[0])
    return epath.Path(f"{SCHEME}{inside}")


def scheme_of(text: str) -> str | None:
    """The scheme of a URL, such as gs or s3; None for a path on this machine."""
    found = _SCHEME.match(text)
    return found and (found[1] or found[2]).lower()


def _normal(path: Path) -> Path:
    """An absolute path without `..`, which TensorStore refuses."""
    if ".." not in path.parts:
        return path
    last = len(path.parts) - path.parts[::-1].index("..")
    return Path(os.path.realpath(Path(*path.parts[:last])), *path.parts[last:])


def in_bucket(path: Place) -> bool:
    """Whether `path` is in a bucket."""
    return isinstance(path, epath.Path)


def objects(folder: epath.Path) -> dict[str, Stored]:
    """All objects below `folder`, by their path relative to it; "" for an object with the name of `folder`."""
    top = os.fspath(folder).removeprefix(SCHEME)
    found = _store().find(os.fspath(folder), detail=True)
    return {
        name.removeprefix(top).lstrip("/"): _stored(about)
        for name, about in found.items()
        if name == top or (name.startswith(f"{top}/") and not name.endswith("/"))
    }


def matching(pattern: str) -> dict[epath.Path, Stored]:
    """The objects whose names match `pattern`, sorted by name. * doesn't match a slash, ** does."""
    place_of(pattern.partition("*")[0])
    found = _store().glob(pattern, detail=True)
    return {
        epath.Path(SCHEME + name): _stored(about) for name, about in sorted(found.items()) if about["type"] == "file"
    }


def open_object(path: epath.Path) -> io.BufferedReader:
    """Opens the object at `path` for reading, with seek. Raises FileNotFoundError.

    Reading raises RunError if fewer bytes arrive than were requested.
    """
    return io.BufferedReader(_ObjectReader(path), _BLOCK_BYTES)


def download(path: epath.Path, stored: Stored, file: Path) -> None:
    """Writes the object at `path` to `file`. Raises RunError if its checksum isn't that of `stored`."""
    # Of a download gcsfs itself could compare MD5 alone, which objects composed of others don't have.
    _store().get_file(os.fspath(path), os.fspath(file), consistency="none")
    if crc32c_of(file) != stored.crc32c:
        raise RunError(f"{path} did not arrive as it is stored (its CRC32C differs); give the same command again")


def upload(file: Path, path: epath.Path) -> None:
    """Uploads `file` to `path`, atomically: readers see the old or the new object. gcsfs compares the MD5."""
    if file.stat().st_size < _BLOCK_BYTES:
        _store().pipe_file(os.fspath(path), file.read_bytes())  # read at once, because the file may be growing
    else:
        _store().put_file(os.fspath(file), os.fspath(path))


def upload_folder(folder: Path, target: epath.Path, last: str | None = None) -> None:
    """Uploads every file below `folder` to `target`, the file `last` after all others.

    Files that the bucket has already, unchanged, are skipped.
    """
    there = objects(target)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())

    def upload_if_changed(name: str) -> None:
        file = folder / name
        same = name in there and there[name].size == file.stat().st_size and there[name].crc32c == crc32c_of(file)
        if not same:
            upload(file, target / name)

    with ThreadPoolExecutor(TRANSFERS) as pool:
        for _ in pool.map(upload_if_changed, [name for name in names if name != last]):
            pass  # taking a result raises what its upload raised
    if last:
        upload_if_changed(last)


def delete(path: epath.Path) -> None:
    """Deletes the object at `path` and all objects below it, if there are any."""
    try:
        _store().rm(os.fspath(path), recursive=True)
    except FileNotFoundError:
        pass


def crc32c_of(file: Path) -> str:
    """The CRC32C of a file in the form of Cloud Storage: big-endian, base64."""
    import google_crc32c  # installed by the extra `gcs`

    total = google_crc32c.Checksum()
    with open(file, "rb") as read:
        while block := read.read(_BLOCK_BYTES):
            total.update(block)
    return base64.b64encode(total.digest()).decode()


class _ObjectReader(io.RawIOBase):
    """Reads an object by ranges, and checks their lengths: gcsfs' own file waits for ever after a short answer."""

    def __init__(self, path: epath.Path):
        self._path, self._position = os.fspath(path), 0
        self._size = _store().info(self._path)["size"]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer) -> int:
        wanted = min(len(buffer), self._size - self._position)
        if wanted <= 0:
            return 0
        data = _store().cat_file(self._path, start=self._position, end=self._position + wanted)
        if len(data) != wanted:
            raise RunError(
                f"{self._path}: {len(data):,} bytes came from byte {self._position:,} on where {wanted:,} were asked "
                "for; give the same command again"
            )
        buffer[:wanted] = data
        self._position += wanted
        return wanted


def _stored(about: dict[str, Any]) -> Stored:
    return Stored(int(about["size"]), about["generation"], about["crc32c"])


@cache
def _store() -> fsspec.AbstractFileSystem:
    try:
        import gcsfs  # noqa: F401
    except ImportError:
        raise UsageError(f"gs:// paths need gcsfs, which is not installed; {install_extra('gcs')}") from None
    for library in ("gcsfs", "fsspec"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # our own errors say in one line what failed
    # Also for the file systems of epath and Orbax. Cached listings would miss what tensorstore writes.
    fsspec.config.conf.setdefault("gs", {}).update(use_listings_cache=False, consistency="md5")
    return fsspec.filesystem("gs")


@cache
def _check_answers(bucket: str) -> None:
    try:
        _store().call("GET", "b/{}/o", bucket, maxResults=1, json_out=True)
    except UsageError:
        raise
    except Exception as error:  # gcsfs, Google's libraries and aiohttp have error classes of their own
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(
            f"{SCHEME}{bucket} can't be read ({reason}); check its name, and that you may use it: "
            "gcloud auth application-default login"
        ) from None
