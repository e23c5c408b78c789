"""Formats values and names from files for error messages: short and on one line, whatever a file contains."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from bert_jax.system.errors import quoted

_NAMES = 10


def listed(names: Iterable[Any]) -> str:
    """The first ten of `names`, quoted, followed by the number of the others."""
    names = list(names)
    first = ", ".join(map(quoted, islice(names, _NAMES))) or "nothing"
    return first + (f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else "")


def kind_of(value: Any) -> str:
    """The type of a JSON value, in JSON's terms."""
    if isinstance(value, dict):
        return f"an object of {listed(value)}"
    return {list: "an array", str: "a string", bool: "a truth value", type(None): "null"}.get(type(value), "a number")


def reason_of(error: BaseException) -> str:
    """The message of another library's exception: its first line, cut after 200 characters."""
    line = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
    return line if len(line) <= 200 else f"{line[:200]}..."
