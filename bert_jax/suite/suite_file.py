"""Reads a suite's TOML file, and checks models, tasks, settings and files before anything runs."""

import difflib
import glob
import itertools
import os
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

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

Parse = Callable[[Literal["pretrain", "finetune"], Sequence[str]], Any]
"""Gives the settings that a command has with these words, CONFIG first. Raises UsageError for wrong ones."""
_COMPRESSED = ("", ".gz", ".zst")
"""Endings that a file of rows may have besides the name in the suite."""


def read_suite(
    path: Path, parse: Parse, data: str | None = None, only: Sequence[str] = (), **changes: Any
) -> SuitePlan:
    """Reads and checks a suite file. `data` and `changes` replace its values, `only` names the tasks to keep.

    Raises UsageError for the first thing that is wrong, such as an unknown name, a missing file, or a name given twice.
    """
    try:
        values = tomllib.loads(read_bytes(path, MOST_BYTES).decode())
        values |= {name: value for name, value in {"data": data, **changes}.items() if value}
        if isinstance(models := values.get("models"), list | tuple):
            values["models"] = [{"path": each} if isinstance(each, str) else each for each in models]
        return _checked(SuiteTables(**values), parse, only)
    except UsageError as error:
        raise UsageError(f"{path}: {with_names(error.message)}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _checked(tables: SuiteTables, parse: Parse, only: Sequence[str]) -> SuitePlan:
    if not tables.models:
        raise UsageError("it names no models; give some: --models RUN FOLDER")
    models = [_model(table, tables, parse) for table in tables.models]
    _check_distinct("models", [model.name for model in models])
    recipes = {model.name: model.recipe for model in models if model.recipe}
    if not recipes and (idle := [name for name in ("budget", "source") if getattr(tables, name)]):
        raise UsageError(f"{idle[0]} is for recipes, and every model is trained; leave it out")
    for model in models:
        changed = [word for word in model.words if word.startswith("--vocabulary.")]
        if changed and model.name != next(iter(recipes)):
            raise UsageError(f"{model.name} sets {changed[0]}, but all recipes share the vocabulary of the first")
        if model.begin is not None:
            _check_known(model.begin, recipes, f"{model.name} begins with", "recipe of the suite")
    for name, recipe in recipes.items() if tables.budget and not tables.budget.steps else ():
        if len({(phase.length, phase.batch_size) for phase in recipe.phases}) > 1:
            raise UsageError(
                f"{name} has phases of several shapes, whose steps take different times; give a budget of steps"
            )
    named = {_task_name(table): table for table in tables.tasks}
    _check_distinct("tasks", [_task_name(table) for table in tables.tasks])
    for name in only:
        _check_known(name, named, "--tasks", "task of the suite")
    if not named and not recipes:
        raise UsageError("it has no [[tasks]], and no recipe to pretrain; give at least one")
    missing: dict[str, str] = {}
    tasks = [_task(name, named[name], tables, parse, missing) for name in named if not only or name in only]
    if missing:
        others = [task.name for task in tasks if task.name not in missing]
        leave = f"; or measure the others alone: --tasks {' '.join(others)}" if others else ""
        raise UsageError("; ".join(f"{name}: {text}" for name, text in missing.items()) + leave)
    check_heads(models, tasks)
    return SuitePlan(tuple(models), tuple(tasks), _combinations(tables.grid, tasks, parse), tables)


def check_heads(models: Iterable[SuiteModel], tasks: Iterable[SuiteTask]) -> None:
    """Raises UsageError for a path that is no model, for pairs without their columns, and for a model that can't score
    pairs where a task has some."""
    from bert_jax.inference.minimal_pairs import pair_files, read_pairs
    from bert_jax.run.trained_model import TrainedModel  # needs JAX; a suite of recipes is read without

    of_pairs = [task for task in tasks if task.kind == "pairs"]
    for task in of_pairs:
        for name, file in pair_files(task.places).items():
            next(read_pairs({name: file}, ("sentence_good", "sentence_bad"), None, Counter()), None)
    for model in models:
        shapes = TrainedModel.open(place_of(model.path)).shapes if model.path else {"masked_lm": None}
        if of_pairs and ("masked_lm" not in shapes or model.recipe and model.recipe.model.discriminator):
            pairs = f"{of_pairs[0].name} has pairs to score"
            raise UsageError(f"{model.name} has no head that predicts tokens, and {pairs}; leave out one")


def _model(table: ModelTable, tables: SuiteTables, parse: Parse) -> SuiteModel:
    if (table.path is None) == (table.config is None):
        raise UsageError(f"the model {table.name or ''} needs either a path (a trained model) or a config (a recipe)")
    if table.path is not None:
        if table.begin or table.changes:
            raise UsageError(f"{table.path} is trained; begin and set are for a model with a config; leave them out")
        path = str(model_place(table.path))
        return SuiteModel(table.name or Path(table.path).name, path)
    assert table.config is not None
    name = table.name or table.config.removesuffix(".py").rpartition("/")[2]
    values = table.changes | ({"data.source": tables.source} if tables.source else {})
    words = (table.config, *flag_words(values))
    return SuiteModel(name, None, _parsed(parse, "pretrain", words, name), words, table.begin)


def _task_name(table: TaskTable) -> str:
    of_files = Path(table.pairs or table.beir or "").name.partition(".")[0].strip("*_-") or "pairs"
    return table.name or (table.config or of_files).removesuffix(".py").rpartition("/")[2]


def _task(name: str, table: TaskTable, tables: SuiteTables, parse: Parse, missing: dict[str, str]) -> SuiteTask:
    """The task of a table. Files that aren't there are noted in `missing`, by the task's name."""
    kinds = [kind for kind in ("config", "pairs", "beir") if getattr(table, kind) is not None]
    if len(kinds) != 1:
        raise UsageError(f"the task {name} has {' and '.join(kinds) or 'no config'}; give one of config, pairs, beir")
    wanted = list[str]()

    def rows_or_missing(pattern: str, several: bool = False) -> list[str]:
        places = find_rows(pattern, tables.data)
        if not places or len(places) > 1 and not several:
            wanted.append(f"no {pattern}" if not places else f"{len(places)} files {pattern} instead of one")
        return places or [pattern]

    given = table.model_dump(exclude_defaults=True, by_alias=True)
    if not table.config and (others := [each for each in given if each not in ("name", *kinds, "publisher")]):
        raise UsageError(f"the task {name} has {kinds[0]}, and {others[0]} is for a fine-tuning; leave it out")
    if table.pairs:
        task = SuiteTask(name, "pairs", tuple(rows_or_missing(table.pairs, several=True)))
    elif table.beir:
        folder, hash_sign, split = table.beir.partition("#")
        place = rows_or_missing(f"{folder}/corpus.jsonl")[0].rpartition("/")[0]
        task = SuiteTask(name, "beir", (f"{place}{hash_sign}{split}",))
    else:
        assert table.config
        of_data = table.files if tables.data else {}
        own = {"name": name, "test": table.test} | (table.model_extra or {}) | of_data
        rows = {"test": own.pop("test")} if tables.report == "test" else {}
        values = {f"task.{key}": value for key, value in own.items() if key != "test"} | table.changes
        config = _parsed(parse, "finetune", (table.config, *flag_words(values)), f"the task {name}")
        for each, source in {"train": config.task.train, "dev": config.task.dev, **rows}.items():
            if source is None:
                raise UsageError(f"the task {name} has no {each} rows; give {each} = FILE")
            rows[each] = source if each == "dev" and config.task.dev_share else rows_or_missing(source)[0]
        test = rows.pop("test", None)
        values |= {f"task.{each}": source for each, source in rows.items()}
        for score in table.scores or ():
            _check_known(score, config.task.facts.metrics, f"scores of the task {name}", "metric of its kind")
        words, config = (table.config, *flag_words(values)), config.change(task=rows)
        task = SuiteTask(name, "finetune", (), config, words, test, table.scores or ())
    if wanted:
        where = f" (published at {table.publisher})" if table.publisher else ""
        below = (
            f"below {place_of(tables.data)}" if tables.data else "in the working directory; give its folder by --data"
        )
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


def _combinations(grid: dict[str, Any], tasks: Iterable[SuiteTask], parse: Parse) -> tuple[dict[str, Any], ...]:
    """All combinations of the grid's values, each of which fits every fine-tuning."""
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise UsageError(f"grid: {name} = {values!r:.40} is no list of values to try; give some, or leave it out")
    combinations = tuple(dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
    tuned = [task for task in tasks if task.config]
    if grid and not tuned:
        raise UsageError("grid has settings of fine-tuning, and no task is fine-tuned; leave it out")
    for task, setting in itertools.product(tuned, combinations):
        _parsed(parse, "finetune", task.command(setting, seed=0), f"grid, with the task {task.name}")
    return combinations


def _parsed(parse: Parse, command: Literal["pretrain", "finetune"], words: Sequence[str], where: str) -> Any:
    """The settings that a command has with `words`. Raises UsageError, with `where` these come from."""
    try:
        return parse(command, words)
    except UsageError as error:
        raise UsageError(f"{where}: {with_names(error.message)}") from None


def _check_known(name: str, known: Iterable[str], where: str, what: str) -> None:
    """Raises UsageError if `name` is none of `known`, with the nearest of them."""
    if name not in known:
        near = difflib.get_close_matches(name, list(known), n=1)
        meant = f"did you mean {near[0]}?" if near else f"there is {', '.join(known)}"
        raise UsageError(f"{where}: {name!r} is no {what}; {meant}")


def _check_distinct(what: str, names: list[str]) -> None:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two {what} are called {twice!r}; give each a name of its own by name = ...")
