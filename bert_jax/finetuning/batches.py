"""Batches of a task's examples, and their order in training: one example a row, or groups of texts packed into rows."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, UInt32
from numpy.typing import ArrayLike, DTypeLike

from bert_jax.batching.grouping import few_lengths, padded_length
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.task import IGNORED, Example
from bert_jax.instances.instances import best_fit
from bert_jax.layout import Tokens, TokenSequence, lay_out, lay_out_sequences
from bert_jax.model.task import HeadShape
from bert_jax.training.input import PermutedOrder, ShuffledOrder

AnyArray = np.ndarray | jax.Array
"""An array on the host or on the devices."""
ROW_ORDER, _BATCH_ORDER = 0, 1
"""Random streams."""
_WINDOW_BATCHES = 256
"""Fewest batches in a window. Examples are sorted by length only within a window."""
_SHORTEST_ROW = 64
"""Fewest tokens in a row of packed texts, so that several short texts share a row."""
_MULTIPLE = 8
"""The lengths of rows of packed texts are multiples of this."""


class TaskBatch(NamedTuple):
    """B examples of C sequences (several for choices), each in a row of its own. Numpy arrays or JAX arrays."""

    tokens: Tokens
    """Token arrays of shape [B, C, T]."""
    marks: Int[AnyArray, "B M 2"]
    """Begin and end (exclusive) of the M marked words, as positions in the row."""
    target: Float[AnyArray, " B"] | Int[AnyArray, "B *_"]
    """A number, a class or a choice has the shape [B]. An answer's first and last token have [B, 2]. Labels have [B,
    L], 1 for each label that holds, else 0. Tags have [B, T], with IGNORED for a token without a tag. Missing targets
    are 0."""
    weight: Float[AnyArray, " B"]
    """1 for an example that counts, 0 for a filler."""
    ordinal: UInt32[AnyArray, " B"]
    """Number of the example in training order: the seed of its random keys."""


class BatchShape(NamedTuple):
    """The largest shape of the batches of a training."""

    rows: int
    length: int
    """Tokens of a row."""
    texts: int = 1
    """Most sequences of a row. Each choice has a row of its own."""


class TrainingBatches:
    """A random-access source whose element i is batch i.

    Each epoch has every example once, in its own order. Examples are sorted by length within windows of 256 batches;
    the batches of a window are shuffled. Batch i is a function of the examples, the seed and i alone. The batch with an
    epoch's shortest examples may be filled up with rows of weight 0.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        config: TaskConfig,
        seed: int,
        pad_id: int,
        local: Callable[[int], Int[np.ndarray, " b"]] = np.arange,
    ):
        """`config` has the batch size, padded lengths and epochs.

        `local` maps a batch's number of rows to the indices of the rows that this process needs.
        """
        self._examples, self._seed, self._pad_id = examples, seed, pad_id
        self._rows = local(config.batch_size)
        self.shape = BatchShape(config.batch_size, config.max_length)
        self.texts = float(config.batch_size)
        """Rows of the task in a batch."""
        self._batch_size, self._lengths = config.batch_size, config.padded_lengths or (config.max_length,)
        self._sizes = [example.size for example in examples]
        self._batches_per_epoch = -(-len(examples) // config.batch_size)
        self._windows = max(1, self._batches_per_epoch // _WINDOW_BATCHES)
        self._batches_per_window = -(-self._batches_per_epoch // self._windows)
        self._count = max(1, round(config.epochs * self._batches_per_epoch))
        self._window = functools.lru_cache(maxsize=2)(self._sorted_window)

    def __len__(self) -> int:
        """Number of steps in all epochs."""
        return self._count

    def records(self, number: int) -> list[int]:
        """The numbers of the examples in batch `number`."""
        epoch, index = divmod(number, self._batches_per_epoch)
        window, place = divmod(index, self._batches_per_window)
        return self._window(epoch, window)[place]

    def __getitem__(self, number: int) -> TaskBatch:
        """Batch `number`."""
        chosen = self.records(number)
        length = padded_length(max(self._sizes[example] for example in chosen), self._lengths)
        examples = [self._examples[example] for example in chosen]
        batch = task_batch(examples, (self._batch_size, length), self._pad_id, number * self._batch_size)
        return jax.tree.map(lambda leaf: leaf[self._rows], batch)

    def _sorted_window(self, epoch: int, window: int) -> list[list[int]]:
        """The batches of one window of an epoch, as the numbers of their examples."""
        count, rows = len(self._examples), self._batches_per_window * self._batch_size
        order = ShuffledOrder(count, self._seed, ROW_ORDER)
        ordinals = range(window * rows, min((window + 1) * rows, count))
        chosen = [order.record(epoch * count + ordinal) for ordinal in ordinals]
        chosen.sort(key=self._sizes.__getitem__, reverse=True)
        batches = [chosen[begin : begin + self._batch_size] for begin in range(0, len(chosen), self._batch_size)]
        mixed = ShuffledOrder(len(batches), self._seed, _BATCH_ORDER)
        begin = (epoch * self._windows + window) * len(batches)
        return [batches[mixed.record(begin + place)] for place in range(len(batches))]


def task_batch(examples: Sequence[Example], shape: tuple[int, int], pad_id: int, first_ordinal: int = 0) -> TaskBatch:
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
    if isinstance(first, list):  # a list of tags
        array = np.full((count, length), IGNORED, np.int32)
        for row, tags in zip(array, targets, strict=False):
            row[: len(tags)] = tags
        return array
    shape = (count, *np.shape(first)) if first is not None else (count,)
    array = np.zeros(shape, np.float32 if isinstance(first, float) else np.int32)
    if first is not None:
        array[: len(targets)] = targets
    return array


def synthetic_task_batch(task: TaskConfig, shape: tuple[int, ...], vocabulary_size: int) -> TaskBatch:
    """A batch of random pieces and random targets.

    `shape` is [B, C, T], that of the ids. Each sequence fills its row and has two segments of equal length.
    """
    rows, choices, length = shape
    rng = np.random.default_rng(0)
    marks = ((1, 2),) * HeadShape.of(task).marks

    def sequence() -> TokenSequence:
        return TokenSequence(rng.integers(0, vocabulary_size, length).tolist(), length // 2)

    examples = [
        Example(tuple(sequence() for _ in range(choices)), _random_target(task, length, rng), marks)
        for _ in range(rows)
    ]
    return task_batch(examples, (rows, length), pad_id=0)


def _random_target(task: TaskConfig, length: int, rng: np.random.Generator) -> int | float | Sequence[int]:
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


class TextBatch(NamedTuple):
    """R rows of T tokens that hold up to N texts each. Numpy arrays or JAX arrays.

    A batch has P groups, each with S slots for texts: slot 0 has the first text of the group, slot 1 the second text,
    and the other slots have negatives.
    """

    tokens: Tokens
    """Token arrays of shape [R, T]."""
    slot: Int[AnyArray, "R N"]
    """Group number times S, plus the text's slot in the group; P S where a row has no text."""
    text: Int[AnyArray, "R N"]
    """Number of the text among the distinct texts of the training rows."""
    score: Float[AnyArray, "R N"]
    """Score of the text's group; 0 if the group has none."""
    weight: Float[AnyArray, "R N"]
    """1 where there is a text, else 0."""
    ordinal: UInt32[AnyArray, "R N"]
    """Number of the text in training order, where each group takes S numbers: the seed of its random keys."""


class TextBatches:
    """A random-access source whose element i is batch i, for kind `vectors`.

    Each epoch has its own order, and leaves out the examples that don't fill a batch at its end. The texts of a batch
    are packed into as few rows as possible, since the two texts of a pair may differ much in length. The number of rows
    is rounded up to one of a few values, since the step is compiled for each.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        config: TaskConfig,
        seed: int,
        pad_id: int,
        local: Callable[[int], Int[np.ndarray, " b"]] = np.arange,
        multiple: int = 1,
        compiling: float = 0.0,
    ):
        """`config` has the batch size, epochs and most negatives.

        `local` maps a batch's number of rows to the indices of the rows that this process needs. The number of rows is
        a multiple of `multiple`. `compiling`: the number of padding tokens that take as long as compiling one more
        shape.
        """
        self._examples, self._pad_id = examples, pad_id
        self._batch_size, self._slots = config.batch_size, config.texts_a_group
        self._batches_per_epoch = max(len(examples) // config.batch_size, 1)
        self._count = max(1, round(config.epochs * self._batches_per_epoch))
        self._order = PermutedOrder(len(examples), seed, ROW_ORDER)
        numbers: dict[bytes, int] = {}
        self._lengths, self._texts = [], []
        for example in examples:
            ids = [np.asarray(sequence.ids, np.int32) for sequence in example.sequences]
            self._lengths.append([len(one) for one in ids])
            self._texts.append([numbers.setdefault(one.tobytes(), len(numbers)) for one in ids])
        longest = max(max(of_example) for of_example in self._lengths)
        length = max(-(-longest // _MULTIPLE) * _MULTIPLE, min(_SHORTEST_ROW, config.max_length))
        self._length = min(length, config.max_length)
        counts = [np.bincount(self._packed(self.records(number))) for number in range(self._count)]
        rows = sorted((-(-len(of_rows) // multiple) * multiple for of_rows in counts), reverse=True)
        self._row_counts = few_lengths(rows, rows[0], compiling / self._length)
        self.shape = BatchShape(rows[0], self._length, max(int(of_rows.max()) for of_rows in counts))
        self.texts = sum(int(of_rows.sum()) for of_rows in counts) / self._count
        """Mean number of texts in a batch."""
        self._local = local

    def __len__(self) -> int:
        """Number of steps in all epochs."""
        return self._count

    def records(self, number: int) -> list[int]:
        """The numbers of the examples in batch `number`."""
        epoch, index = divmod(number, self._batches_per_epoch)
        first = epoch * len(self._examples) + index * self._batch_size
        count = min(self._batch_size, len(self._examples))
        return [self._order.record(ordinal) for ordinal in range(first, first + count)]

    def _packed(self, chosen: Sequence[int]) -> Int[np.ndarray, " n"]:
        """The row of each text of the examples `chosen`."""
        lengths = np.array([length for example in chosen for length in self._lengths[example]])
        return best_fit(lengths, self._length, most=self._length)

    def __getitem__(self, number: int) -> TextBatch:
        """Batch `number`."""
        chosen = self.records(number)
        of_row = self._packed(chosen)
        order = np.argsort(of_row, kind="stable")
        rows, count = of_row[order], padded_length(int(of_row.max()) + 1, self._row_counts)
        sequences = [sequence for one in chosen for sequence in self._examples[one].sequences]
        ids = [np.asarray(sequence.ids, np.int32) for sequence in sequences]
        units = [sequence.units for sequence in sequences]
        lengths = np.array([len(one) for one in ids])[order]
        tokens = lay_out(
            np.concatenate([ids[place] for place in order]),
            lengths,
            lengths,
            (count, self._length),
            units=np.concatenate([units[place] for place in order]),
            rows=rows,
            most=self.shape.texts,
            pad_id=self._pad_id,
        )
        slot = np.concatenate(
            [group * self._slots + np.arange(len(self._lengths[one])) for group, one in enumerate(chosen)]
        )
        place = (rows, np.arange(len(rows)) - np.searchsorted(rows, rows))

        def placed(values: ArrayLike, empty: float, dtype: DTypeLike) -> np.ndarray:
            array = np.full((count, self.shape.texts), empty, dtype)
            array[place] = np.asarray(values)[order]
            return array

        scores = [self._examples[one].target or 0.0 for one in chosen for _ in self._lengths[one]]
        batch = TextBatch(
            tokens,
            placed(slot, self._batch_size * self._slots, np.int32),
            placed([text for one in chosen for text in self._texts[one]], -1, np.int32),
            placed(scores, 0.0, np.float32),
            placed(np.ones(len(rows)), 0.0, np.float32),
            placed(number * self._batch_size * self._slots + slot, 0, np.uint64).astype(np.uint32),
        )
        here = self._local(count)
        return jax.tree.map(lambda leaf: leaf[here], batch)


def synthetic_text_batch(task: TaskConfig, shape: tuple[int, ...], vocabulary_size: int) -> TextBatch:
    """A batch of random pieces with all texts that the groups of a step can have. `shape` is [R, T], that of the ids.

    The texts are in random order and spread evenly over the rows. The texts of a row are equally long.
    """
    rng = np.random.default_rng(0)
    each = task.texts_a_group
    count = task.batch_size * each
    most = -(-count // shape[0])
    rows = np.arange(count) * shape[0] // count
    of_row = np.bincount(rows, minlength=shape[0])
    lengths = (shape[1] // np.maximum(of_row, 1))[rows]
    ids = rng.integers(0, vocabulary_size, lengths.sum(), np.int32)
    tokens = lay_out(ids, lengths, lengths, (shape[0], shape[1]), rows=rows, most=most)
    place = (rows, np.arange(count) - np.searchsorted(rows, rows))

    def placed(values: ArrayLike, empty: float, dtype: DTypeLike = np.int32) -> np.ndarray:
        array = np.full((shape[0], most), empty, dtype)
        array[place] = values
        return array

    slot = rng.permutation(count)
    return TextBatch(
        tokens,
        slot=placed(slot, count),
        text=placed(slot, -1),
        score=placed(rng.random(task.batch_size)[slot // each], 0, np.float32),
        weight=placed(np.ones(count), 0, np.float32),
        ordinal=placed(slot, 0, np.uint32),
    )
