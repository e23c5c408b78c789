"""Parses a command line by the flags of a command; every error is one line."""

import difflib
import itertools
import re
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from bert_jax.cli.flags import Flag
from bert_jax.config.settings import Settings
from bert_jax.config.wording import value_text
from bert_jax.system.errors import UsageError, did_you_mean
from bert_jax.system.json_file import read_toml

_FLAG = re.compile(r"--?[a-zA-Z]")
"""Matches the beginning of a flag. -1 and - are values."""
_MOST_MEANT = 3
"""Settings that a message suggests at most, for a word that is no setting."""
_SOURCE = "--data.source"


def parse_line(words: Iterable[str], flags: list[Flag], command: str, aliases: Mapping[str, str]) -> dict[str, object]:
    """The values of the flags and positional arguments on a command line, by name; `command`: "bert-jax pretrain".
    `aliases` maps other names of flags to the flags' names.

    Raises UsageError for an unknown flag, a wrong value or a missing argument, whichever comes first. Whether settings
    fit each other is checked later, by the settings classes.
    """
    by_name = {f"--{flag.name}": flag for flag in flags if not flag.positional}
    by_name |= {f"--{flag.negative}": flag for flag in flags if flag.is_switch}
    known = by_name | {f"--{alias}": by_name[f"--{name}"] for alias, name in aliases.items()}
    missing = deque(flag for flag in flags if flag.positional)
    values: dict[str, object] = {}
    several: list[str] = []  # the words of a positional argument that takes several
    waiting, ended = deque(words), False  # `ended`: after "--" all words are values
    while waiting:
        word = waiting.popleft()
        if word == "--" and not ended:
            ended = True
        elif ended or not _FLAG.match(word):
            if not missing:
                raise UsageError(_stray(word, flags, command))
            if missing[0].kind.several:
                several.append(word)
                values[missing[0].name] = tuple(several)
            else:
                values[missing.popleft().name] = word
        else:
            name, equals, value = word.partition("=")
            name = name.replace("_", "-")
            flag = known.get(name)
            if flag is None:
                raise UsageError(_unknown(name, by_name, command))
            reserved = sum(each.name not in values for each in missing)
            given = [value] if equals else _words(flag, waiting, reserved)
            while equals and flag.kind.several and waiting and waiting[0].startswith(f"{name}="):
                given.append(waiting.popleft().partition("=")[2])  # --name=-a --name=b: values that begin as flags do
            values[flag.name] = _value(flag, name, given)
    _check_required([flag for flag in flags if flag.required and flag.name not in values], flags, command)
    return values


def _words(flag: Flag, waiting: deque[str], reserved: int) -> list[str]:
    """Takes the words of `flag`'s value from `waiting`; the last `reserved` ones are kept for positional arguments."""
    words: list[str] = []
    most = 0 if flag.is_switch else len(waiting) if flag.kind.several else 1
    while len(words) < most and waiting and not _FLAG.match(waiting[0]) and waiting[0] != "--":
        if flag.kind.several and len(waiting) <= reserved:
            break
        words.append(waiting.popleft())
    return words


def _value(flag: Flag, name: str, words: list[str]) -> object:
    """The value that `words` give to `flag`, which is written as `name`."""
    kind = flag.kind
    if flag.is_switch:
        if words:
            raise UsageError(f"{name}={words[0]}: it takes no value; --{flag.name} is yes and --{flag.negative} is no")
        return name == f"--{flag.name}"
    if len(words) < (kind.fewest if kind.several else 1):
        raise UsageError(f"{name} has no value; expected {kind.expected}")
    of_one = kind if len(words) == 1 else kind._replace(optional=False, words=())  # None can't be an item
    values = []
    for word in words:
        try:
            values.append(of_one.read(word))
        except (ValueError, OverflowError):  # OverflowError: an integer with thousands of digits
            word = " ".join(words) if kind.stands_alone(word) else word
            meant = did_you_mean(word, [*map(str, kind.choices), *kind.words])
            suggestion = f"; {meant}" if meant else ""
            raise UsageError(f"{name} {value_text(word)}: expected {kind.expected}{suggestion}") from None
    alone = not kind.several or (len(words) == 1 and kind.stands_alone(words[0]))
    return values[0] if alone else tuple(values)


def _check_required(missing: list[Flag], flags: list[Flag], command: str) -> None:
    if not missing:
        return
    named = " and ".join(flag.usage for flag in missing)
    if any(flag.positional for flag in missing):
        whole = " ".join(flag.spelling for flag in flags if flag.positional)
        raise UsageError(f"{command.split()[-1]} lacks {named}; give {command} {whole} (see --help)")
    raise UsageError(f"{command.split()[-1]} needs {named} as well (see --help)")


def _stray(word: str, flags: list[Flag], command: str) -> str:
    switches = [flag for flag in flags if flag.is_switch and word.lower() in ("true", "false", "yes", "no", "0", "1")]
    if switches:
        return f"{value_text(word)} stands by itself: a switch takes no value, it is --NAME or --no-NAME (see --help)"
    names = " ".join(flag.spelling for flag in flags if flag.positional)
    takes = f"{command} takes {names} and settings" if names else f"{command} takes settings"
    return f"{value_text(word)} stands where no value is expected: {takes} like --NAME VALUE; quote a value with blanks"


def _unknown(name: str, known: dict[str, Flag], command: str) -> str:
    if entry := re.match(r"(--.*?)\.(\d+)\.", name):
        entries = {each[len(entry[1]) + 1 :].partition(".")[0] for each in known if each.startswith(f"{entry[1]}.")}
        if entries and entry[2] not in entries:
            there = f"{entry[1]} has {len(entries)}, numbered from 0"
            return f"{name}: there is no entry {entry[2]}: {there}; a config file adds one"
    meant = _near(name, known) or _described(name, known)
    suggestion = f"did you mean {' or '.join(meant)}?" if meant else f"{command} --help-all lists all"
    return f"{value_text(name)} is no setting of {command}; {suggestion}"


def _near(name: str, known: Iterable[str]) -> list[str]:
    """Known flags spelled like the unknown flag `name`, most similar first."""
    known, last = list(known), _last(name)
    same = [each for each in known if _last(each) == last]
    similar = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    within = [each for each in known if len(last) > 3 and last in _last(each)]
    ends = {_last(each): each for each in known}
    close = [ends[each] for each in difflib.get_close_matches(last, ends, n=2, cutoff=0.7)]
    return list(dict.fromkeys(same or similar or within or close))[:_MOST_MEANT]


def _described(name: str, known: dict[str, Flag]) -> list[str]:
    """Flags whose help begins with the last word of the unknown flag `name`, as in "Width of every token's vector", or
    gives it as an abbreviation, as in "Learning rate (LR)". If `name` has a group, only flags of that group."""
    word = re.escape(_last(name).replace("-", " "))
    described = re.compile(rf"{word}\b|.*\({word}\)", re.IGNORECASE)
    group = name.rpartition(".")[0]
    found = [each for each, flag in known.items() if each.startswith(group) and described.match(flag.help)]
    return [each for each in found if not known[each].is_switch][:_MOST_MEANT]


def _last(name: str) -> str:
    return name.lstrip("-").rpartition(".")[2]


class ListedSource(Settings):
    """A [[source]] of a file of sources."""

    source: str
    """A source of text."""
    language: str = "en"
    """Its language."""
    weight: Annotated[float, Field(gt=0.0)] | None = None
    """Its weight. Give one to every source or to none."""


def with_listed_sources(words: list[str], positional: bool = False) -> list[str]:
    """The words of a command line, with --data.source @FILE replaced by the flags that the file stands for.

    If the command takes sources as `positional` words, @FILE is replaced by the file's sources, and --language and
    --weights are added at the end of the line.

    Raises UsageError if the file can't be read or is no such list.
    """
    for number, word in enumerate(words):
        flag, equals, value = word.partition("=")
        following = words[number + 1 : number + 2]
        named = word if positional else value if equals else "".join(following)
        if (positional or flag == _SOURCE) and named.startswith("@"):
            shown, prefix = (f"SOURCE {named}", "--") if positional else (f"{_SOURCE} {named}", "--data.")
            sources, flags = _listed(Path(named.removeprefix("@")).expanduser(), shown, prefix)
            rest = words[number + 1 if equals or positional else number + 2 :]
            others = {word.partition("=")[0] for word in (*words[:number], *rest)}
            if twice := sorted(others.intersection(flags)):
                raise UsageError(f"{shown} gives {' and '.join(twice)} too; leave them out")
            if positional:
                return [*words[:number], *sources, *rest, *itertools.chain(*flags.values())]
            return [*words[:number], _SOURCE, *sources, *itertools.chain(*flags.values()), *rest]
    return words


def _listed(path: Path, shown: str, prefix: str) -> tuple[list[str], dict[str, list[str]]]:
    """The sources of a file of [[source]] tables, and their languages and weights as the words of each flag, whose name
    begins with `prefix`. `shown` names the file in errors."""
    remedy = 'give a TOML file of [[source]] tables, each with source = "text:hi/*.txt.gz" and language = "hi"'
    listed = []
    try:
        value = read_toml(path)
        tables = value.pop("source", [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise ValueError("its source is no [[source]] table")
        for number, table in enumerate(tables, 1):
            try:
                listed.append(ListedSource(**table))
            except UsageError as error:
                raise ValueError(f"table {number}: {error}") from None
        if value or not listed:
            raise ValueError(f"it has {', '.join(value) or 'no [[source]]'}")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{shown} can't be read ({reason}); {remedy}") from None
    weights = [each.weight for each in listed if each.weight is not None]
    if weights and len(weights) < len(listed):
        raise UsageError(f"{shown} gives {len(weights)} of {len(listed)} sources a weight; give all or none")
    language, weight = f"{prefix}language", f"{prefix}weights"
    flags = {language: [language, *(each.language for each in listed)]}
    if weights:
        flags[weight] = [weight, *map(str, weights)]
    return [each.source for each in listed], flags
