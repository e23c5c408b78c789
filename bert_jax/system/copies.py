"""Local copies of files in a bucket, for code that can only read or write local files."""

import atexit
import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bert_jax.system.bucket import FileState, Place, download, in_bucket, in_parallel, objects, upload, upload_folder
from bert_jax.system.errors import RunError, UsageError, disk_explained, first_line
from bert_jax.system.files import files_below, open_lock, replacing, write_json
from bert_jax.system.json_file import read_object
from bert_jax.system.progress import say, warn

PUBLISH_EVERY_S = 60.0
"""Seconds between two background uploads of a growing file."""


def cache_directory() -> Path:
    """`bert_jax` in the user's cache directory, for files that can be computed or downloaded again. Without a home
    directory, as in some containers, a folder that lasts as long as this process."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bert_jax"
    except RuntimeError:
        return _folder_of_process()


@functools.cache
def _folder_of_process() -> Path:
    say("there is no home directory, so compiled programs aren't kept; set HOME or XDG_CACHE_HOME to keep them")
    folder = tempfile.TemporaryDirectory(prefix="bert_jax-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def fetched(path: Place) -> Path:
    """`path` itself if it is on this machine, otherwise an up-to-date local copy of the file or folder.

    Objects unchanged since an earlier copy aren't downloaded again. Raises UsageError if nothing is at `path`,
    RunError if an object arrives damaged.
    """
    if not in_bucket(path):
        return path
    stored = objects(path)
    if not stored:
        raise UsageError(f"there is nothing at {path}; give a file or a folder that is there")
    copy = local_path(path)
    with disk_explained(copy), _locked(copy):
        copied = _copied_objects(copy)
        for name in files_below(copy).keys() - stored.keys():
            (copy / name).unlink()

        def download_if_changed(name: str) -> None:
            file, state = copy / name, stored[name]
            if copied.get(name) == state and file.is_file() and file.stat().st_size == state.size:
                return
            file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(file) as temporary:
                download(path / name, state, temporary)

        in_parallel(download_if_changed, stored)
        write_json(_list_of_objects(copy), stored)
    return copy


def local_path(path: Place) -> Path:
    """`path` itself if it is on this machine, otherwise its local copy, which `publish` uploads."""
    if not in_bucket(path):
        return path
    copy = cache_directory() / "buckets" / Path(*path.parts[1:])
    copy.parent.mkdir(parents=True, exist_ok=True)
    return copy


def local_log(path: Place) -> Path:
    """The local file to append to: `path` itself, or an up-to-date local copy that a Publisher uploads. If nothing is
    at `path`, deletes a local copy that another run left."""
    if in_bucket(path) and path.exists():
        return fetched(path)
    if in_bucket(path):
        local_path(path).unlink(missing_ok=True)
    return local_path(path)


def publish(path: Place, last: str | None = None) -> None:
    """Uploads the local copy to `path`, if that is in a bucket. Of a folder, the file `last` is uploaded after all
    others."""
    if not in_bucket(path):
        return
    copy = local_path(path)
    if copy.is_dir():
        upload_folder(copy, path, last)
        with _locked(copy):
            write_json(_list_of_objects(copy), objects(path))
    else:
        upload(copy, path)


class Publisher:
    """Uploads growing files in the background, at most once a minute, and at the end.

    A failed upload prints a warning and is repeated with the next one.
    """

    def __init__(self, *paths: Place, check_owner: Callable[[], None] = lambda: None):
        """`check_owner` raises RunError if the files belong to another process now; then nothing is uploaded."""
        self._paths, self._check_owner = [path for path in paths if in_bucket(path)], check_owner
        self._begun = time.monotonic()
        self._thread: threading.Thread | None = None

    def publish_if_due(self) -> None:
        """Starts an upload if the last one was a minute ago. Must be called after each write."""
        busy = self._thread and self._thread.is_alive()
        if self._paths and not busy and time.monotonic() - self._begun >= PUBLISH_EVERY_S:
            self._begun = time.monotonic()
            self._thread = threading.Thread(target=self._publish)
            self._thread.start()

    def publish(self) -> None:
        """Uploads the files, and returns when that is done."""
        if self._thread:
            self._thread.join()
        self._publish()

    def _publish(self) -> None:
        for path in self._paths:
            try:
                self._check_owner()
            except RunError:
                return  # the next checkpoint raises it
            try:
                if local_path(path).exists():
                    publish(path)
            except Exception as error:  # gcsfs, Google's libraries and aiohttp have error classes of their own
                warn(f"{path} could not be written ({first_line(error)}); it will be tried again")


def copy_into(source: Place, directory: Place) -> None:
    """Copies a file or a folder of files into `directory`, under its own name."""
    source, target = fetched(source), directory / source.name
    if in_bucket(target):
        (upload_folder if source.is_dir() else upload)(source, target)
    elif source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


@contextlib.contextmanager
def _locked(copy: Path) -> Iterator[None]:
    """Holds the lock of a copy, so that only one process of this machine updates it at a time."""
    with open_lock(copy.with_name(f".{copy.name}.lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _list_of_objects(copy: Path) -> Path:
    """The file beside a copy that lists the objects in it."""
    return copy.with_name(f".{copy.name}.objects.json")


def _copied_objects(copy: Path) -> dict[str, FileState]:
    try:
        return {name: FileState(*stored) for name, stored in read_object(_list_of_objects(copy)).items()}
    except (OSError, ValueError, TypeError):
        return {}
