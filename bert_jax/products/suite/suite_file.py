"""Reads the TOML files of suites, and checks what files alone tell. Nothing here imports JAX, so that a wrong suite is
refused at once; `with_opened_models` then opens the models."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.config.fitted import FittedConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.wording import counted
from bert_jax.interchange.model_path import local_or_hub_name
from bert_jax.products.suite.held_out import check_comparable
from bert_jax.products.suite.rows import RowSearch, check_size
from bert_jax.products.suite.suite import CheckedSuite, SuiteModel
from bert_jax.products.suite.suite_tables import (
    EACH,
    HELD_OUT_TASK,
    MOST,
    TAKEN,
    ModelTable,
    SuiteTables,
    Values,
    check_known,
    check_settable,
    faults_of,
    with_settings,
)
from bert_jax.products.suite.tasks import SUITE_TASKS, FineTuning, SuiteTask
from bert_jax.run.config_files import open_config
from bert_jax.run.recorded_config import check_recorded_places
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.json_file import read_toml


def read_suite(
    path: Path,
    data: str | None = None,
    only: Sequence[str] = (),
    rows: Mapping[str, Sequence[str]] | None = None,
    **changes: Any,
) -> CheckedSuite:
    """Reads a suite file, and checks it without opening a model. `data` and `changes` replace its values, `only` names
    the tasks to keep. `rows` has files of `train`, `dev` and `test` rows, one for each of the first tasks; the other
    tasks are left out.

    Raises UsageError for the first thing that is wrong, such as an unknown name, a missing file, or a name given twice.
    """
    with faults_of(path):
        values = read_toml(path)
        tables = values.get("models")
        values |= {name: value for name, value in {"data": data, **changes}.items() if value}
        if isinstance(tables, list) and (each := [table for table in tables if _of_each(table)]):
            if not changes.get("models"):
                name = quoted(str(each[0].get("name", "a model")))
                raise UsageError(f"{name} begins with each of --models, and there is none; give some: --models FOLDER")
            values["models"] = [made for table in tables for made in _for_each(table, changes["models"])]
        elif isinstance(models := values.get("models"), list | tuple):
            values["models"] = [{"path": each} if isinstance(each, str) else each for each in models]
        tasks = values.get("tasks", [])
        if isinstance(tasks, list) and all(isinstance(task, dict) for task in tasks):  # or else they are refused below
            for name, sources in (rows or {}).items():
                _set_rows(tasks, name, sources)
        return _checked(SuiteTables(**values), path, only)


def _of_each(table: object) -> bool:
    return isinstance(table, dict) and EACH in (table.get("path"), table.get("init"))


def _for_each(table: Any, models: Sequence[str]) -> list[Any]:
    """The tables for which a [[models]] table stands: one for each model if it says so, otherwise itself."""
    if not _of_each(table):
        return [{"path": table} if isinstance(table, str) else table]
    key = "path" if table.get("path") == EACH else "init"
    names = [Path(model).name for model in models]
    names = [name if names.count(name) == 1 else model for name, model in zip(names, models, strict=True)]
    prefix = f"{table['name']} " if table.get("name") else ""
    return [table | {"name": f"{prefix}{name}", key: model} for name, model in zip(names, models, strict=True)]


def _set_rows(tasks: list[Values], name: str, sources: Sequence[str]) -> None:
    """Sets the rows `name` of the first tasks to `sources`, and removes the other tasks."""
    if not sources:
        return
    if len(sources) > len(tasks):
        raise UsageError(f"--task.{name} names {len(sources)} files, and there are {counted(len(tasks), 'tasks')}")
    del tasks[len(sources) :]
    for task, source in zip(tasks, sources, strict=True):
        task[name] = source if ":" in source.partition("/")[0] else str(Path(source).absolute())


def _checked(tables: SuiteTables, path: Path, only: Sequence[str]) -> CheckedSuite:
    if not tables.models:
        raise UsageError("it names no models; give some: --models RUN FOLDER")
    models = [_model(table, tables) for table in tables.models]
    _check_distinct("models", [model.name for model in models])
    recipes = {model.name: model.recipe for model in models if model.recipe}
    if not recipes and (idle := [name for name in ("budget", "source") if getattr(tables, name)]):
        raise UsageError(f"{idle[0]} is for recipes, and every model is trained; leave it out")
    if not any(isinstance(recipe, FittedConfig) for recipe in recipes.values()):  # those are compared once fitted
        check_comparable(recipes, tables)
    _check_beginnings(models, tables)
    if not tables.tasks and not recipes:
        raise UsageError("it has no [[tasks]], and no recipe to pretrain; give at least one")
    tasks = _tasks(tables, only)
    return CheckedSuite(tuple(models), tasks, _combinations(tables.grid, tasks), tables, path)


def _check_beginnings(models: Sequence[SuiteModel], tables: SuiteTables) -> None:
    """Raises UsageError if `begin` names no recipe, or a recipe that itself begins with another, or if there is no
    budget of which both have a half."""
    recipes = {model.name: model for model in models if model.recipe}
    for model in models:
        if model.begin is not None:
            check_known(model.begin, recipes, f"{model.name} begins with", "recipe of the suite")
            if (begun := recipes[model.begin]).begin is not None:
                raise UsageError(
                    f"{model.name} begins with {begun.name}, which begins with {begun.begin}; name another"
                )
            if tables.budget is None:
                raise UsageError(f"{model.name} and {begun.name} take half of a budget each; add [budget]")


def _model(table: ModelTable, tables: SuiteTables) -> SuiteModel:
    if (table.path is None) == (table.config is None):
        raise UsageError(f"the model {table.name or ''} needs either a path (a trained model) or a config (a recipe)")
    if table.path is not None:
        if table.begin or table.changes or table.init or table.tags:
            given = "begin, init, tags and set are for a model with a config; leave them out"
            raise UsageError(f"{table.path} is trained; {given}")
        return SuiteModel(table.name or Path(table.path).name, local_or_hub_name(table.path))
    assert table.config is not None
    name = table.name or table.config.removesuffix(".py").rpartition("/")[2]
    check_settable(table.changes, f"set of {name}")
    of_vocabulary = [name for name in table.changes if name.startswith("vocabulary.")]
    shared = tables.vocabulary == "shared"
    if of_vocabulary and shared and table is not next(each for each in tables.models if each.config):
        raise UsageError(f"{name} sets {of_vocabulary[0]}, but all recipes share the vocabulary of the first")
    changes = table.changes | ({"data.source": tables.source} if tables.source else {})
    if table.tags:
        changes["objective.tags"] = _tags(tables, name)
    if table.init:
        changes["init"] = local_or_hub_name(table.init)
    try:
        recipe = _recipe(table.config, changes)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    return SuiteModel(name, None, recipe, table.begin)


def _tags(tables: SuiteTables, name: str) -> str:
    """The file of the first task's training rows."""
    search, first = RowSearch(tables.data), next(iter(tables.tasks), {})
    file = search.rows(str(first.get("train") or "no training rows"), "train")
    if search.missing:
        raise UsageError(f"{name} learns the tags of the first task, and {search.problem}")
    return file


def _recipe(name: str, values: Values) -> RunConfig:
    """The settings of a recipe. Those of a run must not name places elsewhere, and its vocabulary size is dropped."""
    config, run = open_config(name, RunConfig)
    if run:
        check_recorded_places(config, run, {re.sub(r"\.\d+$", "", place) for place in config.flat()} - values.keys())
        values = {"model.vocabulary_size": None, **values}
    return with_settings(config, values)


def _tasks(tables: SuiteTables, only: Sequence[str]) -> tuple[SuiteTask, ...]:
    """The tasks of a suite, or those that `only` names. Raises UsageError if their files are missing."""
    kinds = [_kind(table) for table in tables.tasks]
    usual = [kind.usual_name(str(table[kind.KEY])) for kind, table in zip(kinds, tables.tasks, strict=True)]
    names = [str(table.get("name") or name) for table, name in zip(tables.tasks, usual, strict=True)]
    _check_distinct("tasks", names)
    if taken := [name for name in names if name in TAKEN or name.startswith(HELD_OUT_TASK)]:
        raise UsageError(
            f"the task {taken[0]} has a name that every suite uses itself; give it another one by name = ..."
        )
    for name in only:
        check_known(name, names, "--tasks", "task of the suite")
    if tables.data:
        check_size(place_of(tables.data))
    tasks, missing = list[SuiteTask](), dict[str, str]()
    for name, kind, table in zip(names, kinds, tables.tasks, strict=True):
        if only and name not in only:
            continue
        search = RowSearch(tables.data)
        try:
            tasks.append(kind.read(table | {"name": name}, search, tables))
        except UsageError as error:
            raise UsageError(f"the task {name}: {error}") from None
        if search.missing:
            publisher = tasks[-1].publisher
            missing[name] = search.problem + (f" (published at {publisher})" if publisher else "")
    if missing:
        others = [task.name for task in tasks if task.name not in missing]
        leave = f"; or measure the others alone: --tasks {' '.join(others)}" if others else ""
        raise UsageError("; ".join(f"{name}: {text}" for name, text in missing.items()) + leave)
    return tuple(tasks)


def _kind(table: Values) -> type[SuiteTask]:
    """The kind of a table's task. Raises UsageError if it has the key of no kind, or of several."""
    kinds = [kind for kind in SUITE_TASKS if table.get(kind.KEY)]
    if len(kinds) == 1:
        return kinds[0]
    keys = [kind.KEY for kind in kinds]
    name = table.get("name") or next((kind.usual_name(str(table[kind.KEY])) for kind in kinds), "")
    known = ", ".join(kind.KEY for kind in SUITE_TASKS)
    raise UsageError(f"the task {name} has {' and '.join(keys) or 'no config'}; give one of {known}")


def _combinations(grid: Values, tasks: Iterable[SuiteTask]) -> tuple[Values, ...]:
    """All combinations of the grid's values, each of which fits every fine-tuning."""
    check_settable(grid, "grid")
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise UsageError(f"grid: {name} = {quoted(values)} is no list of values to try; give some, or leave it out")
        if name in ("task.kind", "task.metric"):
            raise UsageError(f"grid has {name}: scores by different ones can't be compared; set it for the task")
    if (count := math.prod(map(len, grid.values()))) > MOST:
        raise UsageError(f"grid has {count:,} combinations, and a suite tries at most {MOST:,}; give fewer values")
    for name, values in grid.items():
        if twice := [value for value in values if values.count(value) > 1]:
            raise UsageError(f"grid: {name} has {quoted(twice[0])} twice; give each value once")
    combinations = tuple(dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
    tuned = [task for task in tasks if isinstance(task, FineTuning)]
    if grid and not tuned:
        raise UsageError("grid has settings of fine-tuning, and no task is fine-tuned; leave it out")
    for task in tuned:
        same: dict[str, Values] = {}
        for setting in combinations:
            try:
                config = task.trained(setting)
            except UsageError as error:
                raise UsageError(f"grid, with the task {task.name}: {error}") from None
            if (other := same.setdefault(config.model_dump_json(), setting)) is not setting:
                raise UsageError(f"grid: {quoted(other)} and {quoted(setting)} are the same settings; leave one out")
    return combinations


def _check_distinct(what: str, names: list[str]) -> None:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two {what} are called {twice!r}; give each a name of its own by name = ...")
