"""--data.source @FILE: sources, languages and weights from a file, for corpora of many languages."""

import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from bert_jax.config.settings import Settings, SettingsError
from bert_jax.system.errors import UsageError, with_names
from bert_jax.system.json_file import MOST_BYTES, read_bytes

_FLAG = "--data.source"


class ListedSource(Settings):
    """A [[source]] of the file."""

    source: str
    """A source of text."""
    language: str = "en"
    """Its language."""
    weight: Annotated[float, Field(gt=0.0)] | None = None
    """Its weight; of all sources or of none."""


def with_listed_sources(words: list[str]) -> list[str]:
    """The words of a command line with the flags that a file stands for, in place of --data.source @FILE.

    Raises UsageError if the file can't be read or is no such list.
    """
    for number, word in enumerate(words):
        flag, equals, value = word.partition("=")
        following = words[number + 1 : number + 2]
        if flag == _FLAG and (equals or following):
            named = value if equals else following[0]
            if named.startswith("@"):
                listed = _flags(Path(named.removeprefix("@")).expanduser())
                rest = words[number + 1 if equals else number + 2 :]
                typed = {word.partition("=")[0] for word in (*words[:number], *rest)}
                if twice := sorted(flag for flag in typed.intersection(listed) if flag.startswith("--")):
                    raise UsageError(f"{_FLAG} {named} gives {' and '.join(twice)} too; leave them out")
                return [*words[:number], *listed, *rest]
    return words


def _listed(number: int, table: dict[str, Any]) -> ListedSource:
    try:
        return ListedSource(**table)
    except SettingsError as error:
        raise ValueError(f"table {number}: {with_names(error.message)}") from None


def _flags(path: Path) -> list[str]:
    remedy = 'give a TOML file of [[source]] tables, each with source = "text:hi/*.txt.gz" and language = "hi"'
    try:
        value = tomllib.loads(read_bytes(path, MOST_BYTES).decode())
        tables = value.pop("source", [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise ValueError("its source is no [[source]] table")
        listed = [_listed(number, table) for number, table in enumerate(tables, 1)]
        if value or not listed:
            raise ValueError(f"it has {', '.join(value) or 'no [[source]]'}")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{_FLAG} @{path} can't be read ({reason}); {remedy}") from None
    weights = [each.weight for each in listed if each.weight is not None]
    if weights and len(weights) < len(listed):
        raise UsageError(f"{_FLAG} @{path} gives {len(weights)} of {len(listed)} sources a weight; give all or none")
    flags = [_FLAG, *(each.source for each in listed), "--data.language", *(each.language for each in listed)]
    return [*flags, "--data.weights", *map(str, weights)] if weights else flags
