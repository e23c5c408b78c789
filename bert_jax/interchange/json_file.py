"""JSON files of other programs."""

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bert_jax.system.errors import UsageError

_MOST_BYTES = 100_000_000
"""The largest are a tokenizer.json of a large vocabulary and an index of many files."""


class Shape(BaseModel):
    """What is read of a file: fields of other names don't matter here."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


ShapeKind = TypeVar("ShapeKind", bound=Shape)


def read_shape(path: Path, shape: type[ShapeKind]) -> ShapeKind:
    """What `path` holds of `shape`. Raises UsageError in one line for the first field that isn't as it should be."""
    try:
        return shape.model_validate(read_object(path))
    except ValidationError as error:
        first, *_ = error.errors()
        field = ".".join(map(str, first["loc"]))
        given = repr(first["input"])[:60]
        raise UsageError(f"{path}: {field} is {given}: {first['msg'][0].lower()}{first['msg'][1:]}") from None


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises UsageError where there is none, or an absurdly large one."""
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise UsageError(f"{path} has {size:,} bytes; {_MOST_BYTES:,} are more than any such file needs")
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror}); give a folder that has it") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON ({error}); fetch it again") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path} holds no JSON object; fetch it again")
    return value
