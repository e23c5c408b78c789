"""Reads and writes objects in a bucket of Cloud Storage, S3 or Azure (SCHEME://BUCKET/NAME), by etils.epath on top of
fsspec."""

import base64
import importlib
import io
import logging
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeAlias, cast

import fsspec
from etils import epath
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from bert_jax.system.errors import BertJaxError, RunError, UsageError, command_line, first_line, install_extra, quoted

# All gs:// paths use fsspec, because epath would use TensorFlow if that is installed.
os.environ.setdefault("EPATH_USE_TF", "false")

Place: TypeAlias = Path | epath.Path
"""A path on this machine or in a bucket. Both classes have the same methods to join, compare, list and read text; for
everything else use the functions of this module, of files.py and of copies.py."""
_TRANSFERS = 16
"""Number of objects copied in parallel, since a single transfer mostly waits for answers."""
_BLOCK_BYTES = 1 << 23
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(gs|s3|az|abfs|https?):/")
"""The scheme of a URL. pathlib reduces gs:// to gs:/, so the pattern also matches known schemes in that form."""


class _Service(NamedTuple):
    """A service that stores objects; a library of fsspec reads and writes them."""

    library: str
    extra: str
    """Name of the extra that installs the library."""
    probe: Callable[[Any, str], object]
    """Raises an error if the file system can't read the bucket."""
    login: str
    """How a user gives credentials."""


_SERVICES = {
    "gs": _Service(
        "gcsfs",
        "gcs",
        lambda store, bucket: store.call("GET", "b/{}/o", bucket, maxResults=1, json_out=True),
        "gcloud auth application-default login",
    ),
    "s3": _Service(
        "s3fs",
        "s3",
        lambda store, bucket: store.call_s3("list_objects_v2", Bucket=bucket, MaxKeys=1),
        "aws configure, and AWS_ENDPOINT_URL for a server of your own",
    ),
    "az": _Service(
        "adlfs",
        "azure",
        lambda store, bucket: store.info(bucket),
        "set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and a key",
    ),
}
"""The services by the scheme of their URLs."""
_OTHER_NAMES = {"abfs": "az", "s3a": "s3"}
_LATER = "give the same command again later"
_LIBRARIES = {"gcsfs", "s3fs", "adlfs", "aiohttp", "aiobotocore", "botocore", "azure", "requests", "urllib3", "google"}
"""The libraries by which services are reached; many of their errors are of no class that Python has."""


class BucketUnreachable(RunError):
    """A bucket doesn't answer, or with an error that may pass. Exit code 75, EX_TEMPFAIL: launchers restart runs."""

    exit_code = 75


class FileState(NamedTuple):
    """Size and revision of a file or an object, which show a later change."""

    size: int
    """Size in bytes."""
    revision: str
    """A value that changes with each write. For a file, it is the modification time in nanoseconds; for an object, a
    generation (Cloud Storage), a version or an ETag."""
    crc32c: str | None = None
    """Checksum of an object, in the form of `crc32c_of`; None for files and from services that store none."""


_LONGEST_NAME = 255
"""Bytes of the longest name of a file or folder."""


def place_of(path: str | os.PathLike) -> Place:
    """The place that `path` names: in a bucket if it begins with gs://, s3:// or az://, otherwise on this machine.

    A local path is returned absolute and without `..`; `~` is the user's home. Symbolic links are kept, except a link
    before a `..`, which is resolved first. Raises UsageError if the path is empty, isn't UTF-8 or
    has another scheme, if the library for the scheme isn't installed, or if the bucket doesn't answer.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"{quoted(path)} is no path; give one as a text")
    text = os.fspath(path)
    if not text:
        raise UsageError("a path is empty, as of a variable that isn't set; give a path (. for this folder)")
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise UsageError(f"{text!r} is a path whose name isn't UTF-8; rename the file or folder")
    scheme = scheme_of(text)
    if scheme is None:
        if any(len(part.encode()) > _LONGEST_NAME for part in text.split("/")):
            raise UsageError(f"{quoted(text)} is too long for a file's name; give a shorter one, or texts in a list")
        return _normal(Path(os.path.expanduser(text)).absolute())
    if scheme in ("http", "https"):
        raise UsageError(f"{text} is a web address, which isn't read; download it: {command_line('curl', '-LO', text)}")
    if scheme not in _SERVICES:
        known = ", ".join(f"{known}://" for known in _SERVICES)
        raise UsageError(
            f"{text} has the scheme {scheme}://, which isn't supported; give a path on this machine, to which the "
            f"files are copied first, or one of {known}"
        )
    inside = PurePosixPath(text.partition(":")[2].lstrip("/"))
    if not inside.parts or ".." in inside.parts:
        raise UsageError(f"{text} names no place in a bucket; give one like {scheme}://BUCKET/FOLDER")
    _check_answers(scheme, inside.parts[0])
    return epath.Path(f"{scheme}://{inside}")


def scheme_of(text: str) -> str | None:
    """The scheme of a URL, such as gs or s3; None for a path on this machine."""
    found = _SCHEME.match(text)
    scheme = found and (found[1] or found[2]).lower()
    return _OTHER_NAMES.get(scheme, scheme) if scheme else None


def _normal(path: Path) -> Path:
    """An absolute path without `..`, which TensorStore refuses."""
    if ".." not in path.parts:
        return path
    last = len(path.parts) - path.parts[::-1].index("..")
    return Path(os.path.realpath(Path(*path.parts[:last])), *path.parts[last:])


def in_bucket(path: Place) -> bool:
    """Whether `path` is in a bucket."""
    return isinstance(path, epath.Path)


def is_trained_in(path: Place) -> bool:
    """Whether Orbax reads and writes checkpoints at `path`: on this machine, or in Cloud Storage."""
    return not in_bucket(path) or path.parts[1] == "gs"


def object_name(path: epath.Path) -> str:
    """BUCKET/NAME of a place in a bucket."""
    return "/".join(path.parts[2:])


def objects(folder: epath.Path) -> dict[str, FileState]:
    """All objects below `folder`, by their path relative to it; "" for an object with the name of `folder`.

    Raises UsageError for a name that is no path below `folder` on this machine, such as a/../../b.
    """
    top = object_name(folder)
    store = _store_of(folder)
    found = store.find(os.fspath(folder), detail=True)
    if isinstance(found, list):  # adlfs returns a list if `folder` is an object
        found = {name: store.info(name) for name in found}
    states = {
        name.removeprefix(f"{top}/") if name != top else "": _state_of(about)
        for name, about in found.items()
        if name == top or (name.startswith(f"{top}/") and not name.endswith("/"))
    }
    for name in states:
        if name and ("\0" in name or {"", ".", ".."} & {*name.split("/")}):
            raise UsageError(f"{folder}: the object {quoted(name)} has no name of a file below it; rename or delete it")
    return states


def matching(pattern: str) -> dict[epath.Path, FileState]:
    """The objects whose names match `pattern`, sorted by name. * doesn't match a slash, ** does."""
    root = place_of(pattern.partition("*")[0])
    scheme = root.parts[1]
    found = _store_of(root).glob(f"{scheme}:{pattern.partition(':')[2]}", detail=True)
    return {
        epath.Path(f"{scheme}://{name}"): _state_of(about)
        for name, about in sorted(found.items())
        if about["type"] == "file"
    }


def download(path: epath.Path, stored: FileState, file: Path) -> None:
    """Writes the object at `path` to `file`. Raises RunError if its size or checksum isn't that of `stored`."""
    # gcsfs could compare only the MD5 of a download, which objects composed of others lack.
    options = {"consistency": "none"} if path.parts[1] == "gs" else {}
    _store_of(path).get_file(os.fspath(path), os.fspath(file), **options)
    if file.stat().st_size != stored.size or (stored.crc32c and crc32c_of(file) != stored.crc32c):
        raise RunError(f"{path} did not arrive as it is stored (size or CRC32C differs); give the same command again")


def upload(file: Path, path: epath.Path) -> None:
    """Uploads `file` to `path`, atomically: readers see the old or the new object. gcsfs compares the MD5."""
    if file.stat().st_size < _BLOCK_BYTES:
        _store_of(path).pipe_file(os.fspath(path), file.read_bytes())  # read at once, because the file may be growing
    else:
        _store_of(path).put_file(os.fspath(file), os.fspath(path))


def upload_folder(folder: Path, target: epath.Path, last: str | None = None) -> None:
    """Uploads every file below `folder` to `target`, the file `last` after all others. Files that the bucket has
    already, with the same checksum, are skipped."""
    there = objects(target)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())

    def upload_if_changed(name: str) -> None:
        file = folder / name
        checksum = there[name].crc32c if name in there else None
        same = checksum and there[name].size == file.stat().st_size and checksum == crc32c_of(file)
        if not same:
            upload(file, target / name)

    in_parallel(upload_if_changed, [name for name in names if name != last])
    if last:
        upload_if_changed(last)


def in_parallel(transfer: Callable[[str], None], names: Iterable[str]) -> None:
    """Calls `transfer` for each name, with _TRANSFERS calls at a time. Raises the first error."""
    with ThreadPoolExecutor(_TRANSFERS) as pool:
        list(pool.map(transfer, names))


def delete_objects(path: epath.Path) -> None:
    """Deletes the object at `path` and all objects below it. Raises FileNotFoundError if there are none."""
    _store_of(path).rm(os.fspath(path), recursive=True)


def crc32c_of(file: Path) -> str:
    """The CRC32C of a file in the form of Cloud Storage: big-endian, base64."""
    import google_crc32c  # installed by the extra `gcs`

    total = google_crc32c.Checksum()
    with open(file, "rb") as read:
        while block := read.read(_BLOCK_BYTES):
            total.update(block)
    return base64.b64encode(total.digest()).decode()


def _state_of(about: dict[str, Any]) -> FileState:
    """The size and revision in `about`, an object's description by gcsfs, s3fs or adlfs. These libraries name the
    revision differently."""
    revision = next(about[name] for name in ("generation", "VersionId", "ETag", "etag") if about.get(name))
    return FileState(int(about["size"]), str(revision).strip('"'), about.get("crc32c"))


class _ObjectFile(AbstractBufferedFile):
    """Reads an object by ranges, and checks their lengths: gcsfs' own file waits for ever after a short answer."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        end = min(end, self.size)
        data = super()._fetch_range(start, end)
        if len(data) != end - start:
            raise RunError(
                f"{self.path}: {len(data):,} bytes came from byte {start:,} on where {end - start:,} were asked for; "
                "give the same command again"
            )
        return data


def open_object(path: epath.Path) -> io.BufferedReader:
    """Opens the object at `path` for reading, with seek. Raises FileNotFoundError. Reading raises RunError if fewer
    bytes arrive than were requested."""
    raw = _ObjectFile(_store_of(path), os.fspath(path), cache_type="none")
    return io.BufferedReader(cast(io.RawIOBase, raw), _BLOCK_BYTES)


def _store_of(path: epath.Path) -> AbstractFileSystem:
    """fsspec's file system of the service in which `path` is."""
    return _store(path.parts[1])


@cache
def _store(scheme: str) -> AbstractFileSystem:
    service = _SERVICES[scheme]
    try:
        importlib.import_module(service.library)
    except ImportError:
        raise UsageError(
            f"{scheme}:// paths need {service.library}, which is not installed; {install_extra(service.extra)}"
        ) from None
    for library in (service.library, "fsspec"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # a BertJaxError already says in one line what failed
    # This also applies to the file systems of epath and Orbax. Cached listings would miss files that others write, such
    # as TensorStore.
    options = {"use_listings_cache": False} | ({"consistency": "md5"} if scheme == "gs" else {})
    fsspec.config.conf.setdefault(scheme, {}).update(options)
    return fsspec.filesystem(scheme)


@cache
def _check_answers(scheme: str, bucket: str) -> None:
    try:
        _SERVICES[scheme].probe(_store(scheme), bucket)
    except UsageError:
        raise
    except Exception as error:  # gcsfs, s3fs, adlfs and the libraries below them raise many classes of errors
        if not _is_refusal(error):
            raise BucketUnreachable(f"{scheme}://{bucket} can't be read now ({first_line(error)}); {_LATER}") from None
        raise UsageError(
            f"{scheme}://{bucket} can't be read ({first_line(error)}); check its name, and that you may use it: "
            f"{_SERVICES[scheme].login}"
        ) from None


def _is_refusal(error: BaseException) -> bool:
    """Whether a service refuses a request for good: there is no such bucket, or the user may not use it."""
    response = getattr(error, "response", None)
    about = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}  # botocore's
    codes = (getattr(error, name, None) for name in ("code", "status", "status_code"))
    if {*map(str, codes), str(about.get("HTTPStatusCode"))} & {"401", "403", "404"}:
        return True
    is_forbidden = str(error).startswith("Forbidden") or "Credentials" in type(error).__name__  # gcsfs' error for 403
    return is_forbidden or isinstance(error, FileNotFoundError | PermissionError | ValueError)


def bucket_failure(error: BaseException) -> BertJaxError | None:
    """The error of a library by which buckets are reached, as a line; None for any other error."""
    if type(error).__module__.partition(".")[0] not in _LIBRARIES:
        return None
    if _is_refusal(error):
        return UsageError(f"a bucket refuses a request ({first_line(error)}); check its name, and that you may use it")
    return BucketUnreachable(f"a bucket can't be reached ({first_line(error)}); {_LATER}")
