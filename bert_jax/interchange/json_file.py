"""JSON files of other programs: whatever is wrong with one is a UsageError that names it."""

from pathlib import Path
from typing import Any

from bert_jax.system import json_file
from bert_jax.system.errors import UsageError
from bert_jax.system.json_file import Shape, ShapeKind, as_shape

_MOST_BYTES = 32_000_000
"""The largest is the tokenizer.json of a large vocabulary: 501,153 pieces of a BERT for 109 languages take 13 MB."""

__all__ = ["Shape", "read_object", "read_shape", "shaped"]


def read_shape(path: Path, shape: type[ShapeKind]) -> ShapeKind:
    """What `path` holds of `shape`. Raises UsageError in one line for the first field that isn't as it should be."""
    return shaped(read_object(path), shape, path)


def shaped(value: dict[str, Any], shape: type[ShapeKind], path: Path) -> ShapeKind:
    """What `value`, read from `path`, holds of `shape`. Raises UsageError as `read_shape` does."""
    try:
        return as_shape(value, shape)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises UsageError where there is none, or an absurdly large one."""
    try:
        return json_file.read_object(path, _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror}); give a folder that has it") from None
    except ValueError as error:
        raise UsageError(f"{path} is damaged ({error}); fetch it again") from None
