"""Batches of a task's examples, and their order in training."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, UInt32

from bert_jax.batching.grouping import padded_length
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.task import IGNORED, Example
from bert_jax.layout import Tokens, lay_out_sequences
from bert_jax.training.input import ShuffledOrder

ROW_ORDER, _BATCH_ORDER = 0, 1
"""Random streams."""
_WINDOW_BATCHES = 256
"""Examples are sorted by length within windows of at least so many batches."""


class TaskBatch(NamedTuple):
    """B examples of C sequences (several for choices), each in a row of its own. Numpy arrays or JAX arrays."""

    tokens: Tokens
    """[B, C, T]."""
    marks: Int[Any, "B M 2"]
    """Begin and end (exclusive) of the M marked words, as places in the row."""
    target: Float[Any, " B"] | Int[Any, " B"] | Int[Any, "B 2"] | Int[Any, "B L"] | Int[Any, "B T"]
    """A number; a class or choice; an answer's first and last token; 1 for each label that holds, else 0; a tag or
    IGNORED for each token. 0 where none are given."""
    weight: Float[Any, " B"]
    """1 for an example that counts, 0 for a filler."""
    ordinal: UInt32[Any, " B"]
    """Number of the example in the order of training: the source of its random keys."""


class BatchShape(NamedTuple):
    """The largest shape of a training's batches."""

    rows: int
    length: int
    """Tokens of a row."""
    texts: int = 1
    """Most sequences of a row; those of several choices have rows of their own."""


class TrainingBatches:
    """A random-access source whose element i is batch i.

    Each epoch has every example once, in an order of its own; among those that make some 256 batches the ones of
    similar length go together, and these batches again come in random order. Batch i is a function of the examples, the
    seed and i alone. An epoch's shortest examples may leave a batch that is filled up, by weight 0.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        config: TaskConfig,
        seed: int,
        pad_id: int,
        local: Callable[[int], Int[np.ndarray, " b"]] = np.arange,
    ):
        """`config` has the batch size, padded lengths and epochs. `local` maps the number of rows of a batch to those
        that this process needs."""
        self._examples, self._seed, self._pad_id = examples, seed, pad_id
        self._rows = local(config.batch_size)
        self.shape = BatchShape(config.batch_size, config.max_length)
        self.texts = float(config.batch_size)
        """Rows of the task in a batch."""
        self._batch_size, self._lengths = config.batch_size, config.padded_lengths or (config.max_length,)
        self._sizes = [example.size for example in examples]
        self._an_epoch = -(-len(examples) // config.batch_size)
        self._windows = max(1, self._an_epoch // _WINDOW_BATCHES)
        self._in_window = -(-self._an_epoch // self._windows)
        self._count = max(1, round(config.epochs * self._an_epoch))
        self._window = functools.lru_cache(maxsize=2)(self._sorted_window)

    def __len__(self) -> int:
        """Steps of all epochs."""
        return self._count

    def records(self, number: int) -> list[int]:
        """The numbers of the examples in batch `number`."""
        epoch, index = divmod(number, self._an_epoch)
        window, place = divmod(index, self._in_window)
        return self._window(epoch, window)[place]

    def __getitem__(self, number: int) -> TaskBatch:
        """Batch `number`."""
        chosen = self.records(number)
        length = padded_length(max(self._sizes[example] for example in chosen), self._lengths)
        examples = [self._examples[example] for example in chosen]
        batch = assemble(examples, (self._batch_size, length), self._pad_id, number * self._batch_size)
        return jax.tree.map(lambda leaf: leaf[self._rows], batch)

    def _sorted_window(self, epoch: int, window: int) -> list[list[int]]:
        """The batches of one window of an epoch, as the numbers of their examples."""
        count, rows = len(self._examples), self._in_window * self._batch_size
        order = ShuffledOrder(count, self._seed, ROW_ORDER)
        ordinals = range(window * rows, min((window + 1) * rows, count))
        chosen = [order.record(epoch * count + ordinal) for ordinal in ordinals]
        chosen.sort(key=self._sizes.__getitem__, reverse=True)
        batches = [chosen[begin : begin + self._batch_size] for begin in range(0, len(chosen), self._batch_size)]
        mixed = ShuffledOrder(len(batches), self._seed, _BATCH_ORDER)
        begin = (epoch * self._windows + window) * len(batches)
        return [batches[mixed.record(begin + place)] for place in range(len(batches))]


def assemble(examples: Sequence[Example], shape: tuple[int, int], pad_id: int, first_ordinal: int = 0) -> TaskBatch:
    """Puts `examples` of one task into a batch of `shape` (examples, length), filled up with padding and fillers."""
    count, length = shape
    choices, of_marks = len(examples[0].sequences), len(examples[0].marks)
    sequences = [sequence for example in examples for sequence in example.sequences]
    tokens = lay_out_sequences(sequences, (count * choices, length), pad_id)
    marks = np.zeros((count, of_marks, 2), np.int32)
    if of_marks:
        marks[: len(examples)] = [example.marks for example in examples]
    return TaskBatch(
        Tokens(*(array.reshape(count, choices, -1) for array in tokens)),
        marks,
        _targets([example.target for example in examples], count, length),
        (np.arange(count) < len(examples)).astype(np.float32),
        np.arange(first_ordinal, first_ordinal + count, dtype=np.uint32),
    )


def _targets(targets: Sequence[Any], count: int, length: int) -> np.ndarray:
    first = targets[0]
    if isinstance(first, list):  # of tags
        found = np.full((count, length), IGNORED, np.int32)
        for row, tags in zip(found, targets, strict=False):
            row[: len(tags)] = tags
        return found
    shape = (count, *np.shape(first)) if first is not None else (count,)
    found = np.zeros(shape, np.float32 if isinstance(first, float) else np.int32)
    if first is not None:
        found[: len(targets)] = targets
    return found
