"""--data.source @FILE: sources, languages and weights from a file, for corpora of many languages."""

import tomllib
from pathlib import Path

from bert_jax.config.settings import Settings, SettingsError
from bert_jax.system.errors import UsageError
from bert_jax.system.json_file import MOST_BYTES, read_bytes

_FLAG = "--data.source"


class ListedSource(Settings):
    """A [[source]] of the file."""

    source: str
    """As in data.source."""
    language: str = "en"
    """As in data.language."""
    weight: float | None = None
    """As in data.weights; of all sources or of none."""


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
                if "--data.language" in words or "--data.weights" in words:
                    raise UsageError(f"{_FLAG} {named} gives languages and weights too; leave those flags out")
                rest = words[number + 1 if equals else number + 2 :]
                return [*words[:number], *_flags(Path(named.removeprefix("@")).expanduser()), *rest]
    return words


def _flags(path: Path) -> list[str]:
    remedy = 'give a TOML file of [[source]] tables, each with source = "text:hi/*.txt.gz" and language = "hi"'
    try:
        value = tomllib.loads(read_bytes(path, MOST_BYTES).decode())
        listed = [ListedSource(**table) for table in value.pop("source", [])]
        if value or not listed:
            raise ValueError(f"it has {', '.join(value) or 'no [[source]]'}")
    except (OSError, ValueError, TypeError, AttributeError, SettingsError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "by_path", None) or error
        raise UsageError(f"{_FLAG} @{path} can't be read ({reason}); {remedy}") from None
    weights = [each.weight for each in listed if each.weight is not None]
    if weights and len(weights) < len(listed):
        raise UsageError(f"{_FLAG} @{path} gives {len(weights)} of {len(listed)} sources a weight; give all or none")
    flags = [_FLAG, *(each.source for each in listed), "--data.language", *(each.language for each in listed)]
    return [*flags, "--data.weights", *map(str, weights)] if weights else flags
