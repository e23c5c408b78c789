"""What a suite's TOML file may have, and the models and tasks that follow from it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, field_validator

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.objective import Predicted, UnitKind
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import OneOrSeveral, Settings
from bert_jax.config.training import Seed
from bert_jax.system.errors import UsageError

MOST = 1000
"""Maximum number of models, tasks, seeds, and combinations of a grid."""
HELD_OUT_TASK = "held-out tokens"
"""How the names of tasks begin that measure what recipes learned."""
AVERAGE, RANK, PRETRAINING = "average", "rank", "pretraining"
"""The columns of means over tasks and of mean ranks, and the name of a recipe's training among the tasks."""
TAKEN = (AVERAGE, RANK, PRETRAINING)
"""Names that no task may have."""
_SET_ELSEWHERE = {
    **dict.fromkeys(("seed", "seeds"), "the suite's seeds = [0, 1]"),
    **dict.fromkeys(("workdir", "dry-run", "print-config", "help", "help-all"), "the command line of bert-jax suite"),
    **{f"task.{name}": f"the task's {name} = ROWS" for name in ("train", "dev", "other-dev", "test")},
    "init": "the suite's models, or begin of a recipe",
    "from-random": "bert-jax finetune outside of a suite",
    "hosts": "bert-jax pretrain outside of a suite",
    "data.words": "a config, which may name a function of a program",
    "objective.class-name": "bert_jax.pretrain(objective=...)",
}
"""What `set` and a grid can't have, settings and groups of them, and where it is set instead."""
Values = dict[str, Any]
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
    """A [[tasks]] table. Its other values are settings of TaskConfig, which `model_extra` has."""

    model_config = ConfigDict(extra="allow")

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
    """Steps of training."""
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

    models: Annotated[tuple[ModelTable, ...], Field(max_length=MOST)] = ()
    """Models to measure. All others are compared with the first."""
    tasks: Annotated[tuple[TaskTable, ...], Field(max_length=MOST)] = ()
    """What every model is measured on."""
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
    kind: Literal["finetune", "pairs", "beir", "held-out"]
    places: tuple[str, ...] = ()
    """The files of pairs, or the folder of judged texts."""
    config: FinetuneConfig | None = None
    words: tuple[str, ...] = ()
    """Config and flags of a fine-tuning on the command line of `bert-jax finetune`."""
    test: str | None = None
    scores: tuple[str, ...] = ()
    units: UnitKind = "piece"
    """What is masked in held-out tokens."""
    predict: Predicted = "masked"
    """What the recipes learned that are measured on held-out tokens."""

    def command(self, setting: Mapping[str, Any], seed: int) -> tuple[str, ...]:
        """Config and flags of a fine-tuning with a combination of the grid, which replaces settings of the task."""
        return (*self.words, f"--seed={seed}", *flag_words(setting))

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
    file: Path
    """The suite's TOML file."""
    lacking: dict[tuple[str, str], str] = {}
    """Why a model has no score on a task, by the names of both: what it lacks, as a verb and its object."""

    @property
    def recipes(self) -> dict[str, SuiteModel]:
        """The models to pretrain, by name."""
        return {model.name: model for model in self.models if model.recipe}

    @property
    def measured(self) -> dict[str, SuiteTask]:
        """What models are measured on, by name: for recipes held-out tokens with each kind of units, and the tasks."""
        from bert_jax.pretraining.objective import METHODS  # needs JAX

        held_out, several = list[SuiteTask](), ("masked", "permuted")
        for predict in dict.fromkeys(model.recipe.objective.predict for model in self.models if model.recipe):
            question = METHODS[predict].main_question
            for kind in self.tables.units if predict in several else self.tables.units[:1]:
                details = f", {question.label}" * (predict != "masked") + f", {kind}" * (kind != self.tables.units[0])
                name, scores = f"{HELD_OUT_TASK}{details}", (question.accuracy,)
                held_out.append(SuiteTask(name, "held-out", scores=scores, units=kind, predict=predict))
        return {task.name: task for task in (*held_out, *self.tasks)}


def held_out_config(recipe: RunConfig, first: RunConfig, units: UnitKind) -> RunConfig:
    """The settings by which a recipe's model is measured on the first recipe's held-out sequences: the recipe's model
    and the question about tokens that it learned, with the first recipe's data, masks and evaluation.

    Raises UsageError for a model that can't read these sequences, and for units that aren't marked in them.
    """
    masks = first.objective.model_dump(
        include={"evaluated_share", "mask_probability", "random_probability", "replaced_by"}
    )
    objective = recipe.objective.replace(**masks, units=units, pair="none")
    phase = first.phases[0].replace(rotary_base=recipe.phases[-1].rotary_base, units=None)
    return first.replace(model=recipe.model, objective=objective, phases=(phase,), optimizer=recipe.optimizer)


def check_settable(values: Values, where: str) -> None:
    """Raises UsageError for settings of `set` or a grid that are set elsewhere, or twice. `where` names the table."""
    names = [name.replace("_", "-").partition("=")[0] for name in values]
    for name in names:
        if elsewhere := _SET_ELSEWHERE.get(name) or _SET_ELSEWHERE.get(name.partition(".")[0]):
            raise UsageError(f"{where} has {name}, which is set by {elsewhere}; leave it out")
        if names.count(name) > 1:
            raise UsageError(f"{where} has {name} twice; give it once")


def flag_words(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of a command line that set `values`, by dotted name."""
    words: list[str] = []
    for name, value in values.items():
        before, dot, last = name.replace("_", "-").rpartition(".")
        if isinstance(value, bool):
            words.append(f"--{before}{dot}{'' if value else 'no-'}{last}")
        elif isinstance(value, (list, tuple)):
            words += [f"--{before}{dot}{last}={each}" for each in value] or [f"--{before}{dot}{last}"]
        else:
            words.append(f"--{before}{dot}{last}={value}")
    return tuple(words)


def setting_text(setting: Mapping[str, Any]) -> str:
    """A combination of the grid for tables: "peak-learning-rate 0.0003, epochs 3"."""
    return ", ".join(f"{name.rpartition('.')[2].replace('_', '-')} {value}" for name, value in setting.items())
