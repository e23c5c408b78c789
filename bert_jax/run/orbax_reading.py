"""Reading checkpoints by Orbax: checks before it, and its errors as RunError."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tensorstore

from bert_jax.system.bucket import Place, in_bucket, is_trained_in, object_name
from bert_jax.system.copies import fetched
from bert_jax.system.errors import BertJaxError, RunError, UsageError, first_line
from bert_jax.system.files import absolute
from bert_jax.system.json_file import Shape, as_shape, parse_object, read_object

_METADATA = ("_METADATA", "_CHECKPOINT_METADATA", "_sharding")
"""Orbax' JSON files. They name no classes that would be imported, and nothing is pickled."""
_LATE = ("Event loop is closed", "reading array index", "tensorstore_spec")
"""Parts of asyncio's messages about arrays that are no longer wanted."""
_LONGEST_REASON = 300
"""Maximum characters of a library's error in a message."""


class _Array(Shape):
    """The fields of an array's .zarray that determine the memory needed to read it."""

    shape: list[int]
    chunks: list[int]
    filters: None = None


@contextlib.contextmanager
def by_orbax(path: Place) -> Iterator[Place]:
    """Yields the absolute place from which Orbax reads the checkpoint at `path`: a local copy if it can't read there.

    Turns every error in the block into a RunError of one line.
    """
    logging.getLogger("asyncio").addFilter(_is_of_others)
    if not isinstance(sys.unraisablehook, _Others):
        sys.unraisablehook = _Others(sys.unraisablehook)
    try:
        readable = absolute(path) if is_trained_in(path) else fetched(path)
        for file in (readable / name for name in _METADATA):
            if file.exists():  # Orbax reports those that it misses
                read_object(file)  # its own parser has no bounds
        _check_chunks(readable)
        yield readable
    except (BertJaxError, MemoryError):
        raise
    except Exception as error:  # ValueError, KeyError, OSError, and errors of C++ libraries
        if "RESOURCE_EXHAUSTED" in str(error):  # the devices' memory
            raise
        reason = first_line(error)[:_LONGEST_REASON]
        raise RunError(
            f"{path} can't be read, though its files have their checksums ({reason}); give the same command again, "
            "with the releases of JAX and Orbax that wrote it, or move it away to use the checkpoint before it"
        ) from error


def check_name(path: Place, written: bool = False) -> None:
    """Raises UsageError if the name of `path` keeps checkpoints from being read there or, if `written`, from being
    written.

    TensorStore takes a backslash for a slash. Orbax takes *, ? and [ for a pattern when it writes.
    """
    if sign := next((sign for sign in ("\\*?[" if written else "\\") if sign in os.fspath(path)), None):
        raise UsageError(f"{path}: checkpoints can't be kept in a folder with {sign} in its path; choose or rename it")


def _check_chunks(path: Place) -> None:
    """Raises ValueError if an array's chunks are larger than the array: TensorStore fills whole chunks in memory."""
    if in_bucket(path):
        bucket, _, folder = object_name(path).partition("/")
        base = {"driver": "gcs", "bucket": bucket, "path": f"{folder}/"}
    else:
        check_name(path)
        base = {"driver": "file", "path": f"{absolute(path)}/"}
    store = tensorstore.KvStore.open({"driver": "ocdbt", "base": base}).result()
    names = [name for name in store.list().result() if name.endswith(b"/.zarray")]
    if not names:
        raise ValueError("it has no arrays")
    for name, read in [(name, store.read(name)) for name in names]:
        array = as_shape(parse_object(read.result().value), _Array)
        if len(array.chunks) != len(array.shape) or any(map(int.__gt__, array.chunks, array.shape)):
            raise ValueError(f"{name.decode()!r} says chunks of {array.chunks} for a shape of {array.shape}")


def _is_of_others(record: logging.LogRecord) -> bool:
    """Whether a message of asyncio's log is not about an array that is no longer wanted."""
    return not any(words in record.getMessage() for words in _LATE)


class _Others:
    """A `sys.unraisablehook` that drops the errors of arrays that are no longer wanted.

    When one array can't be read, Orbax closes its event loop. TensorStore's threads still report the other arrays to
    it, at any time afterwards, and Python would print a traceback for each.
    """

    def __init__(self, hook: Callable[[Any], None]):
        self._hook = hook

    def __call__(self, unraisable: Any) -> None:
        if not any(words in str(unraisable.exc_value) for words in _LATE):
            self._hook(unraisable)
