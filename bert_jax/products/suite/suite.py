"""A checked suite: its models, its tasks and the settings to try."""

from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.config.run import RunConfig
from bert_jax.interchange.model_path import local_place
from bert_jax.products.suite.suite_tables import BITS_TASK, HELD_OUT_TASK, SuiteTables, faults_of
from bert_jax.products.suite.tasks import FineTuning, HeldOutText, HeldOutTokens, SuiteTask


class SuiteModel(NamedTuple):
    """A model of a suite."""

    name: str
    path: str | None
    """The absolute path of a trained model, or its name on the hub before `with_places`; None for a recipe."""
    recipe: RunConfig | None = None
    begin: str | None = None
    """Name of the recipe from whose parameters this one begins."""


class CheckedSuite(NamedTuple):
    """A checked suite. `read_suite` checks what files tell, and `with_opened_models` what models tell."""

    models: tuple[SuiteModel, ...]
    tasks: tuple[SuiteTask, ...]
    settings: tuple[dict[str, Any], ...]
    """The combinations of the grid; without a grid, one empty combination."""
    tables: SuiteTables
    file: Path
    """The suite's TOML file."""
    lacking: dict[tuple[str, str], str] = {}
    """(model name, task name) -> why the model has no score on the task, as a verb and its object; empty until the
    models are opened."""
    causal: frozenset[str] = frozenset()
    """Names of the models that are causal; empty until the models are opened."""

    def with_places(self) -> "CheckedSuite":
        """The suite with models of the hub downloaded, and their places instead of their names. Raises UsageError for
        one that can't be had, and for a path at which nothing is."""
        with faults_of(self.file):
            return self._replace(models=tuple(map(_with_place, self.models)))

    def model(self, name: str) -> SuiteModel:
        return next(model for model in self.models if model.name == name)

    @property
    def recipes(self) -> dict[str, SuiteModel]:
        return {model.name: model for model in self.models if model.recipe}

    @property
    def tuned(self) -> list[FineTuning]:
        return [task for task in self.tasks if isinstance(task, FineTuning)]

    @property
    def measured(self) -> dict[str, SuiteTask]:
        """What models are measured on, by name: the tasks and, for recipes, held-out tokens with each kind of units."""
        if self.tables.vocabulary == "own":
            bits = HeldOutText(name=BITS_TASK)
            return {task.name: task for task in ((bits, *self.tasks) if self.recipes else self.tasks)}
        from bert_jax.pretraining.objective import OBJECTIVES  # imports JAX

        held_out, several = list[SuiteTask](), ("masked", "permuted")
        for predict in dict.fromkeys(model.recipe.objective.predict for model in self.models if model.recipe):
            question = OBJECTIVES[predict].main_question
            for kind in self.tables.units if predict in several else self.tables.units[:1]:
                details = f", {question.label}" * (predict != "masked") + f", {kind}" * (kind != self.tables.units[0])
                name, scores = f"{HELD_OUT_TASK}{details}", (question.accuracy,)
                held_out.append(HeldOutTokens(name=name, scores=scores, units=kind, predict=predict))
        return {task.name: task for task in (*held_out, *self.tasks)}


def _with_place(model: SuiteModel) -> SuiteModel:
    from bert_jax.interchange.hub import model_place

    if model.path and not local_place(model.path):
        return model._replace(path=str(model_place(model.path)))
    if model.recipe and model.recipe.init and not local_place(model.recipe.init):
        return model._replace(recipe=model.recipe.replace(init=str(model_place(model.recipe.init))))
    return model
