"""On which held-out sequences recipes are measured, and which recipes can be compared on them."""

import itertools
from collections.abc import Mapping

from bert_jax.config.objective import HELD_OUT_MASKS, UnitKind
from bert_jax.config.run import RunConfig
from bert_jax.products.suite.suite_tables import SuiteTables
from bert_jax.system.errors import UsageError


def held_out_config(recipe: RunConfig, first: RunConfig, units: UnitKind) -> RunConfig:
    """The settings by which a recipe's model is measured on the first recipe's held-out sequences: the recipe's model
    and the question about tokens that it learned, with the first recipe's data, masks and evaluation.

    Raises UsageError for a model that can't read these sequences, and for units that aren't marked in them.
    """
    masks = first.objective.model_dump(include=set(HELD_OUT_MASKS)) | {"units": units}
    objective = recipe.objective.replace(**masks, pair="none")
    phase = first.phases[0].replace(rotary_base=recipe.phases[-1].rotary_base, units=None)
    changes = {"model": recipe.model, "objective": objective, "phases": (phase,), "optimizer": recipe.optimizer}
    return first.replace(**changes, init_layers=(), teacher=None)


def check_comparable(recipes: Mapping[str, RunConfig], tables: SuiteTables) -> None:
    """Raises UsageError for recipes, by name, that can't be trained with one budget and measured on the same
    sequences."""
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
