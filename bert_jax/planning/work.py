"""The training that bench, plan and params work on: a pretraining or that of a fine-tuned run, with random batches in
place of its data."""

from typing import Any

from jax.sharding import Mesh

from bert_jax.config.finetune import TaskRunConfig
from bert_jax.config.run import RunConfig
from bert_jax.model.attention import check_attention
from bert_jax.model.bert import Parameters, parameter_shapes
from bert_jax.model.sharding import check_batch_size, row_shards
from bert_jax.model.task import HeadShape, task_parameter_shapes
from bert_jax.pretraining.objective import METHODS, planned_vocabulary_size, pretraining_trainer
from bert_jax.training.batch import AnyBatch, synthetic_batch
from bert_jax.training.step import Objective
from bert_jax.training.trainer import Trainer

AnyRunConfig = RunConfig | TaskRunConfig
AnyTrainer = Trainer[Any, Any]
_MASK_ID = 4
"""The id of [MASK], which makes no difference to the time of a step."""


def vocabulary_size_of(config: AnyRunConfig) -> int:
    """Pieces of the vocabulary that the run has or will have. Raises UsageError where it can't be read."""
    if isinstance(config, RunConfig):
        return planned_vocabulary_size(config)
    assert config.model.vocabulary_size is not None, "a fine-tuned run has a vocabulary"
    return config.model.vocabulary_size


def shapes_of(config: AnyRunConfig, vocabulary_size: int) -> Parameters:
    """The parameters of the run with all of its heads, as shapes and types; nothing is allocated."""
    model = config.model.replace(vocabulary_size=vocabulary_size)
    if isinstance(config, RunConfig):
        return parameter_shapes(model)
    return task_parameter_shapes(model, HeadShape.of(config.task))


def objective_of(config: AnyRunConfig, vocabulary_size: int) -> Objective:
    """The objective of the run. Raises UsageError where its settings don't fit each other."""
    if isinstance(config, RunConfig):
        sized = config.replace(model=config.model.replace(vocabulary_size=vocabulary_size))
        return METHODS[config.objective.predict](sized, _MASK_ID)
    from bert_jax.finetuning import contrast  # imports libraries that a machine for pretraining may lack

    return contrast.make_objective(config.task, config.model, config.execution, config.layers_frozen, config.probe)


def fitted(config: AnyRunConfig, mesh: Mesh) -> AnyRunConfig:
    """`config` with as many rows of packed texts as the devices of `mesh` share evenly, as training makes them.

    Raises UsageError if a batch can't be divided over the devices, or if the attention can't be computed there.
    """
    for size in config.batch_sizes.values():
        check_batch_size(size, config.execution.accumulation, mesh)
    if isinstance(config, TaskRunConfig) and config.task.makes_vectors:
        [phase], multiple = config.phases, config.execution.accumulation * row_shards(mesh)
        rows = -(-phase.batch_size // multiple) * multiple
        config = config.replace(phases=(phase.replace(batch_size=rows),))
    check_attention(config.execution, config.model, rows_of(config), mesh)
    return config


def rows_of(config: AnyRunConfig) -> list[tuple[int, int]]:
    """For each phase: the number of tokens in a row, and the largest number of sequences in a row."""
    if isinstance(config, RunConfig):
        return config.rows
    from bert_jax.planning import task_rows

    return [(config.phases[0].length, task_rows.texts_a_row(config))]


def trainer_of(config: AnyRunConfig, mesh: Mesh, vocabulary_size: int) -> AnyTrainer:
    """The trainer of the run. Raises UsageError where its settings don't fit each other."""
    if isinstance(config, RunConfig):
        return pretraining_trainer(config, mesh, vocabulary_size, _MASK_ID)
    return Trainer(config, mesh, objective_of(config, vocabulary_size))


def random_batch(config: AnyRunConfig, number: int, vocabulary_size: int) -> AnyBatch:
    """A batch of phase `number` with full rows of random pieces.

    Raises UsageError if the rows are too short for their texts.
    """
    if isinstance(config, RunConfig):
        phase = config.phases[number]
        most = config.data.sequences_a_row(phase.length)
        return synthetic_batch(phase.batch_size, phase.length, vocabulary_size, most)
    from bert_jax.planning import task_rows

    return task_rows.random_rows(config)


def sequences_of(config: AnyRunConfig, number: int) -> int:
    """Sequences in a step of phase `number`: rows, but of vectors the texts."""
    if isinstance(config, TaskRunConfig) and config.task.makes_vectors:
        from bert_jax.planning import task_rows

        return task_rows.texts_of(config)
    return config.phases[number].batch_size
