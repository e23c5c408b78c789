"""Makes checked suites before anything runs: from TOML files, and for a fine-tuning with several seeds."""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.wording import counted
from bert_jax.finetuning.finetune import open_model, read_rows
from bert_jax.interchange.hub import model_place
from bert_jax.pretraining.fitting import fitted
from bert_jax.products.suite.measuring import held_out_config
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
    with_settings,
)
from bert_jax.products.suite.tasks import SUITE_TASKS, FineTuning, SuiteTask
from bert_jax.products.suite.work import SuiteWork
from bert_jax.run.config_files import load_config, run_given_as_config
from bert_jax.run.results import Results, read_results
from bert_jax.run.run_config import check_recorded_places
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.json_file import read_toml


def read_suite(
    path: Path,
    data: str | None = None,
    only: Sequence[str] = (),
    rows: Mapping[str, Sequence[str]] | None = None,
    **changes: Any,
) -> CheckedSuite:
    """Reads and checks a suite file. `data` and `changes` replace its values, `only` names the tasks to keep. `rows`
    has files of `train`, `dev` and `test` rows, one for each of the first tasks; the other tasks are left out.

    Raises UsageError for the first thing that is wrong, such as an unknown name, a missing file, or a name given twice.
    """
    try:
        values = read_toml(path)
        tables = values.get("models")
        values |= {name: value for name, value in {"data": data, **changes}.items() if value}
        if isinstance(tables, list) and (each := [table for table in tables if _of_each(table)]):
            if not changes.get("models"):
                raise UsageError(f"{each[0].get('name', 'a model')} begins with each model; give some: --models FOLDER")
            values["models"] = [made for table in tables for made in _for_each(table, changes["models"])]
        elif isinstance(models := values.get("models"), list | tuple):
            values["models"] = [{"path": each} if isinstance(each, str) else each for each in models]
        for name, sources in (rows or {}).items():
            _set_rows(values.get("tasks", []), name, sources)
        return _checked(SuiteTables(**values), path, only)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


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
    opening = cache(TrainedModel.open)  # a model of --models has several tables
    models = [_model(table, tables, opening) for table in tables.models]
    _check_distinct("models", [model.name for model in models])
    _check_recipes(tables, {model.name: model.recipe for model in models if model.recipe})
    _check_beginnings(models)
    if not tables.tasks and not any(model.recipe for model in models):
        raise UsageError("it has no [[tasks]], and no recipe to pretrain; give at least one")
    tasks = _tasks(tables, only)
    lacking = lacking_heads(models, tasks, opening)
    return CheckedSuite(tuple(models), tasks, _combinations(tables.grid, tasks), tables, path, lacking)


def _check_recipes(tables: SuiteTables, recipes: dict[str, RunConfig]) -> None:
    """Raises UsageError for recipes that can't be trained with one budget and measured on the same sequences."""
    if not recipes and (idle := [name for name in ("budget", "source") if getattr(tables, name)]):
        raise UsageError(f"{idle[0]} is for recipes, and every model is trained; leave it out")
    for name, units in itertools.product(recipes, tables.units) if tables.vocabulary == "shared" else ():
        try:
            held_out_config(recipes[name], next(iter(recipes.values())), units)
        except UsageError as error:
            sequences = f"the held-out sequences of {next(iter(recipes))}, masked by {units}"
            raise UsageError(f"{name} can't be measured on {sequences}: {error}") from None
    for name, recipe in recipes.items() if tables.budget and not tables.budget.steps else ():
        if len({(phase.length, phase.batch_size) for phase in recipe.phases}) > 1:
            raise UsageError(
                f"{name} has phases of several shapes, whose steps take different times; give a budget of steps"
            )


def _check_beginnings(models: Sequence[SuiteModel]) -> None:
    """Raises UsageError if `begin` names no recipe, or a recipe that itself begins with another."""
    recipes = {model.name: model for model in models if model.recipe}
    for model in models:
        if model.begin is not None:
            check_known(model.begin, recipes, f"{model.name} begins with", "recipe of the suite")
            if (begun := recipes[model.begin]).begin is not None:
                raise UsageError(
                    f"{model.name} begins with {begun.name}, which begins with {begun.begin}; name another"
                )


def lacking_heads(
    models: Sequence[SuiteModel],
    tasks: Iterable[SuiteTask],
    opening: Callable[[Place], TrainedModel] = TrainedModel.open,
) -> dict[tuple[str, str], str]:
    """Which models, opened by `opening`, can't be measured on which tasks, by their names, and why. Raises UsageError
    for a path that is no model, for rows that can't be read, and for a task on which no model can be measured."""
    for task in tasks:
        task.check()
    lacking = dict[tuple[str, str], str]()
    for model in models:
        heads = set(opening(place_of(model.path)).shapes) if model.path else {"masked_lm"}
        if model.recipe and model.recipe.model.discriminator:
            heads = set()
        lacking |= {(model.name, task.name): lack for task in tasks if (lack := task.lacks(heads))}
    for task in tasks if models else ():
        if all((model.name, task.name) in lacking for model in models):
            raise UsageError(f"no model can be measured on {task.name}: each {lacking[models[0].name, task.name]}")
    return lacking


def _model(table: ModelTable, tables: SuiteTables, opening: Callable[[Place], TrainedModel]) -> SuiteModel:
    if (table.path is None) == (table.config is None):
        raise UsageError(f"the model {table.name or ''} needs either a path (a trained model) or a config (a recipe)")
    if table.path is not None:
        if table.begin or table.changes or table.init or table.tags:
            given = "begin, init, tags and set are for a model with a config; leave them out"
            raise UsageError(f"{table.path} is trained; {given}")
        path = str(model_place(table.path))
        return SuiteModel(table.name or Path(table.path).name, path)
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
        changes["init"] = str(model_place(table.init))
    try:
        recipe = fitted(_recipe(table.config, changes), opening=opening).config
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
    config = load_config(name, RunConfig)
    if run := run_given_as_config(name, RunConfig):
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


def suite_of_seeds(config: FinetuneConfig, count: int) -> CheckedSuite:
    """The suite of a fine-tuning with `count` seeds from `config.seed` on. Raises UsageError for a model that can't
    learn the task, for rows that can't be used, and if nothing is measured."""
    if not config.task.dev and not config.task.source:
        raise UsageError("--seeds compares scores, and --task.dev names no rows to measure on; give some by --task.dev")
    read_rows(config, open_model(config))  # refuses rows before anything is written
    seeds, name = tuple(range(config.seed, config.seed + count)), config.task.name or config.task.rows_name
    model = SuiteModel(Path(str(config.init)).name, str(model_place(str(config.init))))
    task = FineTuning(name=name, config=config.replace(seed=0, init=None))
    return CheckedSuite((model,), (task,), ({},), SuiteTables(seeds=seeds), Path("finetune --seeds"))


def mean_results(work: SuiteWork) -> Results:
    """The mean of every measurement over the seeds of a `suite_of_seeds`, and the `run` with the best score."""
    (model,), (task,), seeds = work.suite.models, work.suite.tuned, work.suite.tables.seeds
    runs = [work.tuning(model, task, {}, seed).path for seed in seeds]
    measured = {run: read_results(run / "results.json")[0] for run in runs}
    first, best = measured[runs[0]], max(runs, key=lambda run: measured[run].logged["score"])
    means = {name: fmean(results.logged[name] for results in measured.values()) for name in first.logged}
    named = {"task": first.task, "metric": first.metric, "seeds": list(seeds), "measured_on": first.measured_on}
    return Results.model_validate(named | means | {"run": str(best)})
