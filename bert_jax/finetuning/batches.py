"""Batches of a task's examples, and their order in training. Several examples or texts share a row."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, UInt32
from numpy.typing import ArrayLike, DTypeLike

from bert_jax.batching.grouping import few_sizes, padded_length
from bert_jax.batching.packing import best_fit
from bert_jax.config.task import TaskConfig
from bert_jax.config.task_kind import TaskKind
from bert_jax.finetuning.task import IGNORED, Example, Target
from bert_jax.layout import Tokens, TokenSequence, lay_out, lay_out_sequences
from bert_jax.model.task import HeadShape
from bert_jax.training.input import permutation

AnyArray = np.ndarray | jax.Array
"""An array on the host or on the devices."""
_ROW_ORDER = 0
"""Random stream."""
_MULTIPLE = 32
"""The lengths of rows are multiples of this, as the attention kernel for GPUs needs."""
_MOST_LONGER = 2
"""Rows of up to this many times the longest example are tried."""
_DEAR_LENGTH = 1024
"""Tokens of a row at which attention costs about as much as the rest of a small model."""
_SEARCHED_BATCHES = 64
"""Batches that are packed into rows of each length, to choose one."""
_SAMPLED_BATCHES = 1 << 14
"""Batches of a training that are packed before it begins, to choose the numbers of rows."""


class TaskBatch(NamedTuple):
    """R rows of T tokens with up to E examples each. An example has C sequences (several for choices), which lie one
    after the other in its row. Numpy arrays or JAX arrays.

    A row's sequences are numbered: sequence c of its example e has the number e C + c.
    """

    tokens: Tokens
    """Token arrays of shape [R, T]."""
    marks: Int[AnyArray, "R E M 2"]
    """Begin and end (exclusive) of the M marked words, as positions in their sequence."""
    target: Float[AnyArray, "R E"] | Int[AnyArray, "R *_"]
    """A number, a class or a choice has the shape [R, E]. An answer's first and last token, as positions in its
    sequence, have [R, E, 2]. Labels have [R, E, L], 1 for each label that holds, else 0. Tags have [R, T], with IGNORED
    for a token without a tag. Missing targets are 0."""
    weight: Float[AnyArray, "R E"]
    """1 where there is an example, else 0."""
    ordinal: UInt32[AnyArray, "R E"]
    """Number of the example in training order: the seed of its random keys."""


class BatchShape(NamedTuple):
    """The largest shape of the batches of a training."""

    rows: int
    """Rows before they are rounded up for the devices."""
    length: int
    """Tokens of a row."""
    sequences: int = 1
    """Most sequences of a row."""


class PackedBatches(ABC):
    """A random-access source whose element i is batch i, a function of the examples, the seed and i alone.

    The examples are divided into strata of similar length. Each epoch has its own random order within each stratum, and
    a batch takes one example of each stratum, so all batches have about the same number of tokens. The examples of a
    batch are packed into as few rows as possible. Empty rows fill the batch up to one of a few numbers of rows, often
    only one, because the step is compiled for each number.
    """

    every_example: bool
    """Whether each epoch has every example; the last batches of an epoch may then have one example fewer than the
    first. Otherwise all batches are full, and each epoch leaves out a few examples, every time others."""

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
        self._examples, self._pad_id, self._local, self._multiple = examples, pad_id, local, multiple
        self._batch_size, self._kind = config.batch_size, config.task_kind
        batches = len(examples) / config.batch_size
        self._batches_per_epoch = max(int(np.ceil(batches) if self.every_example else batches), 1)
        self._count = max(1, round(config.epochs * self._batches_per_epoch))
        self._order = functools.partial(permutation, len(examples), seed, _ROW_ORDER)
        self._strata = functools.lru_cache(maxsize=2)(self._shuffled_strata)
        self._sizes = [self._packed_sizes(example) for example in examples]
        self._length = self._row_length()
        self._parts_a_row = self._length  # until the fullest row is known
        sample = self._sample(_SAMPLED_BATCHES)
        packed = [np.bincount(self._row_of_parts(self.record_numbers(number))) for number in sample]
        self._row_counts = few_sizes([*map(len, packed)], compiling / self._length * len(sample) / self._count)
        self._parts_a_row = max(int(of_rows.max()) for of_rows in packed)
        each = max(len(config.choices), 1)
        self.shape = BatchShape(max(map(len, packed)), self._length, self._parts_a_row * each)
        self.sequences = sum(int(of_rows.sum()) for of_rows in packed) * each / len(sample)
        """Mean number of sequences in a batch."""

    @staticmethod
    @abstractmethod
    def _packed_sizes(example: Example) -> list[int]:
        """The numbers of tokens of the parts of an example that share a row."""

    @abstractmethod
    def _batch(
        self, chosen: Sequence[int], of_part: Int[np.ndarray, " n"], rows: int, first_ordinal: int
    ) -> "TaskBatch | TextBatch":
        """The batch of the examples `chosen` in `rows` rows; `of_part` is the row of each of their parts."""

    def _sample(self, most: int) -> range:
        """The numbers of up to `most` batches, spread evenly."""
        return range(0, self._count, -(-self._count // most))

    def _row_length(self) -> int:
        """The length of rows with which a step costs least on average, the same on every kind of machine. Longer rows
        leave less room unused, but attention compares more tokens."""
        sample = [self._part_sizes(self.record_numbers(number)) for number in self._sample(_SEARCHED_BATCHES)]
        longest = max(max(sizes) for sizes in self._sizes)
        shortest = -(-longest // _MULTIPLE) * _MULTIPLE

        def cost(length: int) -> float:
            rows = sum(int(best_fit(sizes, length, most=length).max()) + 1 for sizes in sample)
            return rows * length * (1 + length / _DEAR_LENGTH)

        return min(range(shortest, _MOST_LONGER * shortest + 1, _MULTIPLE), key=cost)

    def __len__(self) -> int:
        """Number of steps in all epochs."""
        return self._count

    def record_numbers(self, number: int) -> list[int]:
        """The numbers of the examples in batch `number`."""
        epoch, index = divmod(number, self._batches_per_epoch)
        return [int(stratum[index]) for stratum in self._strata(epoch) if index < len(stratum)]

    def _shuffled_strata(self, epoch: int) -> list[Int[np.ndarray, " _"]]:
        """The examples of each stratum, shuffled; the strata are ordered by length."""
        count, each = len(self._examples), self._batches_per_epoch
        by_length = np.argsort([sum(sizes) for sizes in self._sizes], kind="stable")
        ends = np.arange(each, count, each) if self.every_example else min(self._batch_size, count)
        strata = np.array_split(by_length, ends)
        stratum = np.empty(count, np.int64)
        for number, members in enumerate(strata):
            stratum[members] = number
        order = self._order(epoch)
        shuffled = order[np.argsort(stratum[order], kind="stable")]
        return np.split(shuffled, np.cumsum([len(members) for members in strata])[:-1])

    def __getitem__(self, number: int) -> "TaskBatch | TextBatch":
        chosen = self.record_numbers(number)
        of_part = self._row_of_parts(chosen)
        needed = int(of_part.max()) + 1
        if needed <= self.shape.rows:  # a batch outside the sample may need more rows than all in it
            needed = padded_length(needed, self._row_counts)
        rows = -(-needed // self._multiple) * self._multiple
        batch = self._batch(chosen, of_part, rows, number * self._batch_size)
        here = self._local(rows)
        return jax.tree.map(lambda leaf: leaf[here], batch)

    def _part_sizes(self, chosen: Sequence[int]) -> Int[np.ndarray, " n"]:
        """The number of tokens of each part of the examples `chosen`."""
        return np.array([size for example in chosen for size in self._sizes[example]])

    def _row_of_parts(self, chosen: Sequence[int]) -> Int[np.ndarray, " n"]:
        """The row of each part of the examples `chosen`."""
        return best_fit(self._part_sizes(chosen), self._length, most=self._parts_a_row)


class TaskBatches(PackedBatches):
    """The batches of every kind of task but `vectors`."""

    every_example = True

    @staticmethod
    def _packed_sizes(example: Example) -> list[int]:
        return [example.size]

    def _batch(self, chosen: Sequence[int], of_part: Int[np.ndarray, " n"], rows: int, first_ordinal: int) -> TaskBatch:
        examples = [self._examples[example] for example in chosen]
        shape = rows, self._length
        return task_batch(self._kind, examples, shape, self._pad_id, first_ordinal, of_part, self._parts_a_row)


def places_in_rows(rows: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """The number of each example within its row, from 0. `rows`: the row of each example."""
    order = np.argsort(rows, kind="stable")
    places = np.empty_like(rows)
    places[order] = np.arange(len(rows)) - np.searchsorted(rows[order], rows[order])
    return places


def _placed(
    shape: tuple[int, int], place: tuple[np.ndarray, np.ndarray], values: ArrayLike, dtype: DTypeLike, empty: float = 0
) -> np.ndarray:
    """An array [*shape, ...] with `values` at `place` and `empty` elsewhere. `place`: the row of each value, and its
    place in the row."""
    values = np.asarray(values, dtype)
    array = np.full((*shape, *values.shape[1:]), empty, dtype)
    array[place] = values
    return array


def task_batch(
    kind: TaskKind,
    examples: Sequence[Example],
    shape: tuple[int, int],
    pad_id: int,
    first_ordinal: int = 0,
    example_rows: Int[np.ndarray, " n"] | None = None,
    most: int = 1,
) -> TaskBatch:
    """Puts `examples` of one task of this kind into a batch of `shape` (rows, length), filled up with padding.

    `example_rows`: the row of each example; None gives each example a new row. A row has places for `most` examples.
    """
    example_rows = np.arange(len(examples)) if example_rows is None else example_rows
    order = np.argsort(example_rows, kind="stable")
    rows = example_rows[order]
    place = rows, places_in_rows(rows)
    ordered = [examples[number] for number in order]
    choices = len(examples[0].sequences)
    sequences = [sequence for example in ordered for sequence in example.sequences]
    tokens = lay_out_sequences(sequences, shape, pad_id, np.repeat(rows, choices), most * choices)

    placed = functools.partial(_placed, (shape[0], most), place)
    is_labelled = ordered[0].target is not None
    if kind.target_of_tokens and is_labelled:
        targets = np.full(shape, IGNORED, kind.target_dtype)
        begins = tokens.begin[place].tolist()
        for example, row, begin in zip(ordered, rows.tolist(), begins, strict=True):
            targets[row, begin : begin + len(example.target)] = example.target
    else:
        targets = placed([example.target if is_labelled else 0 for example in ordered], kind.target_dtype)
    return TaskBatch(
        tokens,
        placed(np.reshape([example.marks for example in ordered], (len(ordered), -1, 2)), np.int32),
        targets,
        placed(np.ones(len(ordered)), np.float32),
        placed(first_ordinal + order, np.uint32),
    )


def synthetic_task_batch(
    task: TaskConfig,
    shape: tuple[int, ...],
    vocabulary_size: int,
    random_target: Callable[[int, int, np.random.Generator], Target],
) -> TaskBatch:
    """A batch of random pieces and random targets. `shape`: the shape (R, T) of the ids. `random_target`: a target by
    the number of outputs and the length of the example.

    The examples are spread evenly over the rows, which they fill as far as task.max_length allows. A sequence has two
    segments of equal length.
    """
    rows, length = shape
    rng = np.random.default_rng(0)
    marks = ((1, 2),) * HeadShape.of(task).marks
    choices = task.sequences_an_example
    outputs = len(task.choices) or HeadShape.of(task).outputs
    example_rows = np.arange(task.batch_size) * rows // task.batch_size
    most = int(np.bincount(example_rows).max())
    size = min(length // (most * choices), task.max_length)
    examples = []
    for _ in range(task.batch_size):
        ids = (rng.integers(0, vocabulary_size, size).tolist() for _ in range(choices))
        sequences = tuple(TokenSequence(pieces, size // 2) for pieces in ids)
        examples.append(Example(sequences, random_target(outputs, size, rng), marks))
    return task_batch(task.task_kind, examples, (rows, length), 0, 0, example_rows, most)


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
    """Number of the text among the distinct texts of the training rows; -1 where a row has no text."""
    score: Float[AnyArray, "R N"]
    """Score of the text's group; 0 if the group has none."""
    weight: Float[AnyArray, "R N"]
    """1 where there is a text, else 0."""
    ordinal: UInt32[AnyArray, "R N"]
    """Number of the text in training order, where each group takes S numbers: the seed of its random keys."""


class TextBatches(PackedBatches):
    """The batches of kind `vectors`. Each text of an example is packed by itself, since the two texts of a pair may
    differ much in length."""

    every_example = False

    def __init__(self, examples: Sequence[Example], config: TaskConfig, *arguments: Any, **options: Any):
        """The arguments are those of `PackedBatches`."""
        super().__init__(examples, config, *arguments, **options)
        self._slots = config.texts_a_group
        numbers: dict[bytes, int] = {}
        self._texts = [
            [numbers.setdefault(np.asarray(one.ids, np.int32).tobytes(), len(numbers)) for one in example.sequences]
            for example in examples
        ]

    @staticmethod
    def _packed_sizes(example: Example) -> list[int]:
        return [len(sequence.ids) for sequence in example.sequences]

    def _batch(self, chosen: Sequence[int], of_part: Int[np.ndarray, " n"], rows: int, first_ordinal: int) -> TextBatch:
        order = np.argsort(of_part, kind="stable")
        of_text = of_part[order]
        sequences = [sequence for one in chosen for sequence in self._examples[one].sequences]
        ordered = [sequences[place] for place in order]
        tokens = lay_out_sequences(ordered, (rows, self._length), self._pad_id, of_text, self._parts_a_row)
        slots = [group * self._slots + np.arange(len(self._sizes[one])) for group, one in enumerate(chosen)]
        slot = np.concatenate(slots)
        texts = np.array([text for one in chosen for text in self._texts[one]])
        scores = np.array([self._examples[one].target or 0.0 for one in chosen for _ in self._sizes[one]])
        placed = functools.partial(_placed, (rows, self._parts_a_row), (of_text, places_in_rows(of_text)))
        return TextBatch(
            tokens,
            placed(slot[order], np.int32, self._batch_size * self._slots),
            placed(texts[order], np.int32, -1),
            placed(scores[order], np.float32),
            placed(np.ones(len(of_text)), np.float32),
            placed(first_ordinal * self._slots + slot[order], np.uint64).astype(np.uint32),
        )


def synthetic_text_batch(task: TaskConfig, shape: tuple[int, ...], vocabulary_size: int) -> TextBatch:
    """A batch of random pieces with all texts that the groups of a step can have. `shape`: the shape (R, T) of the ids.

    The texts are in random order and spread evenly over the rows. The texts of a row are equally long.
    """
    rng = np.random.default_rng(0)
    each = task.texts_a_group
    count = task.batch_size * each
    most = -(-count // shape[0])
    rows = np.arange(count) * shape[0] // count
    of_row = np.bincount(rows, minlength=shape[0])
    lengths = np.minimum(shape[1] // np.maximum(of_row, 1), task.max_length)[rows]
    ids = rng.integers(0, vocabulary_size, lengths.sum(), np.int32)
    tokens = lay_out(ids, lengths, lengths, (shape[0], shape[1]), rows=rows, most=most)
    placed = functools.partial(_placed, (shape[0], most), (rows, places_in_rows(rows)))
    slot = rng.permutation(count)
    return TextBatch(
        tokens,
        slot=placed(slot, np.int32, count),
        text=placed(slot, np.int32, -1),
        score=placed(rng.random(task.batch_size)[slot // each], np.float32),
        weight=placed(np.ones(count), np.float32),
        ordinal=placed(slot, np.uint32),
    )
