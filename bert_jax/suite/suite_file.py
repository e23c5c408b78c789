"""Reads a suite's TOML file, and checks models, tasks, settings and files before anything runs."""

import difflib
import glob
import itertools
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import Settings
from bert_jax.config.task import TaskConfig
from bert_jax.interchange.hub import model_place
from bert_jax.suite.suite_tables import (
    ModelTable,
    SuiteModel,
    SuitePlan,
    SuiteTables,
    SuiteTask,
    TaskTable,
    flag_words,
)
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import UsageError, with_names
from bert_jax.system.files import matching_files
from bert_jax.system.json_file import MOST_BYTES, read_bytes

Load = Callable[[str, type], Any]
"""Loads a config by its name or file: `load_config`."""
_COMPRESSED = ("", ".gz", ".zst")
"""Endings that a file of rows may have besides the name in the suite."""


def read_suite(path: Path, load: Load, data: str | None = None, only: Sequence[str] = (), **changes: Any) -> SuitePlan:
    """Reads and checks a suite file. `data` and `changes` replace its values, `only` names the tasks to keep.

    Raises UsageError for the first thing that is wrong, such as an unknown name, a missing file, or a name given twice.
    """
    try:
        values = tomllib.loads(read_bytes(path, MOST_BYTES).decode())
        tables, own = values.get("tasks", []), list[dict[str, Any]]()
        if isinstance(tables, list) and all(isinstance(table, dict) for table in tables):
            of_task = TaskConfig.model_fields.keys() - TaskTable.model_fields.keys()
            own = [{name: table[name] for name in table if name in of_task} for table in tables]
            values["tasks"] = [{name: table[name] for name in table if name not in of_task} for table in tables]
        values |= {name: value for name, value in {"data": data, **changes}.items() if value}
        if isinstance(models := values.get("models"), list | tuple):
            values["models"] = [{"path": each} if isinstance(each, str) else each for each in models]
        return _checked(SuiteTables(**values), own, load, only)
    except (OSError, ValueError) as error:
        reason = with_names(error.message) if isinstance(error, UsageError) else str(error)
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or reason}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {with_names(error.message)}") from None


def _checked(tables: SuiteTables, own: list[dict[str, Any]], load: Load, only: Sequence[str]) -> SuitePlan:
    if not tables.models:
        raise UsageError("it names no models; give some: --models RUN FOLDER")
    models = [_model(table, tables, load) for table in tables.models]
    names = _distinct("models", [model.name for model in models])
    recipes = [model.name for model in models if model.recipe]
    for model in models:
        changed = [word for word in model.words if word.startswith("--vocabulary.")]
        if changed and model.name != (tables.measured_as or recipes[0]):
            raise UsageError(
                f"{model.name} sets {changed[0]}, but all recipes share the vocabulary of the first (or measured_as)"
            )
        if model.begin is not None:
            _known(model.begin, recipes, f"{model.name} begins with", "no recipe of the suite")
    if tables.measured_as is not None:
        _known(tables.measured_as, recipes, "measured_as", "no recipe of the suite")
    if not recipes and (idle := [name for name in ("budget", "source") if getattr(tables, name)]):
        raise UsageError(f"{idle[0]} is for recipes, and every model of {', '.join(names)} is trained; leave it out")
    if tables.budget and not tables.budget.steps:
        for model in models:
            if model.recipe and len({(phase.length, phase.batch_size) for phase in model.recipe.phases}) > 1:
                raise UsageError(f"{model.name} has phases of several shapes, which take unlike times; keep one")
    named = [_task_name(table) for table in tables.tasks]
    _distinct("tasks", named)
    for name in only:
        _known(name, named, "--tasks", "no task of the suite")
    chosen = [number for number, name in enumerate(named) if not only or name in only]
    if not chosen and not recipes:
        raise UsageError("it has no [[tasks]], and no recipe to pretrain; give at least one")
    missing: dict[str, str] = {}
    tasks = [_task(named[number], tables.tasks[number], own[number], tables, load, missing) for number in chosen]
    if missing:
        others = [task.name for task in tasks if task.name not in missing]
        leave = f"; or measure the others alone: --tasks {' '.join(others)}" if others else ""
        raise UsageError("; ".join(f"{name}: {text}" for name, text in missing.items()) + leave)
    check_heads(models, tasks)
    return SuitePlan(tuple(models), tuple(tasks), _combinations(tables.grid, tasks), tables)


def check_heads(models: Iterable[SuiteModel], tasks: Iterable[SuiteTask]) -> None:
    """Raises UsageError for a path that is no model, and for a model that can't score pairs where a task has some."""
    from bert_jax.run.trained_model import TrainedModel  # needs JAX; a suite of recipes is read without

    pairs = next((task.name for task in tasks if task.kind == "pairs"), None)
    for model in models:
        shapes = TrainedModel.open(place_of(model.path)).shapes if model.path else {"masked_lm": None}
        if pairs and ("masked_lm" not in shapes or model.recipe and model.recipe.model.discriminator):
            raise UsageError(
                f"{model.name} has no head that predicts tokens, and {pairs} has pairs to score; leave out one"
            )


def _model(table: ModelTable, tables: SuiteTables, load: Load) -> SuiteModel:
    if (table.path is None) == (table.config is None):
        raise UsageError(f"the model {table.name or ''} needs either a path (a trained model) or a config (a recipe)")
    if table.path is not None:
        if table.begin or table.changes:
            raise UsageError(f"{table.path} is trained; begin and set are for a model with a config; leave them out")
        path = str(model_place(table.path))
        return SuiteModel(table.name or Path(table.path).name, path)
    assert table.config is not None
    name = table.name or table.config.removesuffix(".py").rpartition("/")[2]
    config = load(table.config, RunConfig)
    values = dict(table.changes) | ({"data.source": tables.source} if tables.source else {})
    values = _fitting(config, values, name)
    return SuiteModel(name, None, config.set(values), (_absolute(table.config), *flag_words(values)), table.begin)


def _task_name(table: TaskTable) -> str:
    of_files = Path(table.pairs or table.beir or "").name.partition(".")[0].strip("*") or "pairs"
    return table.name or (table.config or of_files).removesuffix(".py").rpartition("/")[2]


def _task(
    name: str, table: TaskTable, own: dict[str, Any], tables: SuiteTables, load: Load, missing: dict[str, str]
) -> SuiteTask:
    """The task of a table. Files that aren't there are noted in `missing`, by the task's name."""
    given = [kind for kind in ("config", "pairs", "beir") if getattr(table, kind) is not None]
    if len(given) != 1:
        raise UsageError(f"the task {name} has {' and '.join(given) or 'no config'}; give one of config, pairs, beir")
    wanted = list[str]()

    def found(pattern: str, several: bool = False) -> list[str]:
        places = find_rows(pattern, tables.data)
        if not places or len(places) > 1 and not several:
            wanted.append(f"no {pattern}" if not places else f"{len(places)} of {pattern}")
        return places or [pattern]

    if table.config is None:
        if own or table.files or table.changes or table.test or table.scores:
            raise UsageError(f"the task {name} has {given[0]}, and settings of a fine-tuning; leave these out")
        pattern, hash_sign, split = (table.pairs or table.beir or "").partition("#")  # FOLDER#SPLIT
        places = tuple(f"{place}{hash_sign}{split}" for place in found(pattern, several=given[0] == "pairs"))
        task = SuiteTask(name, "pairs" if given[0] == "pairs" else "beir", places)
    else:
        files = dict(table.files) if tables.data else {}
        if unknown := files.keys() - TaskConfig.model_fields.keys() - {"test"}:
            _known(min(unknown), [*TaskConfig.model_fields, "test"], f"files of the task {name}", "no setting of rows")
        test, config = files.pop("test", table.test), load(table.config, FinetuneConfig)
        values = {"task.name": name} | {f"task.{key}": value for key, value in (own | files).items()} | table.changes
        rows = {each: values.get(f"task.{each}") or getattr(config.task, each) for each in ("train", "dev")}
        rows |= {"test": test} if tables.report == "test" else {}
        for each, source in rows.items():
            if source is None:
                raise UsageError(f"the task {name} has no {each} rows; give {each} = FILE")
            rows[each] = found(source)[0]
        values |= {f"task.{each}": rows[each] for each in ("train", "dev")}
        values = _fitting(config, values, f"the task {name}")
        words = (_absolute(table.config), *flag_words(values))
        scores, tuned = table.scores or (), config.set(values)
        for score in scores:
            _known(
                score, tuned.task.facts.metrics, f"scores of the task {name}", f"no metric of kind {tuned.task.kind}"
            )
        task = SuiteTask(name, "finetune", (), tuned, words, rows.get("test"), scores)
    if wanted:
        where = f" (published at {table.publisher})" if table.publisher else ""
        below = f"below {place_of(tables.data)}" if tables.data else "here; --data names a folder that has it"
        missing[name] = f"found {' and '.join(wanted)} {below}{where}"
    return task


def find_rows(pattern: str, data: str | None) -> list[str]:
    """The absolute paths of the files, also compressed, or the folder that `pattern` names, in `data` at any depth;
    [] if none is there.

    A set of TFDS, or a place in a bucket, is taken as it is.
    """
    if ":" in pattern.partition("/")[0]:
        return [pattern]
    below = os.path.join(glob.escape(str(place_of(data))), "**", pattern) if data else str(place_of(pattern))
    for ending in _COMPRESSED:
        if places := [str(path) for path in matching_files(below + ending)]:
            return places
    return [path for path in sorted(glob.glob(below, recursive=True)) if os.path.isdir(path)]


def _absolute(config: str) -> str:
    """A config's absolute path if it is a file, else its name."""
    return os.path.abspath(config) if os.path.isfile(config) else config


def _combinations(grid: dict[str, Any], tasks: Iterable[SuiteTask]) -> tuple[dict[str, Any], ...]:
    """All combinations of the grid's values, each of which fits every fine-tuning."""
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise UsageError(f"grid: {name} = {values!r:.40} is no list of values to try; give some, or leave it out")
    combinations = tuple(dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
    tuned = [task for task in tasks if task.config]
    if grid and not tuned:
        raise UsageError("grid has settings of fine-tuning, and no task is fine-tuned; leave it out")
    for task, setting in itertools.product(tuned, combinations):
        assert task.config
        task.config.set(_fitting(task.config, setting, "grid"))
    return combinations


def _fitting(config: Settings, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`values` with the names of settings as fields. Raises UsageError for a name that `config` doesn't have."""
    known = list(_setting_names(config))
    fields = {name.replace("-", "_"): value for name, value in values.items()}
    for name in fields:
        _known(name, known, where, "no such setting")
    return fields


def _setting_names(settings: Settings, prefix: str = "") -> Iterator[str]:
    for name, value in settings:
        groups = {f"{prefix}{name}": value}
        if isinstance(value, tuple) and value and isinstance(value[0], Settings):
            groups = {f"{prefix}{name}.{number}": each for number, each in enumerate(value)}
        for path, group in groups.items():
            yield from _setting_names(group, f"{path}.") if isinstance(group, Settings) else [path]


def _known(name: str, known: Sequence[str], where: str, what: str) -> None:
    """Raises UsageError if `name` is none of `known`, with the nearest of them."""
    if name not in known:
        last = {each.rpartition(".")[2]: each for each in known}
        near = difflib.get_close_matches(name, known, n=1) or difflib.get_close_matches(
            name.rpartition(".")[2], last, n=1
        )
        meant = f"; did you mean {last.get(near[0], near[0])}?" if near else f"; there is {', '.join(known[:9])}"
        raise UsageError(f"{where}: {name!r} is {what}{meant}")


def _distinct(what: str, names: list[str]) -> list[str]:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two {what} are called {twice!r}; give each a name of its own by name = ...")
    return names
