"""Opens the models of a suite that was read: fits its recipes to them, and tells what they can be measured on."""

from collections.abc import Iterable, Sequence

from bert_jax.pretraining.fitting import fitted
from bert_jax.products.suite.held_out import check_comparable
from bert_jax.products.suite.suite import CheckedSuite, SuiteModel
from bert_jax.products.suite.suite_tables import faults_of
from bert_jax.products.suite.tasks import SuiteTask
from bert_jax.run.trained_model import Opening, TrainedModel, opening_once
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import UsageError


def with_opened_models(suite: CheckedSuite) -> CheckedSuite:
    """The suite with recipes that are fitted to their models and texts, and with what is `lacking`. Raises UsageError
    for the first thing that is wrong."""
    with faults_of(suite.file):
        opening = opening_once()  # a model of --models has several tables
        suite = with_fitted_recipes(suite, opening)
        return suite._replace(lacking=lacking_heads(suite.models, suite.tasks, opening))


def with_fitted_recipes(suite: CheckedSuite, opening: Opening = TrainedModel.open) -> CheckedSuite:
    """The suite with recipes that are fitted to their models, opened by `opening`, and to their texts. Raises
    UsageError for what can't be opened, and for recipes that can't be compared."""
    models = tuple(_fitted(model, opening) for model in suite.models)
    check_comparable({model.name: model.recipe for model in models if model.recipe}, suite.tables)
    return suite._replace(models=models)


def _fitted(model: SuiteModel, opening: Opening) -> SuiteModel:
    if not model.recipe:
        return model
    try:
        return model._replace(recipe=fitted(model.recipe, opening=opening))
    except UsageError as error:
        raise UsageError(f"{model.name}: {error}") from None


def lacking_heads(
    models: Sequence[SuiteModel],
    tasks: Iterable[SuiteTask],
    opening: Opening = TrainedModel.open,
) -> dict[tuple[str, str], str]:
    """Which models, opened by `opening`, can't be measured on which tasks, by their names, and why. Raises UsageError
    for a path that is no model, and for a task on which no model can be measured."""
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
