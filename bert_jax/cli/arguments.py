"""Command lines to settings: a Python config file with flags over it, or a command's own few arguments."""

import contextlib
import io
import re
import runpy
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from typing import Annotated, TypeVar

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import SettingsError
from bert_jax.config.task import FileFormat
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.copies import fetched
from bert_jax.system.errors import UsageError

Arguments = TypeVar("Arguments")
Config = TypeVar("Config", RunConfig, FinetuneConfig)
ConfigKind = TypeVar("ConfigKind", bound="ConfigArguments")
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
RunArgument = Annotated[tyro.conf.Positional[PlaceArgument], tyro.conf.arg(metavar="RUN")]
"""The run that a command is about, its first argument."""
_FORMAT = "None: as the end of the file's name says, or as the training rows were."
_COLUMNS = (
    "None: those of the training rows, if the file is written alike. Without any name: the file has a line of them."
)

_SEPARATOR = "None: as the training rows were, if the file is written alike, or what its first line has."


def load_config(path: Place, kind: type[Config] = RunConfig) -> Config:
    """The `config` that the Python file at `path` builds, or that the run there has, where `kind` is RunConfig.

    Raises UsageError in one line, whatever is wrong with it.
    """
    example = "configs/demo.py" if kind is RunConfig else "configs/finetune/sst2.py"
    if path.is_dir() and kind is RunConfig:
        from bert_jax.training.run_directory import (
            read_pretraining_config,  # which needs Orbax; a config file doesn't
        )

        return read_pretraining_config(path)
    if not path.is_file():
        raise UsageError(f"no config file at {path}; give one like {example}")
    try:
        config = runpy.run_path(str(fetched(path))).get("config")
    except SettingsError as error:
        raise UsageError(f"{path}: {error}") from None
    except Exception as error:
        raise UsageError(f"{path}: {type(error).__name__}: {error}") from None
    if not isinstance(config, kind):
        raise UsageError(f"{path} builds no {kind.__name__} named `config`; give one like {example}")
    return config


@dataclass(frozen=True, kw_only=True)
class ConfigArguments:
    """Arguments of a command that takes CONFIG.py. A command with flags of its own adds them in a subclass."""

    config: RunConfig | FinetuneConfig


@dataclass(frozen=True, kw_only=True)
class RunArguments(ConfigArguments):
    """Arguments of the commands that make a run or a part of it."""

    workdir: Annotated[
        PlaceArgument, tyro.conf.arg(help="Directory of the run: made, or gone on with; gs://BUCKET/FOLDER too.")
    ]


@dataclass(frozen=True, kw_only=True)
class RowsArguments:
    """How rows are written that a fine-tuned model is to read."""

    format: Annotated[FileFormat | None, tyro.conf.arg(help=f"How rows are written. {_FORMAT}")] = None
    columns: Annotated[tuple[str, ...] | None, tyro.conf.arg(help=f"Names of the rows' columns. {_COLUMNS}")] = None
    separator: Annotated[str | None, tyro.conf.arg(help=f"What is between columns of csv or tsv. {_SEPARATOR}")] = None


def parse_config(
    shape: type[ConfigKind],
    command: str,
    help_text: str,
    arguments: list[str],
    defaults: RunConfig | FinetuneConfig = RunConfig(),
) -> ConfigKind:
    """An instance of `shape` from `CONFIG.py [--own VALUE ...] [--any.field VALUE ...]`.

    The file builds a config like `defaults`, which --help shows where none is given. Raises UsageError.
    """
    if arguments and not arguments[0].startswith("-"):
        default, flags = load_config(place_of(arguments[0]), type(defaults)), arguments[1:]
    elif {"-h", "--help"} & set(arguments):
        default, flags = defaults, arguments
    else:
        names = [own.name for own in fields(shape) if own.name != "config" and own.default is MISSING]
        required = "".join(f" --{name.replace('_', '-')} {name.upper()}" for name in names)
        raise UsageError(f"give a config file first: bert-jax {command} CONFIG.py{required}")
    settings = ("config", Annotated[type(defaults), tyro.conf.arg(name="")], field(default=default))
    shape = make_dataclass(shape.__name__, [settings], bases=(shape,), frozen=True, kw_only=True)
    return parse(shape, f"{command} CONFIG.py", f"{help_text} Defaults below are those of the config file.", flags)


def parse(shape: type[Arguments], command: str, help_text: str, arguments: list[str]) -> Arguments:
    """An instance of the dataclass `shape`. Raises UsageError in one line for what doesn't fit it."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(shape, prog=f"bert-jax {command}", description=help_text, args=arguments)
    except SettingsError as error:
        raise UsageError(str(error)) from None
    except SystemExit as end:
        if end.code != 2:
            raise
        given = [own for own in fields(shape) if own.default is MISSING]
        if "Missing from" in said.getvalue() and not any(own.kw_only for own in given):
            names = " ".join(own.name.upper() for own in given)
            raise UsageError(f"give all of bert-jax {command} {names} (see --help)") from None
        raise UsageError(_one_line(said.getvalue())) from None


def _one_line(box: str) -> str:
    """tyro's framed message as a line: what was wrong and, after the rule, what may have been meant."""
    # Under the title; the frame is missing and the rules are hyphens where standard output isn't UTF-8.
    lines = [line.strip(" │") for line in box.splitlines()[1:]]
    parts = re.split("(?:^| )[╰─╯-]{10,}", " ".join(lines))
    wanted = [part.strip() for part in parts if part.strip() and "full helptext" not in part]
    text = re.sub(r"\s+", " ", "; ".join(wanted)).removeprefix("Error parsing ")
    return f"{re.sub(r'^config[.][a-z.]+: ', '', text)} (see --help)"
