"""Objectives by themselves, without a run."""

from typing import Any, TypeVar

import jax
from jaxtyping import Array, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase
from bert_jax.finetuning.objective import FineTuningObjective
from bert_jax.model.bert import Parameters
from bert_jax.pretraining.objective import OBJECTIVES, MaskedTokens
from bert_jax.run.measurement import Means
from bert_jax.training.step import loss_gradients

SomeObjective = TypeVar("SomeObjective", MaskedTokens, FineTuningObjective)


def compiled(objective: SomeObjective) -> SomeObjective:
    """`objective` with each function of arrays as one program. Otherwise each operation would be compiled by itself,
    which takes longer than all else in such a test."""
    for name in ("init", "targets", "counts", "measure", "outputs"):
        if hasattr(objective, name):
            setattr(objective, name, jax.jit(getattr(objective, name)))
    return objective


def objective_of(model: ModelConfig, asked: ObjectiveConfig | None = None, **settings: Any) -> MaskedTokens:
    """The method of a pretraining of `model` with other `settings`, compiled; the id of [MASK] is 4."""
    asked = asked or ObjectiveConfig()
    phases = (Phase(steps=1, length=model.max_positions, batch_size=8),)
    config = RunConfig(model=model, objective=asked, **{"phases": phases} | settings)
    return compiled(OBJECTIVES[asked.predict](config, mask_id=4))


def gradients_of(
    objective: SomeObjective, params: Parameters, targets: Any, keys: Key[Array, "B *N"], microbatches: int = 1
) -> tuple[Parameters, Means]:
    """`loss_gradients`, compiled."""
    return jax.jit(loss_gradients, static_argnums=(0, 4))(objective, params, targets, keys, microbatches)
