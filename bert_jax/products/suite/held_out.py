"""On which held-out sequences recipes are measured, and which recipes can be compared on them."""

import itertools
from collections.abc import Mapping

from bert_jax.config.data import CURATION
from bert_jax.config.objective import HELD_OUT_MASKS, UnitKind, Units
from bert_jax.config.run import RunConfig
from bert_jax.products.suite.suite_tables import SuiteTables
from bert_jax.system.errors import Setting, UsageError

_OF_DOCUMENTS = ("source", "layout", "undecodable", "deduplicate", "drop_boilerplate", "held_out")
"""Settings of the text that decide which documents are held out. The other settings of CURATION only drop whole
documents. If recipes differ in these alone, no recipe trains on a document that another one holds out."""
_OF_HELD_OUT = {
    "shared": {f"data.{name}" for name in _OF_DOCUMENTS},
    "own": {f"data.{name}" for name in (*_OF_DOCUMENTS, *CURATION)}
    | {f"objective.{name}" for name in ("predict", *HELD_OUT_MASKS)},
}
"""Settings that must be equal in all recipes, by the suite's `vocabulary`. If it is shared, all recipes are measured on
the first one's sequences; otherwise each is measured on its own sequences of the same documents."""


def held_out_config(recipe: RunConfig, first: RunConfig, units: UnitKind | Units) -> RunConfig:
    """The settings by which a recipe's model is measured on the first recipe's held-out sequences: the recipe's model
    and the question about tokens that it learned, with the first recipe's data, masks and evaluation.

    Raises UsageError for a model that can't read these sequences, and for units that aren't marked in them.
    """
    masks = first.objective.model_dump(include=set(HELD_OUT_MASKS)) | {"units": units}
    objective = recipe.objective.replace(**masks, pair="none", tags=None)
    phase = first.phases[0].replace(rotary_base=recipe.phases[-1].rotary_base, units=None)
    changes = {"model": recipe.model, "objective": objective, "phases": (phase,), "optimizer": recipe.optimizer}
    return first.replace(**changes, init_layers=(), teacher=None)


def check_comparable(recipes: Mapping[str, RunConfig], tables: SuiteTables) -> None:
    """Raises UsageError for recipes, by name, that can't be trained with one budget and measured on the same held-out
    documents."""
    first = next(iter(recipes), "")
    for name, setting in itertools.product(recipes, sorted(_OF_HELD_OUT[tables.vocabulary])):
        section, _, field = setting.partition(".")
        ours, theirs = (getattr(getattr(recipes[each], section), field) for each in (name, first))
        if ours != theirs:
            raise UsageError(
                f"{name} and {first} can't be measured on the same held-out text, as {Setting(setting, ours)} in the "
                f"one and {theirs} in the other; give both the same"
            )
    for name, units in itertools.product(recipes, tables.units) if tables.vocabulary == "shared" else ():
        try:
            held_out_config(recipes[name], recipes[first], units)
        except UsageError as error:
            sequences = f"the held-out sequences of {first}, masked by {units}"
            raise UsageError(f"{name} can't be measured on {sequences}: {error}") from None
    for name, recipe in recipes.items() if tables.budget and not tables.budget.steps else ():
        if len({(phase.length, phase.batch_size) for phase in recipe.phases}) > 1:
            raise UsageError(
                f"{name} has phases of several shapes, whose steps take different times; give a budget of steps"
            )
