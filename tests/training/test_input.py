from pathlib import Path

import numpy as np
import pytest

from bert_jax.data.instances import Instance
from bert_jax.data.store import InstanceSource
from bert_jax.system.errors import RunError
from bert_jax.training.input import BatchSource, InOrder, ShuffledOrder, assemble


class Numbered(InstanceSource):
    """Instances whose first id is their number."""

    directory = Path("here")

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitems__(self, numbers):
        return [Instance(np.array([number, 7, 7]), np.array([1, 9, 0], np.uint8), 2, number % 2) for number in numbers]


def source(size=50, order=None, batches=20, vocabulary_size=1000):
    order = order or ShuffledOrder(size, 3, 0)
    return BatchSource(
        Numbered(size), order, batch_size=8, length=4, vocabulary_size=vocabulary_size, num_batches=batches
    )


def test_every_epoch_has_every_record_once_in_an_order_of_its_own():
    order = ShuffledOrder(50, 3, 0)
    epochs = [[order.record(epoch * 50 + index) for index in range(50)] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_seeds_and_phases_that_differ_by_one_have_nothing_in_common():
    def epoch(seed, phase, number):
        order = ShuffledOrder(50, seed, phase)
        return tuple(order.record(number * 50 + index) for index in range(50))

    seen = {epoch(seed, phase, number) for seed in range(3) for phase in range(2) for number in range(3)}
    assert len(seen) == 18


def test_going_on_at_a_batch_gives_what_comes_there():
    whole = [batch.ids for batch in source().batches()]
    assert len(whole) == 20
    for first in (0, 7, 19):
        rest = [batch.ids for batch in source().batches(first)]
        assert all(np.array_equal(one, other) for one, other in zip(rest, whole[first:], strict=True))


def test_ordinals_number_the_sequences_of_a_phase():
    assert source()[2].ordinal.tolist() == list(range(16, 24))


def test_the_last_batch_of_an_evaluation_is_filled_up_with_weight_0():
    held_out = source(size=11, order=InOrder(11), batches=2)
    assert held_out[0].ids[:, 0].tolist() == list(range(8)) and held_out[0].weight.tolist() == [1] * 8
    assert held_out[1].ids[:, 0].tolist() == [8, 9, 10, 0, 0, 0, 0, 0]
    assert held_out[1].weight.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert held_out[1].length.tolist() == [3, 3, 3, 0, 0, 0, 0, 0]


def test_instances_are_padded():
    batch = assemble(Numbered(9).__getitems__([5]), [40], 6)
    assert batch.ids.tolist() == [[5, 7, 7, 0, 0, 0]]
    assert batch.units.tolist() == [[1, 9, 0, 0, 0, 0]]
    assert (batch.length[0], batch.first_length[0], batch.pair_label[0], batch.ordinal[0]) == (3, 2, 1, 40)


def test_an_id_past_the_vocabulary_is_an_error():
    with pytest.raises(RunError, match="holds piece id 4. and the vocabulary has 40 pieces.*another vocabulary"):
        list(source(vocabulary_size=40).batches())
