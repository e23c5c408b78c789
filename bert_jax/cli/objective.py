"""The objective of the training that CONFIG describes, for commands that need no data."""

from bert_jax.config.finetune import AnyRunConfig
from bert_jax.training.step import Objective

_MASK_ID = 4
"""The id of [MASK], which makes no difference to the work of a step."""


def expected_objective(config: AnyRunConfig) -> Objective:
    """The objective of the run, for the vocabulary that it has or will have.

    Raises UsageError if the vocabulary can't be read, or if settings don't fit each other.
    """
    if config.task is None:
        from bert_jax.pretraining.objective import expected_vocabulary_size, pretraining_objective

        return pretraining_objective(config, expected_vocabulary_size(config), _MASK_ID)
    from bert_jax.finetuning.contrast import make_objective  # imports libraries that pretraining does without

    return make_objective(config.task, config.model, config.execution, config.layers_frozen, config.probe)
