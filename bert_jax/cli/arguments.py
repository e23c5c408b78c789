"""What commands take, and how a command line becomes an instance of it."""

import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, get_type_hints

import tyro
from pydantic import ConfigDict, create_model, field_validator
from tyro.constructors import (
    MISSING_NONPROP,
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from bert_jax.cli.checks import check_line, usage
from bert_jax.cli.config_files import load_config
from bert_jax.cli.flags import CONFIG, Flag, flags_of
from bert_jax.cli.help import full_help, paragraph, short_help
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import Settings, SettingsError
from bert_jax.config.task import FileFormat
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import UsageError

PlaceArgument = Annotated[
    Place,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=lambda words: place_of(words[0]),
        is_instance=lambda value: isinstance(value, Place),
        str_from_instance=lambda value: [str(value)],
    ),
]
"""A path that may also be in a bucket."""
RunArgument = tyro.conf.Positional[PlaceArgument]
"""The run that a command is about, its first argument."""
_HELP = ("-h", "--help")
_HELP_ALL = "--help-all"
_CONFIG_TEXT = {
    RunConfig: "CONFIG is a name that bert-jax configs lists, a Python file that builds a `config`, or a run, whose "
    "settings are taken.",
    FinetuneConfig: "CONFIG is a name that bert-jax configs lists, or a Python file that builds a `config`.",
}
_NEEDED = {FinetuneConfig: ("init",)}
"""Settings of CONFIG that have a default which no run can be made with."""


class Arguments(Settings):
    """Arguments of a command; the string under a field is its help text."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


class RunArguments(Arguments):
    """Arguments of the commands that make a run or a part of it."""

    workdir: PlaceArgument
    """Directory of the run: made, or gone on with. gs://BUCKET/FOLDER too."""

    @field_validator("workdir")
    @classmethod
    def _no_file(cls, workdir: Place) -> Place:
        if workdir.is_file():
            raise ValueError(f"--workdir {workdir} is a file; name a folder, which is made if need be")
        return workdir


class TrainingArguments(RunArguments):
    """Arguments of the commands that train."""

    dry_run: bool = False
    """Tell what would be done, from what is there to the memory that a step takes, and do nothing."""
    print_config: bool = False
    """Print all settings as a config file, and do nothing: bert-jax ... --print-config > mine.py."""
    overwrite: bool = False
    """Delete the run at --workdir first, and begin anew. Anything there but a run's own files is refused."""


class RowsArguments(Arguments):
    """How rows are written that a fine-tuned model is to read."""

    format: FileFormat | None = None
    """How rows are written. Without it: as the end of the file's name says, or as the training rows were."""
    columns: tuple[str, ...] | None = None
    """Names of the rows' columns. Without it: those of the training rows, if the file is written alike. Without any
    name behind it: the file has a line of them."""
    separator: str | None = None
    """What is between columns of csv or tsv. Without it: as the training rows were, if the file is written alike, or
    what its first line has."""


ROWS_NAMES = {f"task.{name}": f"--{name}" for name in RowsArguments.model_fields}
"""For `Command.names` of a command with RowsArguments: task.format is its --format, and so on."""

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", 'Field name "json"')  # hides a method that pydantic itself calls deprecated

    class JsonArguments(Arguments):
        """Arguments of the commands that print for people or for programs."""

        json: bool = False
        """Print one JSON object instead of tables."""


class Command(NamedTuple):
    """A command of bert-jax."""

    name: str
    arguments: type[Arguments]
    text: str
    """What it does, in a sentence or two."""
    defaults: RunConfig | FinetuneConfig | None = None
    """Where its first argument is CONFIG: a config of the kind that it takes, whose values --help shows as defaults."""
    first: tuple[str, ...] = ()
    """Settings of CONFIG that --help shows, those that people change first. The others: --help-all."""
    names: Mapping[str, str] = MappingProxyType({})
    """Settings of a run that a flag of its own stands for: "data.source": "--data". Messages name that one."""
    reads: tuple[str, ...] = ()
    """Settings of CONFIG, or groups of them, that it reads, where these aren't all; --help-all shows no others."""

    def flags(self, config: Settings | None = None) -> list[Flag]:
        """All that can be given, with the values of `config` (or `defaults`) as defaults."""
        return flags_of(self.arguments, config or self.defaults)

    def shown(self, flags: list[Flag]) -> list[Flag]:
        """Those that the command reads."""
        return [
            flag
            for flag in flags
            if not self.reads or flag.own or any(f"{flag.name}.".startswith(f"{name}.") for name in self.reads)
        ]

    @property
    def usage(self) -> str:
        """The command line in short: name, CONFIG, and whatever must be given."""
        config = ["CONFIG"] if self.defaults else []
        flags, needed = self.flags(), _NEEDED.get(type(self.defaults), ())
        of_config = [flag for flag in flags if not flag.own and flag.name in needed]
        required = map(usage, [*of_config, *(flag for flag in flags if flag.required)])
        return " ".join(["bert-jax", self.name, *config, *required])

    def help(self, config: Settings | None = None, everything: bool = False) -> str:
        """What --help prints, with the values of `config` as defaults; `everything`: what --help-all does."""
        flags = self.shown(self.flags(config))
        text = f"usage: {self.usage} [--NAME VALUE ...]\n\n{paragraph(self.text)}"
        if self.defaults:
            whose = "those of this CONFIG" if config else "what holds where CONFIG says nothing"
            text += paragraph(f"{_CONFIG_TEXT[type(self.defaults)]} The defaults below are {whose}.")
        if everything or not self.first:
            return f"{text}\n{full_help(flags)}"
        short = [flag for flag in flags if flag.own] + [_named(flags, name) for name in self.first]
        more = f"\nAll {len(flags)} settings: bert-jax {self.name} --help-all\n"
        return f"{text}\n{short_help(flag for flag in short if flag)}{more}"

    def parse(self, words: list[str]) -> Any:
        """An instance of `arguments`; CONFIG's settings, changed by flags, are its field `config`.

        Raises UsageError in one line for what doesn't fit, SystemExit once help has been printed.
        """
        config, rest, asks_help = None, words, {*_HELP, _HELP_ALL} & set(words)
        if self.defaults and words and not words[0].startswith("-"):
            config, rest = load_config(words[0], type(self.defaults)), words[1:]
        if asks_help:
            print(self.help(config, everything=_HELP_ALL in asks_help), end="")
            raise SystemExit(0)
        if self.defaults and config is None:
            raise UsageError(f"give a config first: {self.usage}; bert-jax configs lists those that come with it")
        check_line(rest, self.flags(config), self.name)
        return self._built(config, rest)

    def _built(self, config: Settings | None, words: list[str]) -> Any:
        """An instance of `arguments` built by tyro from `words`, which `check_line` has accepted.

        Raises UsageError where settings don't fit each other.
        """
        shape = self.arguments
        if config is not None:
            settings = {CONFIG: (Annotated[type(config), tyro.conf.arg(name="")], config)}
            shape = create_model(shape.__name__, __base__=shape, **settings)
        return tyro.cli(shape, prog=f"bert-jax {self.name}", args=words, registry=_CONSTRUCTORS)


_CONSTRUCTORS = ConstructorRegistry()


@_CONSTRUCTORS.struct_rule
def _settings_rule(asked: StructTypeInfo) -> StructConstructorSpec | None:
    """Tells tyro the fields of a Settings class and how to build it; None for other types, which tyro knows."""
    if not (isinstance(asked.type, type) and issubclass(asked.type, Settings)):
        return None
    settings, hints = asked.type, get_type_hints(asked.type, include_extras=True)

    def build(**values: Any) -> Settings:
        try:
            return settings(**values)
        except SettingsError as error:
            raise UsageError(str(error)) from None  # a ValueError tyro would print itself, in a box

    fields = []
    for name, field in settings.model_fields.items():
        if isinstance(asked.default, Settings):
            default = getattr(asked.default, name)
        elif field.is_required():
            default = MISSING_NONPROP
        else:
            default = field.get_default(call_default_factory=True)
        fields.append(StructFieldSpec(name, hints[name], default, helptext=""))
    return StructConstructorSpec(build, tuple(fields))


def _named(flags: list[Flag], name: str) -> Flag | None:
    """The flag of this name; None where a config has no such entry, as one with a single phase."""
    return next((flag for flag in flags if flag.name == name), None)
