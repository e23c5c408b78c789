"""The texts of --help and --help-all."""

import shutil
import textwrap
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from bert_jax.cli.flags import Flag, first_sentence

_WIDEST = 110
"""Maximum width of help in columns, also used if the width of the terminal is unknown."""
_MARGIN = 34
"""Column at which the description of a flag starts."""
_LONG = 60
"""Length in characters above which the short form cuts a sentence at its colon."""


def short_help(flags: Iterable[Flag]) -> str:
    """One or two lines for each flag: the first sentence of its help text, and its default."""
    return "".join(_entry(flag, _beginning(flag.help)) for flag in flags)


def full_help(flags: Iterable[Flag]) -> str:
    """All flags with their full help text, by group."""
    text, described = "", set()
    for group, members in groupby(
        sorted(flags, key=lambda flag: _group(flag) != ""), key=lambda flag: (_group(flag), flag.group)
    ):
        name, about = group
        if name:
            heading = name if about in described else f"{name}: {about}"
            text += "\n" + textwrap.fill(heading, _width()) + "\n"
            described.add(about)
        text += "".join(_entry(flag, flag.help) for flag in members)
    return text


def paragraph(text: str) -> str:
    """`text` wrapped to the width of help."""
    return textwrap.fill(text, _width()) + "\n"


def default_in_words(value: Any) -> str:
    """A default value as help shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "empty"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _group(flag: Flag) -> str:
    return "" if flag.of_command else flag.name.rpartition(".")[0]


def _entry(flag: Flag, text: str) -> str:
    if flag.positional or flag.is_switch and not flag.default:
        default = ""
    elif flag.required:
        default = " (required)"
    else:
        default = f" (default: {default_in_words(flag.default)})"
    name = flag.usage
    lines = textwrap.wrap(text + default, _width() - _MARGIN, break_long_words=False, break_on_hyphens=False)
    if len(name) + 4 > _MARGIN:
        return "\n".join([f"  {name}", *(" " * _MARGIN + line for line in lines)]) + "\n"
    first, *rest = lines or [""]
    return "\n".join([f"  {name:{_MARGIN - 2}}{first}", *(" " * _MARGIN + line for line in rest)]) + "\n"


def _beginning(text: str) -> str:
    first = first_sentence(text)
    before, colon, _ = first.partition(": ")
    return f"{before}." if colon and len(first) > _LONG else first


def _width() -> int:
    return min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)
