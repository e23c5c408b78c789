"""Found values and names as an error shows them: short, in one line, whatever a file holds."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

_NAMES = 10
_CHARACTERS = 40


def listed(names: Iterable[Any]) -> str:
    """The first ten of `names`, quoted, and how many more there are."""
    names = list(names)
    first = ", ".join(map(quoted, islice(names, _NAMES))) or "nothing"
    return first + (f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else "")


def quoted(value: Any) -> str:
    """`repr`, of a long text its beginning."""
    if isinstance(value, str) and len(value) > _CHARACTERS:
        return f"{value[:_CHARACTERS]!r}..."
    return repr(value)


def counted(number: int, noun: str) -> str:
    """A number of things: "1 column", "2,000 columns"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def kind_of(value: Any) -> str:
    """The type of a JSON value in JSON's words."""
    if isinstance(value, dict):
        return f"an object of {listed(value)}"
    return {list: "an array", str: "a string", bool: "a truth value", type(None): "null"}.get(type(value), "a number")


def reason_of(error: BaseException) -> str:
    """What another library's exception says, in one line."""
    line = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
    return line if len(line) <= 200 else f"{line[:200]}..."
