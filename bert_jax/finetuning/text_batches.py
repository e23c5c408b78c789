"""Batches of groups of texts, such as a query, its positive and its negatives, packed into rows."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, UInt32

from bert_jax.batching.grouping import few_lengths, padded_length
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.batches import ROW_ORDER, BatchShape
from bert_jax.finetuning.task import Example
from bert_jax.instances.packing import best_fit
from bert_jax.layout import Tokens, lay_out
from bert_jax.training.input import PermutedOrder

_SHORTEST_ROW = 64
"""Fewest tokens of a row, so that several short texts share one."""
_MULTIPLE = 8
"""Row lengths are multiples of this."""


class TextBatch(NamedTuple):
    """R rows of T tokens that hold up to N texts each. Numpy arrays or JAX arrays.

    A batch has P groups with S slots for texts: 0 is a group's first text, 1 its second, and the others negatives.
    """

    tokens: Tokens
    """[R, T]."""
    slot: Int[Any, "R N"]
    """The group of the text times S, plus its slot in the group; P S where there is no text."""
    text: Int[Any, "R N"]
    """A number for each different text of the training rows."""
    score: Float[Any, "R N"]
    """The score of the group; 0 where it has none."""
    weight: Float[Any, "R N"]
    """1 where there is a text, else 0."""
    ordinal: UInt32[Any, "R N"]
    """Number of the text in training order, with S numbers for each group: the source of its random keys."""


class TextBatches:
    """A random-access source whose element i is batch i, for kind `vectors`.

    Each epoch has an order of its own; the rows that don't fill its last batch are left out of it. The texts of a batch
    are packed into as few rows as possible, since those of a pair may differ much in length. The numbers of rows are
    rounded up to a few values, since the step is compiled for each.
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
        """`config` has the batch size, epochs and most negatives. `local` gives the rows of a batch that this process
        needs, from their number. Batches have a multiple of `multiple` rows. `compiling`: the number of padding tokens
        that take as long as compiling one more shape."""
        self._examples, self._pad_id = examples, pad_id
        self._batch_size, self._slots = config.batch_size, config.texts_a_group
        self._an_epoch = max(len(examples) // config.batch_size, 1)
        self._count = max(1, round(config.epochs * self._an_epoch))
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
        """Texts of a batch, on average."""
        self._local = local

    def __len__(self) -> int:
        """Steps of all epochs."""
        return self._count

    def records(self, number: int) -> list[int]:
        """The numbers of the examples in batch `number`."""
        epoch, index = divmod(number, self._an_epoch)
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

        def placed(values: Any, empty: Any, dtype: Any) -> np.ndarray:
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
