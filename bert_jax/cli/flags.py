"""The flags of a command, derived from its settings classes, for --help and shell completion."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic_core import PydanticUndefined

from bert_jax.config.settings import Settings
from bert_jax.config.wording import Kind

CONFIG = "config"
"""The field of a command's arguments that holds the settings of CONFIG. Their flags don't contain this name."""
_POSITIONAL = "positional"
_SENTENCE_END = re.compile(r"(?<=[a-z0-9)`\]]\.)(?<! al\.)\s+(?=[A-Z0-9`])")
"""The space between two sentences; `et al.` ends none."""
Value = TypeVar("Value")
Positional = Annotated[Value, _POSITIONAL]
"""The type of an argument that is given by its place on the command line."""


class Flag(NamedTuple):
    """A setting as a flag of the command line, or a positional argument."""

    name: str
    """Dotted path with hyphens, such as "model.num-layers"."""
    kind: Kind
    default: Any
    """Default value; PydanticUndefined for a required flag."""
    help: str
    """Help text: one paragraph without line breaks."""
    group: str
    """Docstring of the settings class that has this setting; "" for flags of the command itself."""
    of_command: bool
    """Whether the flag belongs to the command itself rather than to its CONFIG."""
    positional: bool = False

    @property
    def required(self) -> bool:
        """Whether the flag must be given."""
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
    def typed(self) -> str:
        """The flag as it is typed: --NAME, or NAME for a positional argument."""
        return self.name.upper() if self.positional else f"--{self.name}"

    @property
    def usage(self) -> str:
        """The flag with the placeholder of its value: `--batch-size N`; of a switch that is on: `--[no-]packed`."""
        if self.is_switch and self.default:
            before, dot, last = self.name.rpartition(".")
            return f"--{before}{dot}[no-]{last}"
        if self.positional:
            return f"{self.typed} [{self.typed} ...]" if self.kind.several else self.typed
        return self.typed if self.is_switch else f"{self.typed} {self.kind.placeholder}"


def flags_of(arguments: type[Settings], config: Settings | None) -> list[Flag]:
    """The flags of a command's `arguments`, then those of CONFIG with the values of `config` as defaults."""
    of_command = _walk(arguments, None, "", "", of_command=True)
    return [*of_command, *_walk(type(config), config, "", "", of_command=False)] if config else list(of_command)


def _walk(
    settings: type[Settings], values: Settings | None, prefix: str, group: str, of_command: bool
) -> Iterator[Flag]:
    for name, field in settings.model_fields.items():
        value = field.get_default(call_default_factory=True) if values is None else getattr(values, name)
        path = f"{prefix}{name.replace('_', '-')}"
        if of_command and path == CONFIG and isinstance(value, Settings):
            continue
        if isinstance(value, Settings):
            yield from _walk(type(value), value, f"{path}.", _paragraph(type(value).__doc__), of_command)
        elif isinstance(value, tuple) and value and isinstance(value[0], Settings):
            for number, each in enumerate(value):
                yield from _walk(type(each), each, f"{path}.{number}.", _paragraph(type(each).__doc__), of_command)
        else:
            positional = _POSITIONAL in field.metadata
            yield Flag(path, Kind.of_field(field), value, _paragraph(field.description), group, of_command, positional)


def first_sentence(text: str) -> str:
    """The first sentence of a help text, with its full stop."""
    return _SENTENCE_END.split(text)[0]


def _paragraph(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").strip()
