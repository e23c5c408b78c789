"""Reads JSON files with limits on size and depth, so that a damaged or hostile file raises ValueError. Each file states
the version of its format. A release reads only the version that it writes.
"""

import contextlib
import io
import json
import math
import re
import tomllib
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, json_kind, quoted, shortened
from bert_jax.system.files import open_regular

JsonObject = dict[str, Any]
"""A parsed JSON object. The reader of a value checks its type."""
MOST_JSON_BYTES = 16_000_000
"""Default limit on the size of a file in bytes. Files that we write take kilobytes."""
_MOST_DEPTH = 64
"""Limit on the nesting of arrays and objects. Files that we write are nested four deep."""
_MOST_FOREIGN_BYTES = 32_000_000
"""Limit on the size of another program's file in bytes. The tokenizer.json of a BERT for 109 languages, with 501,153
pieces, has 13 MB."""
MOST_VALUES = 10_000_000
"""Default limit on the number of values in a text. Each value takes up to a hundred bytes of memory."""
_MOST_TOML_BYTES = 1_000_000
"""Limit on the size in bytes of a TOML file. People write these files by hand."""
_PART = r"""(?:[\w-]++|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{_MOST_DEPTH}}}")
"""A TOML key that is nested too deep. Python's parser needs memory in proportion to the square of a key's dots."""


class Shape(BaseModel):
    """The fields that are read from a JSON object, with types and bounds. Fields with other names are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)
    MOST_VALUES: ClassVar[int] = 200_000
    """Limit on the number of values: pydantic needs a kilobyte for each wrong value, and a file of 16 MB may hold eight
    million values."""


ShapeKind = TypeVar("ShapeKind", bound=Shape)


def parse_json(
    text: bytes | str,
    most_values: int = MOST_VALUES,
    surrogates: Literal["refuse", "keep"] = "refuse",
) -> Any:
    """Parses JSON; bytes are decoded as UTF-8.

    Raises ValueError with a one-line reason for invalid JSON, and for valid JSON that causes errors later: NaN and
    Infinity, numbers with thousands of digits, nesting deeper than _MOST_DEPTH, more than `most_values` values, and
    strings with lone surrogates, unless `surrogates` is "keep".
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
            surrogates = surrogates if "\\u" in text else "keep"  # only escapes spell surrogates
        # Each value is next to one of these signs. They are counted first, because parsing takes the memory.
        if len(text) > most_values and sum(map(text.count, "[{,")) > most_values:
            raise ValueError(f"it holds more than {most_values:,} values, which no such text needs")
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError(f"it is nested more than {_MOST_DEPTH} deep") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start:,} is not UTF-8") from None
    except json.JSONDecodeError as error:
        line = f"line {error.lineno:,}, " if "\n" in text.rstrip() else ""  # a line of JSON lines has its own number
        raise ValueError(f"it is no JSON from {line}column {error.colno:,} on: {error.msg}") from None
    except ValueError as error:
        if "digits" not in str(error):  # Python's limit on the digits of an integer
            raise
        raise ValueError("it has a number of thousands of digits") from None
    _check(value, surrogates)
    return value


def parse_object(text: bytes | str) -> JsonObject:
    """Parses a JSON object as `parse_json` does. Raises ValueError for any other value."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError(f"it holds {json_kind(value)} and should hold an object")
    return value


def read_object(path: Place, most_bytes: int = MOST_JSON_BYTES) -> JsonObject:
    """Reads the JSON object in a file. Raises OSError if it can't be read, ValueError if it is damaged."""
    return parse_object(read_bytes(path, most_bytes))


def read_toml(path: Place) -> JsonObject:
    """Reads a TOML file. Raises OSError if it can't be read, ValueError if it is damaged, too large or too deep."""
    text = read_bytes(path, _MOST_TOML_BYTES).decode()
    with contextlib.suppress(RecursionError):
        if not _DEEP_KEY.search(text):
            value = tomllib.loads(text)
            _check(value, "refuse")
            return value
    raise ValueError(f"it is nested more than {_MOST_DEPTH} deep")


def read_foreign(path: Place) -> object:
    """The JSON value in another program's file. Raises UsageError if the file is missing, damaged or too large."""
    try:
        return parse_json(read_bytes(path, _MOST_FOREIGN_BYTES))
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror}); give a folder that has it") from None
    except ValueError as error:
        raise UsageError(f"{path} is damaged ({error}); fetch it again") from None


def read_foreign_object(path: Place) -> JsonObject:
    """The JSON object in another program's file. Raises UsageError as `read_foreign` does, and for a value of another
    type."""
    value = read_foreign(path)
    if not isinstance(value, dict):
        raise UsageError(f"{path} is damaged (it holds {json_kind(value)} and should hold an object); fetch it again")
    return value


def read_foreign_shape(path: Place, shape: type[ShapeKind]) -> ShapeKind:
    """The JSON object in another program's file as a `shape`. Raises UsageError for the first field that is invalid."""
    try:
        return as_shape(read_foreign_object(path), shape)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None


def as_shape(value: JsonObject, shape: type[ShapeKind]) -> ShapeKind:
    """Validates `value` as a `shape`. Raises ValueError with the first field that doesn't fit, or if `value` holds
    more values than the shape's MOST_VALUES."""
    if _has_more_values(value, shape.MOST_VALUES):
        raise ValueError(f"it holds more than {shape.MOST_VALUES:,} values, which no such file needs")
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        first, *_ = error.errors()
        field = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise ValueError(f"it has no {field}") from None
        found_value, reason = quoted(first["input"]), first["msg"]
        raise ValueError(f"{field} is {found_value}: {reason[0].lower()}{reason[1:]}") from None


def read_bytes(path: Place, most_bytes: int, opened: Callable[[Place], io.BufferedReader] = open_regular) -> bytes:
    """Reads a whole file, which `opened` opens. Raises OSError if it can't be read, ValueError if it has more than
    `most_bytes`."""
    with opened(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it has more than {most_bytes:,} bytes, which no such file needs")
    return content


def _check(value: object, surrogates: str) -> None:
    """Raises ValueError for deep nesting and lone surrogates. It is a loop, since recursion fails on deep nesting."""
    level = [value]
    for _ in range(_MOST_DEPTH + 1):
        if not level:
            return
        below: list[object] = []
        for item in level:
            if isinstance(item, str):
                if surrogates == "refuse":
                    _check_text(item)
            elif isinstance(item, list):
                below += item
            elif isinstance(item, dict):
                below += item.keys()
                below += item.values()
        level = below
    raise ValueError(f"it is nested more than {_MOST_DEPTH} deep")


def _has_more_values(value: object, most: int) -> bool:
    """Whether `value` contains more than `most` values, itself included. Counting stops there."""
    level, count = [value], 0
    while level and count <= most:
        count += len(level)
        level = [
            child
            for item in level
            if isinstance(item, list | dict)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return count > most


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{quoted(text)} has half of a surrogate pair, which is no character") from None


def _finite(digits: str) -> float:
    """Raises ValueError for numbers like 1e999, which Python reads as infinity."""
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"it has the number {shortened(digits)}, which is beyond float64")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it has {name}, which is no JSON")


def check_format(path: Place, written: object, version: int) -> None:
    """Checks `written`, the version of the format that the file at `path` states. Raises ValueError if `written`
    isn't a version, and UsageError if it isn't `version`, the only one that this release reads."""
    if type(written) is not int or written < 1:
        raise ValueError(f"its format is {quoted(written)} and should be a number from 1")
    if written != version:
        raise UsageError(
            f"{path} has format {quoted(written)} and this release of bert_jax reads format {version}; use the release "
            "that wrote it"
        )
