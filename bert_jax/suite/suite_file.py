"""A suite's TOML file: models, tasks, settings to try, seeds and a budget, checked before anything runs."""

import difflib
import glob
import itertools
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.objective import UnitKind
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import OneOrSeveral, Settings
from bert_jax.config.task import TaskConfig
from bert_jax.interchange.hub import model_place
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import UsageError, with_names
from bert_jax.system.files import matching_files
from bert_jax.system.json_file import MOST_BYTES, read_bytes

Load = Callable[[str, type], Any]
"""Loads a config by its name or file: `load_config`."""
_COMPRESSED = ("", ".gz", ".zst")
"""Endings that a file of rows may have besides the name in the suite."""


def _as_table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f'={value!r:.40}: expected a table such as {{"optimizer.peak-learning-rate" = 3e-4}}')
    return value


Values = Annotated[dict[str, Any], BeforeValidator(_as_table)]
"""Settings of a config by their dotted names, as the flags of a command spell them."""


class ModelTable(Settings):
    """A [[models]] table: a trained model (`path`), or a recipe to pretrain (`config`)."""

    name: str | None = None
    """Name in tables. None: the last part of the path, or the config's name."""
    path: str | None = None
    """A run, a checkpoint, a Hugging Face directory, or a model of the hub."""
    config: str | None = None
    """A config of `bert-jax pretrain`."""
    begin: str | None = None
    """Name of a recipe from whose parameters this one begins. Each takes half of the budget."""
    changes: Values = Field({}, alias="set")
    """Settings of the config to change."""


class TaskTable(Settings):
    """A [[tasks]] table, without the settings of TaskConfig, which it may have too."""

    name: str | None = None
    """Name in tables. None: that of the config, the files or the folder."""
    config: str | None = None
    """A config of `bert-jax finetune`."""
    pairs: str | None = None
    """Files of minimal pairs, a pattern, for `bert-jax score`."""
    beir: str | None = None
    """A folder of judged texts in BEIR's layout, for `bert-jax evaluate`."""
    test: str | None = None
    """Rows that are measured where the suite reports `test`."""
    scores: OneOrSeveral | None = None
    """Metrics whose mean is the task's score. None: the one that chooses the checkpoint."""
    files: Values = {}
    """Settings of TaskConfig, and `test`, that hold where the suite is given `data`: the publisher's own files."""
    publisher: str | None = None
    """Where the publisher has the rows."""
    changes: Values = Field({}, alias="set")
    """Further settings of the config to change."""


class Budget(Settings):
    """What each pretraining may use, one of three. Without it a recipe takes the steps of its config."""

    steps: Annotated[int, Field(gt=0)] | None = None
    seconds: Annotated[float, Field(gt=0.0)] | None = None
    """Seconds of training at the step time measured: on a CPU seconds of one core, elsewhere of time that passes."""
    flops: Annotated[float, Field(gt=0.0)] | None = None
    """FLOPs of training by formula."""

    def conflicts(self) -> Iterator[str]:
        """Yields a message unless one budget is given."""
        if len(given := self.model_dump(exclude_none=True)) != 1:
            yield f"[budget] has {' and '.join(given) or 'nothing'}; give one of {', '.join(type(self).model_fields)}"


class SuiteTables(Settings):
    """The content of a suite file."""

    models: tuple[ModelTable, ...] = ()
    tasks: tuple[TaskTable, ...] = ()
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    """Seeds of fine-tuning; a recipe is pretrained with each, too."""
    grid: Values = {}
    """Lists of values by setting. Every fine-tuning is done with each combination."""
    select: Literal["dev"] = "dev"
    """The rows on which the best combination of each task is chosen, by its mean over seeds."""
    report: Literal["dev", "test"] = "dev"
    """The rows whose scores are reported."""
    data: str | None = None
    """Folder of rows, pairs and judged texts: they are found at any depth of it by the end of their path."""
    source: OneOrSeveral | None = None
    """Text of all recipes, as `--data.source` names it. None: that of their configs."""
    budget: Budget | None = None
    measured_as: str | None = None
    """The recipe on whose held-out sequences all recipes are measured. None: the first one."""
    units: tuple[UnitKind, ...] = ("piece",)
    """What is masked together in those sequences; each kind is measured by itself."""


class SuiteModel(NamedTuple):
    """A model of a suite."""

    name: str
    path: str | None
    """The absolute path of a trained model; None for a recipe."""
    recipe: RunConfig | None = None
    words: tuple[str, ...] = ()
    """Config and flags of a recipe on the command line of `bert-jax pretrain`."""
    begin: str | None = None


class SuiteTask(NamedTuple):
    """A task of a suite."""

    name: str
    kind: Literal["finetune", "pairs", "beir"]
    places: tuple[str, ...] = ()
    """The files of pairs, or the folder of judged texts."""
    config: FinetuneConfig | None = None
    words: tuple[str, ...] = ()
    """Config and flags of a fine-tuning on the command line of `bert-jax finetune`."""
    test: str | None = None
    scores: tuple[str, ...] = ()

    def measured_rows(self, report: str) -> str | None:
        """The rows whose score is reported; None for pairs and judged texts."""
        return None if self.config is None else self.test if report == "test" else self.config.task.dev


class SuitePlan(NamedTuple):
    """A checked suite."""

    models: tuple[SuiteModel, ...]
    tasks: tuple[SuiteTask, ...]
    settings: tuple[dict[str, Any], ...]
    """The combinations of the grid; one that is empty without a grid."""
    tables: SuiteTables

    @property
    def recipes(self) -> dict[str, SuiteModel]:
        """The models to pretrain, by name."""
        return {model.name: model for model in self.models if model.recipe}


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


def flag_words(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of a command line that set `values`, by dotted name."""
    words: list[str] = []
    for name, value in values.items():
        before, dot, last = name.replace("_", "-").rpartition(".")
        if isinstance(value, bool):
            words.append(f"--{before}{dot}{'' if value else 'no-'}{last}")
        elif isinstance(value, (list, tuple)):
            words += [f"--{before}{dot}{last}", *map(str, value)]
        else:
            words.append(f"--{before}{dot}{last}={value}")
    return tuple(words)


def setting_text(setting: Mapping[str, Any]) -> str:
    """A combination of the grid for tables: "peak-learning-rate 0.0003, epochs 3"."""
    return ", ".join(f"{name.rpartition('.')[2].replace('_', '-')} {value}" for name, value in setting.items())


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
            wanted.append(pattern if not places else f"one file {pattern} (there are {len(places)})")
        return places or [pattern]

    if table.config is None:
        if own or table.files or table.changes or table.test or table.scores:
            raise UsageError(f"the task {name} has {given[0]}, and settings of a fine-tuning; leave these out")
        places = tuple(found(table.pairs or table.beir or "", several=given[0] == "pairs"))
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
        missing[name] = f"{', '.join(wanted)} isn't {below}{where}"
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
