"""The arguments of each command, and how a command line is parsed into them."""

import re
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Field, field_validator

from bert_jax.cli.command_line import parse_line, usage
from bert_jax.cli.config_files import load_config
from bert_jax.cli.flags import CONFIG, Flag, Positional, flags_of, in_typed_form
from bert_jax.cli.help import full_help, paragraph, short_help
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import Settings
from bert_jax.config.task import FileFormat
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import UsageError

PlaceArgument = Annotated[Place, BeforeValidator(lambda path: place_of(path) if isinstance(path, str) else path)]
"""A path on this machine or in a bucket (gs://)."""
RunArgument = Positional[PlaceArgument]
"""The first argument of commands that work on an existing run."""
_HELP = ("-h", "--help")
_HELP_ALL = "--help-all"
_CONFIG_TEXT = {
    RunConfig: "CONFIG is a name from bert-jax configs, a Python file that builds a `config`, or a run whose settings "
    "are used.",
    FinetuneConfig: "CONFIG is a name from bert-jax configs, or a Python file that builds a `config`.",
}
_NEEDED: dict[type, tuple[str, ...]] = {FinetuneConfig: ("init",)}
"""Settings of CONFIG that every run must set, although they have a default (None)."""


class Arguments(Settings):
    """The arguments of a command. The string under a field is its help text."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    config: Any = None
    """The settings of CONFIG, changed by the flags; None for a command without CONFIG."""


class RunArguments(Arguments):
    """Arguments of the commands that create a run or a part of it."""

    workdir: PlaceArgument
    """Directory of the run, which is created or continued; gs://BUCKET/FOLDER works too."""

    @field_validator("workdir")
    @classmethod
    def _no_file(cls, workdir: Place) -> Place:
        if workdir.is_file():
            raise ValueError(f"--workdir {workdir} is a file; give a folder, which is created if it is missing")
        return workdir


class TrainingArguments(RunArguments):
    """Arguments of the commands that train."""

    dry_run: bool = False
    """Print what the command would do, the state of the run and the memory of a step, and do nothing."""
    print_config: bool = False
    """Print all settings as a config file and do nothing else: bert-jax ... --print-config > mine.py."""
    overwrite: bool = False
    """Delete the run at --workdir and start from the beginning. Refused if --workdir holds files of anything else."""


class SavedArguments(Arguments):
    """Which parameters of a run the commands that use its model take."""

    step: Annotated[int, Field(ge=0)] | None = None
    """Saved step of the run to take. Without it: the newest undamaged one, of a fine-tuned run the one with the best
    score."""
    average: Annotated[int, Field(gt=0)] | None = None
    """Take the mean of the parameters of the last N saved steps of the run, up to --step or the newest, as far as they
    are of one phase. Without it: the parameters of one step."""


class InferenceArguments(SavedArguments):
    """The parameters, and the type in which they are computed with."""

    dtype: Literal["float32", "bfloat16"] | None = None
    """Type of the matrix products. Without it: float32 on a CPU, elsewhere the type that the model was trained in."""


class RowsArguments(Arguments):
    """The file format of the rows that a fine-tuned model reads."""

    format: FileFormat | None = None
    """File format of the rows. Without it: by the suffix of the file name, or else the format of the training rows."""
    columns: tuple[str, ...] | None = None
    """Names of the columns. Without it: those of the training rows, if the file has the same format. With no name after
    it: the first line of the file has the names."""
    separator: str | None = None
    """Separator of the columns of csv or tsv. Without it: that of the training rows, if the file has the same format,
    or else the one that its first line has."""


ROWS_NAMES = {f"task.{name}": f"--{name}" for name in RowsArguments.model_fields}
"""`Command.names` of a command with RowsArguments: messages about task.format name --format, and so on."""

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", 'Field name "json"')  # hides a method that pydantic itself calls deprecated

    class JsonArguments(Arguments):
        """Arguments of the commands that can print JSON instead of tables."""

        json: bool = False  # type: ignore[assignment]
        """Print JSON instead of tables."""


def dotted(groups: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The names of settings by group, as `model.num-layers`; "" is the group of those without one."""
    return tuple(f"{group}.{name}".removeprefix(".") for group, names in groups.items() for name in names)


class Command(NamedTuple):
    """A command of bert-jax, or a script with such a command line."""

    name: str
    arguments: type[Arguments]
    text: str
    """Describes the command in one or two sentences, for --help."""
    defaults: RunConfig | FinetuneConfig | None = None
    """A config of the class that the command takes as its first argument, CONFIG; --help shows its values as defaults.
    None for a command without CONFIG."""
    first: tuple[str, ...] = ()
    """Settings of CONFIG that --help shows: those that people change first. --help-all shows all."""
    names: Mapping[str, str] = MappingProxyType({})
    """Settings of a run that a flag of this command sets, as in {"data.source": "--data"}; messages name the flag."""
    reads: tuple[str, ...] = ()
    """Settings of CONFIG, or groups of settings, that the command reads; --help-all shows only these. Empty: all."""
    program: str = "bert-jax"
    """The program that has this command; of a script, "python"."""

    def flags(self, config: Settings | None = None) -> list[Flag]:
        """All flags of the command line, with the values of `config` (or of `defaults`) as defaults."""
        return flags_of(self.arguments, config or self.defaults)

    def used_flags(self, flags: list[Flag]) -> list[Flag]:
        """Those of `flags` that the command reads."""
        return [
            flag
            for flag in flags
            if not self.reads or flag.own or any(f"{flag.name}.".startswith(f"{name}.") for name in self.reads)
        ]

    @property
    def usage(self) -> str:
        """The usage line: the command, CONFIG and the required flags."""
        config = ["CONFIG"] if self.defaults else []
        flags, needed = self.flags(), _NEEDED.get(type(self.defaults), ())
        of_config = [flag for flag in flags if not flag.own and flag.name in needed]
        required = map(usage, [*of_config, *(flag for flag in flags if flag.required)])
        return " ".join([self.program, self.name, *config, *required])

    def help(self, config: Settings | None = None, everything: bool = False) -> str:
        """The text of --help, with the values of `config` as defaults; if `everything`, the text of --help-all."""
        flags = self.used_flags(self.flags(config))
        about = self.text if "\n" in self.text else paragraph(self.text)
        text = f"usage: {self.usage} [--NAME VALUE ...]\n\n{about}"
        if self.defaults:
            whose = "are those of this CONFIG" if config else "apply to settings that CONFIG doesn't set"
            text += paragraph(f"{_CONFIG_TEXT[type(self.defaults)]} The defaults below {whose}.")
        if everything or not self.first:
            return f"{text}\n{full_help(flags)}"
        short = [flag for flag in flags if flag.own] + [_named(flags, name) for name in self.first]
        more = f"\nAll {len(flags)} settings: bert-jax {self.name} --help-all\n"
        return f"{text}\n{short_help(flag for flag in short if flag)}{more}"

    def parse(self, words: list[str]) -> Any:
        """Parses a command line into an instance of `arguments`; its field `config` is CONFIG, changed by the flags.

        Raises UsageError with a one-line message for a wrong command line, and SystemExit after printing help.
        """
        config, rest, asks_help = None, words, {*_HELP, _HELP_ALL} & set(words)
        if self.defaults and words and not words[0].startswith("-"):
            kind: Any = type(self.defaults)
            config, rest = load_config(words[0], kind), words[1:]
        if asks_help:
            print(self.help(config, everything=_HELP_ALL in asks_help), end="")
            raise SystemExit(0)
        if self.defaults and config is None:
            raise UsageError(
                f"give a config first: {self.usage}; bert-jax configs lists the configs that come with bert-jax"
            )
        flags = self.flags(config)
        values = parse_line(rest, flags, f"{self.program} {self.name}")
        own = {flag.name.replace("-", "_"): values.pop(flag.name) for flag in flags if flag.own and flag.name in values}
        if config is not None:
            own[CONFIG] = config.set({name.replace("-", "_"): value for name, value in values.items()})
        return self.arguments(**own)

    def in_typed_form(self, message: str) -> str:
        """`message` with each setting written as the flag that sets it."""
        for setting, flag in self.names.items():
            message = re.sub(rf"(?<![\w.-])(--)?{re.escape(setting)}(?!\w)", flag, message)
        return in_typed_form(message, self.flags()) if self.defaults else message


def _named(flags: list[Flag], name: str) -> Flag | None:
    """The flag of this name; None if the config has no such entry, such as phases.1 of a config with one phase."""
    return next((flag for flag in flags if flag.name == name), None)
