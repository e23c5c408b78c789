"""Reads a suite's TOML file, and checks models, tasks, settings and files before anything runs."""

import difflib
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from bert_jax.interchange.hub import model_place
from bert_jax.products.suite.suite_tables import (
    HELD_OUT_TASK,
    MOST,
    TAKEN,
    ModelTable,
    SuiteModel,
    SuitePlan,
    SuiteTables,
    SuiteTask,
    TaskTable,
    check_settable,
    flag_words,
    held_out_config,
)
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import UsageError, quoted, with_names
from bert_jax.system.json_file import read_toml

Parse = Callable[[Literal["pretrain", "finetune"], Sequence[str]], Any]
"""Gives the settings that a command has with these words, CONFIG first. Raises UsageError for wrong ones."""
_COMPRESSED = ("", ".gz", ".zst")
"""Endings that a file of rows may have besides the name in the suite."""
_MOST_FILES = 100_000
"""Maximum number of files and folders among which rows are looked for."""


def read_suite(
    path: Path, parse: Parse, data: str | None = None, only: Sequence[str] = (), **changes: Any
) -> SuitePlan:
    """Reads and checks a suite file. `data` and `changes` replace its values, `only` names the tasks to keep.

    Raises UsageError for the first thing that is wrong, such as an unknown name, a missing file, or a name given twice.
    """
    try:
        values = read_toml(path)
        values |= {name: value for name, value in {"data": data, **changes}.items() if value}
        if isinstance(models := values.get("models"), list | tuple):
            values["models"] = [{"path": each} if isinstance(each, str) else each for each in models]
        return _checked(SuiteTables(**values), path, parse, only)
    except UsageError as error:
        raise UsageError(f"{path}: {with_names(error.message)}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _checked(tables: SuiteTables, path: Path, parse: Parse, only: Sequence[str]) -> SuitePlan:
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
            if (begun := next(other for other in models if other.name == model.begin)).begin is not None:
                raise UsageError(
                    f"{model.name} begins with {begun.name}, which begins with {begun.begin}; name another"
                )
    for name, units in itertools.product(recipes, tables.units):
        try:
            held_out_config(recipes[name], next(iter(recipes.values())), units)
        except UsageError as error:
            sequences = f"the held-out sequences of {next(iter(recipes))}, masked by {units}"
            raise UsageError(f"{name} can't be measured on {sequences}: {with_names(error.message)}") from None
    for name, recipe in recipes.items() if tables.budget and not tables.budget.steps else ():
        if len({(phase.length, phase.batch_size) for phase in recipe.phases}) > 1:
            raise UsageError(
                f"{name} has phases of several shapes, whose steps take different times; give a budget of steps"
            )
    named = {_task_name(table): table for table in tables.tasks}
    _check_distinct("tasks", [_task_name(table) for table in tables.tasks])
    if taken := [name for name in named if name in TAKEN or name.startswith(HELD_OUT_TASK)]:
        raise UsageError(f"the task {taken[0]} is called like what every suite has; give it another name by name = ...")
    for name in only:
        _check_known(name, named, "--tasks", "task of the suite")
    if not named and not recipes:
        raise UsageError("it has no [[tasks]], and no recipe to pretrain; give at least one")
    if tables.data:
        _check_size(place_of(tables.data))
    missing: dict[str, str] = {}
    tasks = [_task(name, named[name], tables, parse, missing) for name in named if not only or name in only]
    if missing:
        others = [task.name for task in tasks if task.name not in missing]
        leave = f"; or measure the others alone: --tasks {' '.join(others)}" if others else ""
        raise UsageError("; ".join(f"{name}: {text}" for name, text in missing.items()) + leave)
    lacking = lacking_heads(models, tasks)
    return SuitePlan(tuple(models), tuple(tasks), _combinations(tables.grid, tasks, parse), tables, path, lacking)


def lacking_heads(models: Sequence[SuiteModel], tasks: Iterable[SuiteTask]) -> dict[tuple[str, str], str]:
    """Which models can't score which pairs, by their names, and why. Raises UsageError for a path that is no model, for
    pairs without their columns, for a set of TFDS without its split, and for pairs that no model can score."""
    from bert_jax.inference.minimal_pairs import pair_files, read_pairs
    from bert_jax.records.sources import open_rows
    from bert_jax.run.trained_model import TrainedModel  # needs JAX; a suite of recipes is read without

    of_pairs = [task for task in tasks if task.kind == "pairs"]
    for task in of_pairs:
        for name, file in pair_files(task.places).items():
            next(read_pairs({name: file}, None, None, Counter()), None)
    for source in (
        each for task in tasks if task.config for each in (task.config.task.train, task.config.task.dev_source)
    ):
        if source and source.startswith("tfds:"):
            open_rows(source)  # raises for a split that isn't there
    lacking = dict[tuple[str, str], str]()
    for model in models:
        shapes = TrainedModel.open(place_of(model.path)).shapes if model.path else {"masked_lm": None}
        if "masked_lm" not in shapes or model.recipe and model.recipe.model.discriminator:
            lacking |= {(model.name, task.name): "has no head that predicts tokens" for task in of_pairs}
    if models and of_pairs and len(lacking) == len(models) * len(of_pairs):
        raise UsageError(f"{of_pairs[0].name} has pairs to score, and no model has a head that predicts tokens")
    return lacking


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
    check_settable(table.changes, f"set of {name}")
    words = (table.config, *flag_words(values))
    return SuiteModel(name, None, _parsed(parse, "pretrain", words, name), words, table.begin)


def _task_name(table: TaskTable) -> str:
    of_files = Path(table.pairs or table.beir or "").name.partition(".")[0].strip("*_-") or "pairs"
    return table.name or (table.config or of_files).removesuffix(".py").rpartition("/")[2]


def _task(name: str, table: TaskTable, tables: SuiteTables, parse: Parse, missing: dict[str, str]) -> SuiteTask:
    """The task of a table. Files that aren't there are noted in `missing`, by the task's name."""
    kinds = [kind for kind in ("config", "pairs", "beir") if getattr(table, kind)]
    if len(kinds) != 1:
        raise UsageError(f"the task {name} has {' and '.join(kinds) or 'no config'}; give one of config, pairs, beir")
    wanted = list[str]()

    def rows_or_missing(pattern: str, several: bool = False) -> list[str]:
        places = find_rows(pattern, tables.data)
        if not places or len(places) > 1 and not several:
            wanted.append(f"no {pattern}" if not places else f"{len(places)} files {pattern} instead of one")
        return places or [pattern]

    def judged(source: str, usual: str) -> str:
        folder, hash_sign, split = source.partition("#")
        files = [
            rows_or_missing(f"{folder}/{name}")
            for name in ("corpus.jsonl", "queries.jsonl", f"qrels/{split or usual}.tsv")
        ]
        return files[0][0].rpartition("/")[0] + hash_sign + split

    given = table.model_dump(exclude_defaults=True, by_alias=True)
    if not table.config and (others := [each for each in given if each not in ("name", *kinds, "publisher")]):
        raise UsageError(f"the task {name} has {kinds[0]}, and {others[0]} is for a fine-tuning; leave it out")
    if table.pairs:
        task = SuiteTask(name, "pairs", tuple(rows_or_missing(table.pairs, several=True)))
    elif table.beir:
        task = SuiteTask(name, "beir", (judged(table.beir, "test"),))
    else:
        assert table.config
        of_data = table.files if tables.data else {}
        own = {"name": name, "test": table.test} | (table.model_extra or {}) | of_data
        rows = {"test": own.pop("test")} if tables.report == "test" else {}
        check_settable(table.changes, f"set of the task {name}")
        values = {f"task.{key}": value for key, value in own.items() if key != "test"} | table.changes
        config = _parsed(parse, "finetune", (table.config, *flag_words(values)), f"the task {name}")
        for each, source in {"train": config.task.train, "dev": config.task.dev, **rows}.items():
            if source is None:
                raise UsageError(f"the task {name} has no {each} rows; give {each} = FILE")
            if source.startswith("beir:"):
                rows[each] = f"beir:{judged(source.removeprefix('beir:'), each)}"
            else:
                rows[each] = source if each == "dev" and config.task.dev_share else rows_or_missing(source)[0]
                if os.path.isdir(rows[each]):
                    wanted.append(f"a folder {rows[each]} instead of a file of rows")
        test = rows.pop("test", None)
        values |= {f"task.{each}": source for each, source in rows.items()}
        for score in table.scores or ():
            _check_known(score, config.task.facts.metrics, f"scores of the task {name}", "metric of its kind")
        words, config = (table.config, *flag_words(values)), config.change(task=rows)
        task = SuiteTask(name, "finetune", (), config, words, test, table.scores or ())
    if wanted:
        where = f" (published at {table.publisher})" if table.publisher else ""
        below = "in the working directory; give its folder by --data"
        if tables.data:
            below = f"below {place_of(tables.data)}, where links to folders aren't followed"
        missing[name] = f"found {' and '.join(wanted)} {below}{where}"
    return task


def find_rows(pattern: str, data: str | None) -> list[str]:
    """The absolute paths of the files, also compressed, or the folder that `pattern` names, in `data` at any depth;
    [] if none is there. Links to folders aren't followed.

    A set of TFDS, or a place in a bucket, is taken as it is.
    """
    if ":" in pattern.partition("/")[0]:
        return [pattern]
    within = data and not os.path.isabs(pattern)
    below = Path(place_of(data)) if data and within else Path("/")
    pattern = re.sub(r"(\*\*/)+", "**/", f"**/{pattern}" if within else str(place_of(pattern))[1:])
    if pattern.count("**/") > 2:  # the search takes the number of folders to this power
        raise UsageError(f"{pattern} has ** more than twice; give a pattern with fewer, or a folder")
    if not within and "**" in pattern:  # a suite's own `data` was counted before
        _check_size(below / pattern.partition("**")[0])
    try:
        found = [sorted(below.glob(pattern + ending)) for ending in _COMPRESSED]
        files = next(filter(None, ([str(path) for path in paths if path.is_file()] for paths in found)), [])
        return files or [str(path) for path in found[0] if path.is_dir()]
    except (OSError, ValueError, NotImplementedError, RecursionError):  # what glob raises for what can't be a path
        return []


def _check_size(data: Place) -> None:
    """Raises UsageError for a folder with too many files to search."""
    count = 0
    for _, folders, files in os.walk(data):
        if (count := count + len(folders) + len(files)) > _MOST_FILES:
            raise UsageError(f"{data} has more than {_MOST_FILES:,} files to search; give the folder of the rows alone")


def _combinations(grid: dict[str, Any], tasks: Iterable[SuiteTask], parse: Parse) -> tuple[dict[str, Any], ...]:
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
    tuned = [task for task in tasks if task.config]
    if grid and not tuned:
        raise UsageError("grid has settings of fine-tuning, and no task is fine-tuned; leave it out")
    for task in tuned:
        same: dict[str, dict[str, Any]] = {}
        for setting in combinations:
            config = _parsed(parse, "finetune", task.command(setting, seed=0), f"grid, with the task {task.name}")
            if (other := same.setdefault(config.model_dump_json(), setting)) is not setting:
                raise UsageError(f"grid: {quoted(other)} and {quoted(setting)} are the same settings; leave one out")
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
