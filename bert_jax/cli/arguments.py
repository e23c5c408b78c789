"""The arguments of each command, and how a command line is parsed into them."""

import warnings
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, cast, get_args

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr, field_validator

from bert_jax.cli.command_line import parse_line, with_listed_sources
from bert_jax.cli.commands import HELP_FLAGS
from bert_jax.cli.flags import CONFIG, Flag, Positional, flags_of, full_help, short_help, wrapped
from bert_jax.config.data import FileFormat
from bert_jax.config.finetune import AnyRunConfig, FinetuneConfig, TaskRunConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import Settings
from bert_jax.config.unused import refuse_unused
from bert_jax.interchange.model_path import local_place
from bert_jax.run.config_files import AnyConfig, config_source, open_config
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.recorded_config import check_recorded_places, is_elsewhere
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import UsageError
from bert_jax.system.machine import may_be_one_of_several

if TYPE_CHECKING:
    from bert_jax.inference.bert import Bert
    from bert_jax.run.run_files import RunFiles
    from bert_jax.training.step import Objective

PlaceArgument = Annotated[Place, BeforeValidator(lambda path: place_of(path) if isinstance(path, str) else path)]
"""A path on this machine or in a bucket (gs://)."""
RunArgument = Positional[PlaceArgument]
"""The first argument of commands that work on an existing run."""
Parsed = TypeVar("Parsed", bound="Arguments")
_NAME_OR_FILE = "a name from bert-jax configs", "a Python file that builds a `config`"
_CONFIG_TEXT = {
    (RunConfig,): (*_NAME_OR_FILE, "a run or published model whose settings are used"),
    (RunConfig, TaskRunConfig): (*_NAME_OR_FILE, "a run, pretrained or fine-tuned, whose settings are used"),
    (FinetuneConfig,): _NAME_OR_FILE,
}
"""What CONFIG may be, by the kinds of settings that the command takes."""


class Arguments(Settings):
    """The arguments of a command, and what it does with them. In --help, a subclass's docstring describes the command,
    and a field's docstring its flag.

    If the subclass has a field `config`, the command's first argument is CONFIG, and the field holds CONFIG's settings,
    with the changes from the flags. Without CONFIG, --help shows the values of the field's default.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    PREFIX: ClassVar[str] = "--"
    LINE: ClassVar[str]
    """The beginning of the command line: "bert-jax pretrain"."""
    TEXT: ClassVar[str | None] = None
    """Text for --help in place of the docstring."""
    SHORT_HELP_SETTINGS: ClassVar[tuple[str, ...]] = ()
    """Settings of CONFIG that --help shows: those that people change first. --help-all shows all."""
    READS: ClassVar[tuple[str, ...]] = ()
    """Settings of CONFIG, or groups of settings, that the command reads; --help-all shows only these. Empty: all."""
    REQUIRED_SETTINGS: ClassVar[tuple[str, ...]] = ()
    """Settings of CONFIG that every run must set, although they have a default (None)."""
    ALIASES: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Maps flags of pretrain and finetune, which messages name, to this command's shorter ones: {"data.source":
    "data"}."""
    WITHOUT_FLAG: ClassVar[str] = "change the input"
    """What to do where a message names a flag of pretrain or finetune that the command lacks."""
    VARIANTS: ClassVar[Mapping[str, "type[Arguments]"]] = MappingProxyType({})
    """Other forms of the command, by the flags that ask for them: {"--extend": Extend}."""

    _run_of_config: Place | None = PrivateAttr(None)
    _opened: OpenedModels = PrivateAttr(default_factory=OpenedModels)

    def execute(self) -> None:
        """Does what the command is for. Raises errors of bert_jax.system.errors."""
        raise NotImplementedError

    @property
    def run_of_config(self) -> Place | None:
        """The run that was given as CONFIG; None if CONFIG is a name or a Python file."""
        return self._run_of_config

    @property
    def opened(self) -> OpenedModels:
        """The models that the command opens, also to read CONFIG."""
        return self._opened

    @classmethod
    def defaults(cls) -> AnyConfig | None:
        """The default of `config`; None for a command without CONFIG, whose `config` may be a flag of its own."""
        field = cls.model_fields.get(CONFIG)
        return None if field is None or isinstance(field.default, str) else field.default

    @classmethod
    def config_kinds(cls) -> tuple[type[AnyConfig], ...]:
        """The kinds of settings that CONFIG may have: those of the annotation of `config`."""
        annotation = cls.model_fields[CONFIG].annotation
        return get_args(annotation) or (annotation,)

    @classmethod
    def flags(cls, config: Settings | None = None) -> list[Flag]:
        """All flags of the command line, with the values of `config` (or of `defaults`) as defaults."""
        return flags_of(cls, config or cls.defaults())

    @classmethod
    def used_flags(cls, config: Settings | None = None) -> list[Flag]:
        """Those of `flags` that the command reads."""
        read = tuple(f"{name}." for name in cls.READS)
        return [flag for flag in cls.flags(config) if not read or flag.is_argument or f"{flag.name}.".startswith(read)]

    @classmethod
    def usage(cls) -> str:
        flags = cls.flags()
        shown = [flag.usage for flag in flags if not flag.is_argument and flag.name in cls.REQUIRED_SETTINGS]
        shown += [flag.usage for flag in flags if flag.required]
        return " ".join([cls.LINE, "CONFIG", *shown] if cls.defaults() else [cls.LINE, *shown])

    @classmethod
    def short_help_settings(cls, config: AnyConfig | None) -> tuple[str, ...]:
        """The settings of CONFIG that --help shows; None: without CONFIG."""
        return cls.SHORT_HELP_SETTINGS

    @classmethod
    def help(cls, config: AnyConfig | None = None, everything: bool = False) -> str:
        """The text of --help, with the values of `config` as defaults; if `everything`, the text of --help-all."""
        flags, about = cls.used_flags(config), cls.TEXT or wrapped(" ".join((cls.__doc__ or "").split()))
        shown = f"usage: {cls.usage()} [--NAME VALUE ...]\n\n{about}"
        if cls.defaults():
            *possible, last = _CONFIG_TEXT[cls.config_kinds()]
            whose = "are those of this CONFIG" if config else "apply to settings that CONFIG doesn't set"
            shown += wrapped(f"CONFIG is {', '.join(possible)}, or {last}. The defaults below {whose}.")
        if everything or not cls.SHORT_HELP_SETTINGS:
            return f"{shown}\n{full_help(flags)}"
        by_name = {flag.name: flag for flag in flags}  # lacks phases.1 if the config has one phase
        short = [flag for flag in flags if flag.is_argument] + [
            by_name[name] for name in cls.short_help_settings(config) if name in by_name
        ]
        return f"{shown}\n{short_help(short)}\nAll {len(flags)} settings: {cls.LINE} --help-all\n"

    @classmethod
    def parse(cls: type[Parsed], words: list[str]) -> Parsed:
        """Parses a command line. Raises UsageError for a wrong one, and SystemExit after printing help."""
        defaults, rest, help_flags = cls.defaults(), words, set(HELP_FLAGS) & set(words)
        config: AnyConfig | None = None
        run, opened = None, OpenedModels()
        if defaults and words and not words[0].startswith("-"):
            kinds, rest = cls.config_kinds(), words[1:]
            config, run = open_config(words[0], *kinds, opened=opened)
        if help_flags:
            print(cls.help(config, everything="--help-all" in help_flags), end="")
            raise SystemExit(0)
        if defaults and config is None:
            raise UsageError(
                f"give a config first: {cls.usage()}; bert-jax configs lists the configs that come with bert-jax"
            )
        flags = cls.flags(config)
        lists_sources = any(flag.positional and flag.name == "source" and flag.kind.several for flag in flags)
        values = parse_line(with_listed_sources(rest, lists_sources), flags, cls.LINE, cls.ALIASES)
        arguments: dict[str, Any] = {}
        for flag in (flag for flag in flags if flag.is_argument and flag.name in values):
            group, _, name = flag.field.rpartition(".")
            (arguments.setdefault(group, {}) if group else arguments)[name] = values[flag.name]
        if config:
            settings = {flag.field: values[flag.name] for flag in flags if not flag.is_argument and flag.name in values}
            if run and "workdir" in cls.model_fields:  # places that the command reads and that only the run names
                names = {flag.field for flag in cls.used_flags(config)}
                check_recorded_places(cast(AnyRunConfig, config), run, names - settings.keys())
            arguments[CONFIG] = config = config.set(settings)
            refuse_unused(config, settings)
        parsed = cls(**arguments)
        parsed._run_of_config, parsed._opened = run, opened
        return parsed


class RunArguments(Arguments):
    """Arguments of the commands that create a run or a part of it."""

    workdir: PlaceArgument
    """Directory of the run, which is created or continued; gs://BUCKET/FOLDER works too."""

    @field_validator("workdir")
    @classmethod
    def _no_file(cls, workdir: Place) -> Place:
        if workdir.is_file():
            raise ValueError(f"={workdir} is a file; give a folder, which is created if it is missing")
        return workdir

    def check_text(self, config: RunConfig) -> None:
        """Raises UsageError if the text of a new run isn't on this machine. To be called before JAX is imported, which
        takes seconds. One of several hosts checks nothing here: it first joins the others, which would wait for it.
        Then begins to load the language identification beside the imports, which take as long."""
        from bert_jax.records.corpus import open_corpus
        from bert_jax.text.identification import load_ahead

        is_here = not self.workdir.exists() and not any(map(is_elsewhere, config.data.source))
        if is_here and not may_be_one_of_several(config.hosts.coordinator):
            open_corpus(config.data)
        load_ahead()


class TrainingArguments(RunArguments):
    """Arguments of the commands that train."""

    config: RunConfig | FinetuneConfig
    """The settings of the training."""
    dry_run: bool = False
    """Print what the command would do, the state of the run and the memory of a step, and do nothing."""
    print_config: bool = False
    """Print all settings as a config file and do nothing else: bert-jax ... --print-config > mine.py."""

    def estimates(self) -> Iterable[tuple[str, str]]:
        """What the command would do, as names and texts."""
        raise NotImplementedError

    def only_prints(self) -> bool:
        """Prints the settings or the estimates if a flag asks for them; returns whether one does."""
        if self.print_config:
            print(config_source(self.config, f"All settings of a run.\n\n    {self.usage()}"), end="")
        elif self.dry_run:
            from bert_jax.system.figures import print_rows

            print_rows(f"{self.LINE} would", (), self.estimates())
        return self.print_config or self.dry_run


class SavedArguments(Arguments):
    """Arguments that choose the saved parameters of a run."""

    step: Annotated[int, Field(ge=0)] | None = None
    """Saved step of the run to take. Without it: the newest undamaged one, of a fine-tuned run the one with the best
    score."""
    average: Annotated[int, Field(gt=0)] | None = None
    """Take the mean of the parameters of the last N saved steps of the run, up to --step or the newest. Steps of an
    earlier phase are left out. Without it: the parameters of one step."""

    def loaded(self, source: "Place | RunFiles", dtype: str | None = None) -> "Bert":
        """Loads the model at a path, or of a run some of whose files were read already, and prints how the files of
        another program were understood."""
        from bert_jax.run.run_files import RunFiles

        files = source if isinstance(source, RunFiles) else RunFiles(source)
        local_place(files.path)  # before JAX is imported
        from bert_jax.inference.bert import bert_of
        from bert_jax.system.reading import show

        bert = bert_of(files, self.step, self.average, dtype)
        show(bert.provenance.readings)
        return bert


class InferenceArguments(SavedArguments):
    """Arguments that choose the saved parameters of a run and the type of the matrix products."""

    dtype: Literal["float32", "bfloat16"] | None = None
    """Type of the matrix products. Without it: float32 on a CPU, elsewhere the type that the model was trained in."""


class RowsArguments(Arguments):
    """The file format of the rows that a fine-tuned model reads."""

    ALIASES = {f"task.{name}": name for name in ("format", "columns", "separator")}

    format: FileFormat | None = None
    """File format of the rows. Without it: by the suffix of the file name, or else the format of the training rows."""
    columns: tuple[str, ...] | None = None
    """Names of the columns. Without it: those of the training rows, if the file has the same format. With no name after
    it: the first line of the file has the names."""
    separator: str | None = None
    """Separator of the columns of csv or tsv. Without it: that of the training rows, if the file has the same format,
    or else the one that its first line has."""


with warnings.catch_warnings():
    warnings.filterwarnings("ignore", 'Field name "json"')  # hides a method that pydantic itself calls deprecated

    class JsonArguments(Arguments):
        """Arguments of the commands that can print JSON instead of tables."""

        json: bool = False  # type: ignore[assignment]
        """Print JSON instead of tables."""


def dotted(*groups: str) -> tuple[str, ...]:
    """The names of settings by group: "model.num-layers", "model.num-heads" for "model: num-layers num-heads"."""
    parted = (group.rpartition(": ") for group in groups)
    return tuple(f"{group}.{name}".removeprefix(".") for group, _, names in parted for name in names.split())


def objective_of_config(config: AnyRunConfig, opened: OpenedModels) -> "Objective":
    """The objective of a pretraining or a fine-tuning that needn't exist. Raises UsageError as `expected_objective`."""
    if config.task is None:
        from bert_jax.pretraining.objective import expected_objective

        return expected_objective(config, opened)
    from bert_jax.finetuning.contrast import objective_of  # imports libraries that pretraining does without

    return objective_of(config)
