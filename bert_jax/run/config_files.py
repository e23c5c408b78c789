"""Config files: those that come with bert-jax, which are found by name, and a user's own; read and written."""

import difflib
import functools
import runpy
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from pydantic import BaseModel
from rich.pretty import pretty_repr

from bert_jax.config.data import RecordedCode
from bert_jax.config.finetune import AnyRunConfig, FinetuneConfig, TaskRunConfig
from bert_jax.config.fitted import FittedConfig
from bert_jax.config.operation import HostsConfig, PreparationConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import SettingsError
from bert_jax.config.wording import first_sentence
from bert_jax.run.opened_models import OpenedModels
from bert_jax.system.bucket import Place, in_bucket, place_of
from bert_jax.system.copies import fetched
from bert_jax.system.errors import Setting, UsageError, did_you_mean
from bert_jax.system.progress import say

AnyConfig = RunConfig | FinetuneConfig | TaskRunConfig
Config = TypeVar("Config", bound=AnyConfig)
_TASKS = "finetune/"
"""Beginning of the names of the configs for `bert-jax finetune`."""


class NamedConfig(NamedTuple):
    """A config that comes with bert-jax."""

    name: str
    text: str
    """Docstring: a description, the command, its time and the result to expect."""
    config: AnyConfig

    @property
    def summary(self) -> str:
        """The first sentence of the text."""
        return first_sentence(" ".join(self.text.partition("\n\n")[0].split()))


class OpenedConfig(NamedTuple, Generic[Config]):
    """A config, and the place of the run or published model that gave it; None for one of a file or of a name."""

    config: Config
    run: Place | None


def configs_directory() -> Path:
    """The folder of the configs: inside an installed package, or at the top of a checkout. Each file builds one config,
    `config`, or several, `RECIPES`: name -> (docstring, config)."""
    package = Path(__file__).parents[1]
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def suite_names() -> list[str]:
    """The names of the suites that come with bert-jax."""
    return sorted(path.stem for path in (configs_directory() / "suites").glob("*.toml"))


def suite_file(name_or_path: str) -> Path:
    """The file of a suite: a path, or a name of `suite_names`. Raises UsageError if there is none."""
    if Path(name_or_path).is_file():
        return Path(name_or_path)
    if name_or_path in suite_names():
        return configs_directory() / "suites" / f"{name_or_path}.toml"
    suggestion = did_you_mean(Path(name_or_path).stem, suite_names(), f"there are {', '.join(suite_names())}")
    raise UsageError(f"no suite file at {name_or_path} and no suite of that name; {suggestion}")


@functools.cache
def catalogue() -> dict[str, NamedConfig]:
    """The configs that come with bert-jax, by name: demo, ablations/mlm, finetune/sst2."""
    configs = {}
    for path in sorted(configs_directory().glob("*.py")):
        built = runpy.run_path(str(path))
        recipes = built.get("RECIPES") or {"": (built["__doc__"], built["config"])}
        for recipe, (text, config) in recipes.items():
            name = f"{path.stem}/{recipe}".removesuffix("/")
            configs[name] = NamedConfig(name, text, config)
    return configs


def names_for(kind: type) -> list[str]:
    """The names of the configs that build a `kind`, without the prefix finetune/."""
    return [name.removeprefix(_TASKS) for name, named in catalogue().items() if isinstance(named.config, kind)]


def find_config(name: str) -> NamedConfig | None:
    """The config `name`, which may be written with or without configs/, finetune/ and .py; None if there is none."""
    name = name.removeprefix("./").removeprefix("configs/").removesuffix(".py")
    same = (named for full, named in catalogue().items() if name and full.endswith(f"/{name}"))
    return catalogue().get(name) or next(same, None)


def load_config(name_or_path: str, kind: type[Config], *alternatives: type[Config]) -> Config:
    """The config that `open_config` gives. Raises what that does."""
    return open_config(name_or_path, kind, *alternatives).config


def open_config(
    name_or_path: str, kind: type[Config], *alternatives: type[Config], opened: OpenedModels | None = None
) -> OpenedConfig[Config]:
    """Loads a config: from a Python file (.py) that builds a `kind` named `config`, by a name of `bert-jax configs`, or
    from a run or published model. A run gives its own config, pretrained or fine-tuned, if there are `alternatives`;
    otherwise, like a published model, its `pretraining_settings`. `opened`: what a command keeps of the models that it
    has opened, if it may open this one again.

    An existing path takes precedence over a config of the same name. Raises UsageError with a one-line message for
    anything that isn't such a config, and for any exception that the file raises.
    """
    path, kinds = place_of(name_or_path), (kind, *alternatives)
    is_run = (path / "config.json").is_file() or in_bucket(path) and path.is_dir()
    if is_run and RunConfig in kinds:
        return OpenedConfig(_config_of_run(path, opened or OpenedModels(), *kinds), path)
    if not path.is_file():
        named = find_config(name_or_path)
        if named is None:
            raise absent(name_or_path, names_for(kind))
        return OpenedConfig(_of_kind(named.config, kinds, named.name), None)
    if path.suffix != ".py":
        names, setting = ("a name or a run", "data.source") if kind is RunConfig else ("a name", "task.train")
        raise UsageError(
            f"{path} is no config: give a Python file (.py), {names} (bert-jax configs lists the names); what to "
            f"learn from is given by --{setting} {name_or_path}"
        )
    try:
        config = runpy.run_path(str(fetched(path))).get("config")
    except SettingsError as error:
        raise UsageError(f"{path}: {error}") from None
    except Exception as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path}: {type(error).__name__}: {reason}") from None
    return OpenedConfig(_of_kind(config, kinds, str(path)), None)


def _config_of_run(run: Place, opened: OpenedModels, kind: type[Config], *alternatives: type[Config]) -> Config:
    files = opened.files(run)
    if alternatives and not files.published:
        config = files.config
    else:
        from bert_jax.run.trained_model import pretraining_settings  # needs JAX; a config file doesn't

        config = pretraining_settings(run, opened)
    return _of_kind(_without_connections(config, run), (kind, *alternatives), str(run))


def _without_connections(config: AnyRunConfig, run: Place) -> AnyRunConfig:
    """`config` without the trackers, hosts and cluster to which it would connect: a run's file doesn't choose them."""
    if trackers := config.logging.trackers:
        named = " and ".join(Setting(f"logging.{name}", where) for name, where in trackers.items())
        say(f"{named} of {run} is not taken over; give it again to track this run")
    config = config.replace(logging=config.logging.replace(**dict.fromkeys(trackers)), hosts=HostsConfig())
    preparation = getattr(config, "preparation", None)
    if preparation is None:  # fine-tuning prepares no text
        return config
    if preparation.engine == "spark":
        say(f"{Setting('preparation.engine', 'spark')} of {run} is not taken over; give it again to prepare with Spark")
    return config.replace(preparation=PreparationConfig(processes=preparation.processes))


def absent(name_or_path: str, names: list[str]) -> UsageError:
    """The error for a config that is neither a file nor one of `names`."""
    stem = Path(name_or_path).stem
    known = {name.rpartition("/")[2]: name for name in names}
    meant = difflib.get_close_matches(stem, known, n=1, cutoff=0.6)
    suggestion = f"did you mean {known[meant[0]]}? " if meant else ""
    return UsageError(
        f"no config file at {name_or_path} and no config of that name; {suggestion}bert-jax configs lists them"
    )


def _of_kind(config: object, kinds: tuple[type[Config], ...], where: str) -> Config:
    """Returns `config`. Raises UsageError if it is of none of `kinds`."""
    if isinstance(config, kinds):
        return config
    kind, *alternatives = kinds
    example = "demo" if kind is RunConfig else f"{_TASKS}sst2"
    commands: dict[type, str] = {RunConfig: "pretrain", FinetuneConfig: "finetune", TaskRunConfig: "finetune"}
    if command := commands.get(type(config)):
        run = "a run that was fine-tuned with it, or " if alternatives else ""
        raise UsageError(
            f"{where} is a config of bert-jax {command}; give {run}one like {example}, which bert-jax configs lists"
        )
    raise UsageError(
        f"{where} builds no {kind.__name__} named `config`; give one that does: bert-jax configs {example} prints one"
    )


def config_source(config: AnyConfig, text: str) -> str:
    """The text of a Python file that builds `config` with every setting, with `text` as its docstring; settings that a
    FittedConfig leaves to the model or the text are left out.

    Raises UsageError for a function that a run's config.json alone names: the Python file would make it trusted.
    """
    if isinstance(config, RunConfig) and isinstance(config.data.words, RecordedCode):
        raise UsageError(config.data.words.refusal)
    imports = "\n".join(sorted({f"from {kind.__module__} import {kind.__name__}" for kind in _classes(config)}))
    docstring = text.strip().replace("\\", "\\\\")
    return f'"""{docstring}\n"""\n\n{imports}\n\nconfig = {pretty_repr(_without_inferred(config), expand_all=True)}\n'


def _without_inferred(config: AnyConfig) -> object:
    """What `pretty_repr` prints as `config`: all settings, but for those of a FittedConfig that the model or the text
    decides because nobody gave them."""
    if not isinstance(config, FittedConfig):
        return config
    groups = {name: getattr(config, name) for name in ("model", "vocabulary")}
    given = {
        name: _record(type(group), {each: value for each, value in group if each in group.model_fields_set})
        for name, group in groups.items()
    }
    return _record(type(config), dict(config) | given)


def _record(kind: type, values: dict[str, object]) -> object:
    """An object that `pretty_repr` prints as a `kind` with these values."""
    return type(kind.__name__, (), {"__rich_repr__": lambda _: iter(values.items())})()


def _classes(value: object) -> set[type[BaseModel]]:
    """The settings classes of `value` and of everything in it."""
    if isinstance(value, BaseModel):
        return {type(value)}.union(*(_classes(each) for _, each in value))
    return set().union(*map(_classes, value)) if isinstance(value, tuple) else set()
