"""Reads JSON files of other programs; any defect raises a UsageError that names the file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bert_jax.system import json_file
from bert_jax.system.errors import UsageError
from bert_jax.system.json_file import ShapeKind, as_shape

_MOST_BYTES = 32_000_000
"""Largest file that is read. The tokenizer.json of a BERT for 109 languages, with 501,153 pieces, has 13 MB."""


def read_shape(path: Path, shape: type[ShapeKind]) -> ShapeKind:
    """Reads `path` and checks the fields of `shape`. Raises UsageError, in one line, for the first invalid field."""
    try:
        return as_shape(read_object(path), shape)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None


def read_list(path: Path, shape: type[ShapeKind]) -> list[ShapeKind]:
    """Reads a list of objects from `path` as a `shape` each. Raises UsageError as `read_shape` does."""
    values = _read(path, lambda: json_file.parse_json(json_file.read_bytes(path, _MOST_BYTES)))
    try:
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            raise ValueError("it holds no list of objects")
        return [as_shape(value, shape) for value in values]
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None


def read_object(path: Path) -> dict[str, Any]:
    """Reads the JSON object in `path`. Raises UsageError if it is missing, damaged or implausibly large."""
    return _read(path, lambda: json_file.read_object(path, _MOST_BYTES))


def _read(path: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror}); give a folder that has it") from None
    except ValueError as error:
        raise UsageError(f"{path} is damaged ({error}); fetch it again") from None
