"""Opens the models of a suite that was read: fits its recipes, and tells what models can be measured on."""

from collections.abc import Iterable, Sequence

from bert_jax.config.model import ModelConfig
from bert_jax.pretraining.fitting import fitted
from bert_jax.products.suite.held_out import check_comparable
from bert_jax.products.suite.suite import CheckedSuite, SuiteModel
from bert_jax.products.suite.suite_tables import faults_of
from bert_jax.products.suite.tasks import SuiteTask
from bert_jax.run.opened_models import OpenedModels
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import UsageError


def with_opened_models(suite: CheckedSuite) -> CheckedSuite:
    """The suite with recipes that are fitted to their models and texts, with what is `lacking`, and with the names of
    the `causal` models. Raises UsageError for the first thing that is wrong."""
    with faults_of(suite.file):
        opened = OpenedModels()  # a model of --models has several tables
        suite = with_fitted_recipes(suite, opened)
        lacking = lacking_heads(suite.models, suite.tasks, opened)
        causal = frozenset(model.name for model in suite.models if _config(model, opened).causal)
        return suite._replace(lacking=lacking, causal=causal)


def _config(model: SuiteModel, opened: OpenedModels) -> ModelConfig:
    return model.recipe.model if model.recipe else opened.model(place_of(str(model.path))).config


def with_fitted_recipes(suite: CheckedSuite, opened: OpenedModels) -> CheckedSuite:
    """The suite with recipes that are fitted to their models and to their texts. Raises UsageError for what can't be
    opened, and for recipes that can't be compared."""
    models = tuple(_fitted(model, opened) for model in suite.models)
    check_comparable({model.name: model.recipe for model in models if model.recipe}, suite.tables)
    return suite._replace(models=models)


def _fitted(model: SuiteModel, opened: OpenedModels) -> SuiteModel:
    if not model.recipe:
        return model
    try:
        return model._replace(recipe=fitted(model.recipe, opened))
    except UsageError as error:
        raise UsageError(f"{model.name}: {error}") from None


def lacking_heads(
    models: Sequence[SuiteModel],
    tasks: Iterable[SuiteTask],
    opened: OpenedModels,
) -> dict[tuple[str, str], str]:
    """Which models can't be measured on which tasks, by their names, and why. Raises UsageError for a path that is no
    model, and for a task on which no model can be measured."""
    lacking = dict[tuple[str, str], str]()
    for model in models:
        heads = set(opened.model(place_of(model.path)).shapes) if model.path else {"masked_lm"}
        if model.recipe and model.recipe.model.discriminator:
            heads = set()
        lacking |= {(model.name, task.name): lack for task in tasks if (lack := task.lacks(heads))}
    for task in tasks if models else ():
        if all((model.name, task.name) in lacking for model in models):
            raise UsageError(f"no model can be measured on {task.name}: each {lacking[models[0].name, task.name]}")
    return lacking
