"""What a suite's TOML file may have."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, field_validator

from bert_jax.config.objective import UnitKind
from bert_jax.config.settings import OneOrSeveral, Settings
from bert_jax.config.training import Seed
from bert_jax.config.unused import refuse_unused
from bert_jax.system.errors import UsageError, did_you_mean

Config = TypeVar("Config", bound=Settings)
MOST = 1000
"""Maximum number of models, tasks, seeds, and combinations of a grid."""
EACH = "each"
"""In place of a model in a [[models]] table: each model of the command line."""
HELD_OUT_TASK = "held-out tokens"
"""Beginning of the names of the tasks that measure what recipes learned."""
BITS_TASK = "held-out text"
"""The task that measures recipes of different vocabularies."""
AVERAGE, RANK, PRETRAINING = "average", "rank", "pretraining"
"""The columns of means over tasks and of mean ranks, and the name of a recipe's training among the tasks."""
TAKEN = (AVERAGE, RANK, PRETRAINING, BITS_TASK)
"""Names that no task may have."""
_SET_ELSEWHERE = {
    **dict.fromkeys(("seed", "seeds"), "the suite's seeds = [0, 1]"),
    **{f"task.{name}": f"the task's {name} = ROWS" for name in ("train", "dev", "other-dev", "test")},
    "init": "the suite's models, or init or begin of a recipe",
    "from-random": "bert-jax finetune outside of a suite",
    "hosts": "bert-jax pretrain outside of a suite",
    "data.words": "a config, which may name a function of a program",
    "objective.class-name": "bert_jax.pretrain(objective=...)",
}
"""Settings, or groups of settings, that `set` and a grid can't have -> where they are set instead."""
Values = dict[str, Any]
"""Settings of a config by their dotted names."""


class ModelTable(Settings):
    """A [[models]] table: a trained model (`path`), or a recipe to pretrain (`config`)."""

    name: str | None = None
    """Name in tables. None: the last part of the path, or the config's name."""
    path: str | None = None
    """A run, a checkpoint, a Hugging Face directory, or a model of the hub."""
    config: str | None = None
    """A config of `bert-jax pretrain`."""
    init: str | None = None
    """The model that a recipe begins with. If this or `path` is `each`, the table is repeated for each model of
    `--models`, whose name is appended to that of the table."""
    tags: bool = False
    """Whether a recipe also learns the tags of the training rows of the first task, by `objective.tags`."""
    begin: str | None = None
    """Name of a recipe from whose parameters this one begins. Each takes half of the budget."""
    changes: Values = Field({}, alias="set")
    """Settings of the config to change."""


class Budget(Settings):
    """What each pretraining may use, one of three. Without it a recipe takes the steps of its config."""

    steps: Annotated[int, Field(gt=0)] | None = None
    """Steps of training."""
    seconds: Annotated[float, Field(gt=0.0)] | None = None
    """Seconds of training at the step time measured: on a CPU seconds of one core, elsewhere of time that passes."""
    flops: Annotated[float, Field(gt=0.0)] | None = None
    """FLOPs of training by formula."""

    def _conflicts(self) -> Iterator[str]:
        if len(given := self.model_dump(exclude_none=True)) != 1:
            yield f"[budget] has {' and '.join(given) or 'nothing'}; give one of {', '.join(type(self).model_fields)}"


class SuiteTables(Settings):
    """The content of a suite file."""

    models: Annotated[tuple[ModelTable, ...], Field(max_length=MOST)] = ()
    """Models to measure. All others are compared with the first."""
    tasks: Annotated[tuple[Values, ...], Field(max_length=MOST)] = ()
    """What every model is measured on: tables of the kinds of `SuiteTask`."""
    seeds: Annotated[tuple[Annotated[Seed, Field(strict=True)], ...], Field(min_length=1, max_length=MOST)] = (0,)
    """Seeds of fine-tuning; a recipe is pretrained with each, too."""
    grid: Values = {}
    """Lists of values by setting. Every fine-tuning is done with each combination, and the best one of each task is
    chosen by its mean score on the dev rows over all seeds."""
    report: Literal["dev", "test"] = "dev"
    """The rows whose scores are reported."""
    data: str | None = None
    """Folder of rows, pairs and judged texts: they are found at any depth of it by the end of their path."""
    source: OneOrSeveral | None = None
    """Text of all recipes, as `--data.source` names it. None: that of their configs."""
    vocabulary: Literal["shared", "own"] = "shared"
    """The vocabulary of recipes: that of the first one, so that all predict the same held-out tokens; or each its own,
    so that they are compared by bits per character of the same held-out documents."""
    budget: Budget | None = None
    """What each pretraining may use. None: the steps of its config."""
    units: Annotated[tuple[UnitKind, ...], Field(min_length=1)] = ("piece",)
    """What is masked together in the held-out sequences of the first recipe, on which all recipes are measured. Each
    kind is measured by itself."""

    @field_validator("seeds", "units")
    @classmethod
    def _distinct(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if twice := [value for value in values if values.count(value) > 1]:
            raise ValueError(f" has {twice[0]} twice; give each once")
        return values


@contextlib.contextmanager
def faults_of(file: Path) -> Iterator[None]:
    """Raises UsageError, with the name of the suite's `file` before it, for whatever is wrong in the block."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {getattr(error, 'strerror', None) or error}") from None


def check_settable(values: Values, where: str) -> None:
    """Raises UsageError for settings of `set` or a grid that are set elsewhere, or twice. `where` names the table."""
    names = [name.replace("_", "-") for name in values]
    for name, value in zip(names, values.values(), strict=True):
        if elsewhere := _SET_ELSEWHERE.get(name) or _SET_ELSEWHERE.get(name.partition(".")[0]):
            raise UsageError(f"{where} has {name}, which is set by {elsewhere}; leave it out")
        if names.count(name) > 1:
            raise UsageError(f"{where} has {name} twice; give it once")
        if isinstance(value, dict):
            raise UsageError(f'{where} has a table {name}; name single settings: "{name}.{next(iter(value), "NAME")}"')


def with_settings(config: Config, values: Mapping[str, Any]) -> Config:
    """`config` with other values, by dotted name. Raises UsageError for a wrong one, and for one without effect."""
    changed = config.set(values)
    refuse_unused(changed, {name.replace("-", "_"): value for name, value in values.items()})
    return changed


def check_known(name: str, known: Iterable[str], where: str, what: str) -> None:
    """Raises UsageError if `name` is none of `known`, with the nearest of them."""
    if name not in known:
        meant = did_you_mean(name, known, f"there is {', '.join(known)}")
        raise UsageError(f"{where}: {name!r} is no {what}; {meant}")


def setting_text(setting: Mapping[str, Any]) -> str:
    """A combination of the grid for tables: "peak-learning-rate 0.0003, epochs 3"."""
    return ", ".join(f"{name.rpartition('.')[2].replace('_', '-')} {value}" for name, value in setting.items())
