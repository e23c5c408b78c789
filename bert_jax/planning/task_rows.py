"""Batches of random pieces for the step of a fine-tuned run."""

from typing import Any

import numpy as np
from jaxtyping import Int

from bert_jax.config.finetune import TaskRunConfig
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.batches import TaskBatch, TextBatch, task_batch
from bert_jax.finetuning.task import Example
from bert_jax.layout import TokenSequence, lay_out
from bert_jax.model.task import HeadShape
from bert_jax.system.errors import Setting, UsageError

_SHORTEST = 3
"""Tokens of the shortest text: [CLS], a piece, [SEP]."""


def texts_of(config: TaskRunConfig) -> int:
    """The texts of a step whose pairs have all of their negatives."""
    return config.sequences(0)


def texts_a_row(config: TaskRunConfig) -> int:
    """The largest number of texts in a row: those of a step, spread evenly over its rows; 1 where they aren't packed.

    Raises UsageError if the rows are too short for so many.
    """
    if not config.task.makes_vectors:
        return 1
    [phase], texts = config.phases, texts_of(config)
    most = -(-texts // phase.batch_size)
    if most * _SHORTEST > phase.length:
        raise UsageError(
            f"{Setting('phases.0.batch_size', phase.batch_size)} rows of {Setting('phases.0.length', phase.length)} "
            f"tokens are too few for {texts:,} texts; raise one of the two"
        )
    return most


def random_rows(config: TaskRunConfig) -> TaskBatch | TextBatch:
    """A batch of full rows of the run's length. Raises UsageError as `texts_a_row`."""
    return _texts(config) if config.task.makes_vectors else _examples(config)


def _texts(config: TaskRunConfig) -> TextBatch:
    """As many texts as the pairs of a step have with all of their negatives, in random order; those of a row are
    equally long."""
    [phase], task, rng = config.phases, config.task, np.random.default_rng(0)
    count, most = texts_of(config), texts_a_row(config)
    rows = np.arange(count) * phase.batch_size // count
    of_row = np.bincount(rows, minlength=phase.batch_size)
    lengths = (phase.length // np.maximum(of_row, 1))[rows]
    ids = rng.integers(0, config.model.vocabulary_size or 1, lengths.sum(), np.int32)
    tokens = lay_out(ids, lengths, lengths, (phase.batch_size, phase.length), rows=rows, most=most)
    place = (rows, np.arange(count) - np.searchsorted(rows, rows))

    def placed(values: Int[np.ndarray, " n"], empty: int, dtype: Any = np.int32) -> np.ndarray:
        array = np.full((phase.batch_size, most), empty, dtype)
        array[place] = values
        return array

    slot = rng.permutation(count)
    return TextBatch(
        tokens,
        slot=placed(slot, count),
        text=placed(slot, -1),
        score=placed(rng.random(count // task.texts_a_group)[slot // task.texts_a_group], 0, np.float32),
        weight=placed(np.ones(count), 0, np.float32),
        ordinal=placed(slot, 0, np.uint32),
    )


def _examples(config: TaskRunConfig) -> TaskBatch:
    """Each sequence fills its row, with two segments of equal length; targets are random."""
    [phase], task, rng = config.phases, config.task, np.random.default_rng(0)
    marks = ((1, 2),) * HeadShape.of(task).marks

    def sequence() -> TokenSequence:
        ids = rng.integers(0, config.model.vocabulary_size or 1, phase.length)
        return TokenSequence(ids.tolist(), phase.length // 2)

    examples = [
        Example(tuple(sequence() for _ in task.choices or ("",)), _target(task, phase.length, rng), marks)
        for _ in range(phase.batch_size)
    ]
    return task_batch(examples, (phase.batch_size, phase.length), pad_id=0)


def _target(task: TaskConfig, length: int, rng: np.random.Generator) -> Any:
    """The right output of one row, as `Example.target`."""
    outputs = len(task.choices) or HeadShape.of(task).outputs
    match task.facts.loss:
        case "squares":
            return float(rng.random())
        case "labels":
            return tuple(rng.integers(0, 2, outputs).tolist())
        case "tags":
            return rng.integers(0, outputs, length).tolist()
        case "ends":
            return tuple(sorted(rng.integers(0, length, 2).tolist()))
    return int(rng.integers(0, outputs))
