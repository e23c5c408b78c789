"""The flags of a command, derived from its settings classes, and how --help describes them."""

import functools
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Annotated, NamedTuple, TypeVar

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from bert_jax.config.settings import Settings
from bert_jax.config.wording import Kind, first_sentence

CONFIG = "config"
"""The field of a command's arguments that holds the settings of CONFIG. Their flags don't contain this name."""
_POSITIONAL = "positional"
_WIDEST = 110
"""Maximum width of help in columns, also used if the width of the terminal is unknown."""
_MARGIN = 34
"""Column at which the description of a flag starts."""
_LONG = 60
"""Length in characters above which the short form cuts a sentence at its colon."""
Value = TypeVar("Value")
Positional = Annotated[Value, _POSITIONAL]
"""The type of an argument that is given by its place on the command line."""


class Flag(NamedTuple):
    """A setting as a flag of the command line, or a positional argument."""

    name: str
    """Dotted path with hyphens, such as "model.num-layers"."""
    kind: Kind
    default: object
    """Default value; PydanticUndefined for a required flag."""
    help: str
    """Help text: a paragraph on one line, and each item of a list on another."""
    group: str
    """Docstring of the settings class that has this setting; "" for flags of the command itself."""
    is_argument: bool
    """Whether the flag belongs to the command itself rather than to its CONFIG."""
    positional: bool = False

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")

    @property
    def required(self) -> bool:
        return self.default is PydanticUndefined

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value: --NAME turns it on, --no-NAME off."""
        return self.kind.base is bool and not self.kind.optional

    @property
    def negative(self) -> str:
        """The name that turns a switch off: "logging.no-tensorboard"."""
        before, dot, last = self.name.rpartition(".")
        return f"{before}{dot}no-{last}"

    @property
    def spelling(self) -> str:
        return self.name.upper() if self.positional else f"--{self.name}"

    @property
    def usage(self) -> str:
        """The flag with the placeholder of its value: `--batch-size N`; of a switch that is on: `--[no-]packed`."""
        if self.is_switch and self.default:
            before, dot, last = self.name.rpartition(".")
            return f"--{before}{dot}[no-]{last}"
        if self.positional:
            return f"{self.spelling} [{self.spelling} ...]" if self.kind.several else self.spelling
        return self.spelling if self.is_switch else f"{self.spelling} {self.kind.placeholder}"

    @property
    def default_in_words(self) -> str:
        """What help says of the default, after the description: " (default: yes)"; empty where there is none."""
        default = self.default
        if self.positional or self.is_switch and not default or default == "":
            return ""
        if self.required:
            return " (required)"
        if isinstance(default, bool):
            words = "yes" if default else "no"
        elif isinstance(default, tuple):
            words = " ".join(map(str, default)) or "empty"
        else:
            words = f"{default:g}" if isinstance(default, float) else str(default)
        return f" (default: {words})"


@functools.lru_cache(maxsize=16)  # a suite parses the same command line with hundreds of settings
def flags_of(arguments: type[Settings], config: Settings | None) -> list[Flag]:
    """The flags of a command's `arguments`, then those of CONFIG with the values of `config` as defaults."""
    is_argument = _walk(arguments, None, "", "", is_argument=True)
    return [*is_argument, *_walk(type(config), config, "", "", is_argument=False)] if config else list(is_argument)


def _walk(
    settings: type[BaseModel], values: BaseModel | None, prefix: str, group: str, is_argument: bool
) -> Iterator[Flag]:
    for name, field in settings.model_fields.items():
        value = field.get_default(call_default_factory=True) if values is None else getattr(values, name)
        path = f"{prefix}{name.replace('_', '-')}"
        groups = {path: value}
        if isinstance(value, tuple):
            groups = {f"{path}.{number}": each for number, each in enumerate(value)}
        if not any(isinstance(each, BaseModel) for each in groups.values()):
            positional = _POSITIONAL in field.metadata
            yield Flag(path, Kind.of_field(field), value, _paragraph(field.description), group, is_argument, positional)
        elif not (is_argument and path == CONFIG):
            for inner, each in groups.items():
                yield from _walk(type(each), each, f"{inner}.", _paragraph(type(each).__doc__), is_argument)


def _paragraph(text: str | None) -> str:
    """A docstring's text in which only items of a list, and text after the list, begin new lines."""
    lines = re.split(r"\n(?=- )|\n\n(?! )", text or "")
    return "\n".join(re.sub(r"\s+", " ", line).strip() for line in lines if line.strip())


def short_help(flags: Iterable[Flag]) -> str:
    """One or two lines for each flag: the first sentence of its help text, and its default."""
    entries = []
    for flag in flags:
        sentence = first_sentence(flag.help)
        before, colon, _ = sentence.partition(": ")
        entries.append(_entry(flag, f"{before}." if colon and len(sentence) > _LONG else sentence))
    return "".join(entries)


def full_help(flags: Iterable[Flag]) -> str:
    """All flags with their full help text, by group; those of the command itself come first."""
    text, described = "", set()
    in_order = sorted(flags, key=lambda flag: not flag.is_argument and "." in flag.name)
    for (name, about), members in groupby(in_order, _group):
        if name:
            text += "\n" + wrapped(name if about in described else f"{name}: {about}")
            described.add(about)
        text += "".join(_entry(flag, flag.help) for flag in members)
    return text


def _group(flag: Flag) -> tuple[str, str]:
    """The name of the group of settings that a flag belongs to, and its description."""
    return "" if flag.is_argument else flag.name.rpartition(".")[0], flag.group


def _entry(flag: Flag, text: str) -> str:
    described = f"{text}{flag.default_in_words}"
    lines = [line for part in described.split("\n") for line in _wrapped_part(part)]
    breakable = flag.usage.replace("|", "| ")  # the names of all families are longer than a line
    usage = textwrap.wrap(
        breakable, _width() - 2, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False
    )
    usage = [line.replace("| ", "|") for line in usage]
    if len(flag.usage) + 4 <= _MARGIN and lines:
        usage = [f"{usage[0]:{_MARGIN}}{lines.pop(0)}"]
    return "\n".join([*usage, *(" " * _MARGIN + line for line in lines)]) + "\n"


def _wrapped_part(text: str) -> list[str]:
    indent = "  " if text.startswith("- ") else ""
    width = _width() - _MARGIN
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def wrapped(text: str) -> str:
    """`text` in lines as wide as the terminal."""
    return textwrap.fill(text, _width()) + "\n"


def _width() -> int:
    return min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)
