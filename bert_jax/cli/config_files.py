"""Config files: those that come with bert-jax, which are found by name, and a user's own."""

import ast
import difflib
import runpy
from pathlib import Path
from typing import TypeVar

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import SettingsError
from bert_jax.system.bucket import Place, in_bucket, place_of
from bert_jax.system.copies import fetched
from bert_jax.system.errors import UsageError

Config = TypeVar("Config", RunConfig, FinetuneConfig)
TASKS = "finetune"
"""Folder of the configs for `bert-jax finetune`; all others are for pretraining."""


def configs_directory() -> Path:
    """The folder of the configs: inside an installed package, or at the top of a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def config_names() -> list[str]:
    """The names of all configs: demo, ablations/mlm, finetune/sst2."""
    root = configs_directory()
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.py"))


def names_for(kind: type[Config]) -> list[str]:
    """The names of the configs that build a `kind`, without the prefix finetune/."""
    of_tasks = [name.removeprefix(f"{TASKS}/") for name in config_names() if name.startswith(f"{TASKS}/")]
    return of_tasks if kind is FinetuneConfig else [name for name in config_names() if not name.startswith(f"{TASKS}/")]


def find_config(name: str) -> Path | None:
    """The file of the config `name`, which may have configs/, finetune/ and .py or not; None if there is none."""
    name = name.removeprefix("./").removeprefix("configs/").removesuffix(".py")
    names = config_names()
    wanted = [each for each in names if each == name] or [each for each in names if each.endswith(f"/{name}")]
    return configs_directory() / f"{wanted[0]}.py" if name and wanted else None


def summary(path: Path) -> str:
    """The first sentence of a config's docstring."""
    first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
    sentence = first.partition(". ")[0]
    return sentence if sentence.endswith((".", "?")) else f"{sentence}."


def load_config(given: str, kind: type[Config] = RunConfig) -> Config:
    """Loads the config `given`: a Python file (.py) that builds `config`, a run (if `kind` is RunConfig), or a name.

    An existing path takes precedence over a config of the same name. Raises UsageError with a one-line message for
    anything that isn't such a config, and for any exception that the file raises.
    """
    path = place_of(given)
    if kind is RunConfig and (path / "config.json").is_file():
        from bert_jax.run.run_directory import read_pretraining_config  # needs Orbax; a config file doesn't

        return read_pretraining_config(path)
    if not path.is_file():
        if kind is RunConfig and in_bucket(path) and path.is_dir():
            raise UsageError(f"{path} is no run: it has no config.json")
        path = find_config(given)
    if path is None:
        raise absent(given, names_for(kind))
    if path.suffix != ".py":
        if kind is RunConfig:
            others, flag = "a name or a run", "data.source"
        else:
            others, flag = "a name", "task.train"
        raise UsageError(
            f"{path} is no config: give a Python file (.py), {others} (bert-jax configs lists the names); what to "
            f"learn from is given by --{flag} {given}"
        )
    try:
        config = runpy.run_path(str(fetched(path))).get("config")
    except SettingsError as error:
        raise UsageError(f"{path}: {error}") from None
    except Exception as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path}: {type(error).__name__}: {reason}") from None
    if not isinstance(config, kind):
        raise UsageError(_of_another_kind(path, config, kind))
    return config


def absent(given: str, names: list[str]) -> UsageError:
    """The error for a config that is neither a file nor one of `names`."""
    asked = Path(given).stem
    known = {name.rpartition("/")[2]: name for name in names}
    meant = difflib.get_close_matches(asked, known, n=1, cutoff=0.6)
    suggestion = f"did you mean {known[meant[0]]}? " if meant else ""
    return UsageError(f"no config file at {given} and no config of that name; {suggestion}bert-jax configs lists them")


def _of_another_kind(path: Place, config: object, kind: type[Config]) -> str:
    example = "demo" if kind is RunConfig else f"{TASKS}/sst2"
    other = {RunConfig: "pretrain", FinetuneConfig: "finetune"}.get(type(config))
    if other:
        return f"{path} is a config of bert-jax {other}; give one like {example}, which bert-jax configs lists"
    return f"{path} builds no {kind.__name__} named `config`; give one that does: bert-jax configs {example} prints one"
