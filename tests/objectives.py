"""Objectives of pretraining by themselves, without a run."""

from typing import Any

from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.pretraining.objective import PretrainingObjective, ReplacedTokenObjective


def objective_of(model: ModelConfig, asked: ObjectiveConfig | None = None, **settings: Any) -> PretrainingObjective:
    """The objective of a run of `model` with other `settings`; the id of [MASK] is 4."""
    asked = asked or ObjectiveConfig()
    kind = ReplacedTokenObjective if asked.predict == "replaced" else PretrainingObjective
    phases = (Phase(steps=1, length=model.max_positions, batch_size=8),)
    return kind(RunConfig(model=model, objective=asked, **{"phases": phases} | settings), mask_id=4)
