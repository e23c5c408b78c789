from pathlib import Path

import numpy as np
import pytest

from bert_jax.instances.instances import Instances
from bert_jax.instances.shards import InstanceSource
from bert_jax.system.errors import RunError
from bert_jax.training.batch import assemble, read_ahead
from bert_jax.training.input import BatchSource, InOrder, MixedOrder, ShuffledOrder, TaggedOrder, apportion


class Numbered(InstanceSource):
    """Instances whose first id is their number."""

    directory = Path("here")

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def read(self, numbers):
        numbers = np.array(numbers, int)
        ids = np.stack([numbers, 0 * numbers + 7, 0 * numbers + 7], axis=1).ravel()
        units = np.tile(np.array([1, 9, 0], np.uint8), len(numbers))
        return Instances(ids, units, np.arange(len(numbers) + 1) * 3, 0 * numbers + 2, numbers % 2)


def source(size=50, order=None, batches=20, vocabulary_size=1000, length=4):
    order = order or ShuffledOrder(size, 3, 0)
    return BatchSource(
        Numbered(size), order, batch_size=8, length=length, vocabulary_size=vocabulary_size, num_batches=batches
    )


def test_every_epoch_of_a_seed_and_phase_has_every_record_once_in_an_order_of_its_own():
    seen = set()
    for seed, phase, epoch in np.ndindex(3, 2, 3):
        order = ShuffledOrder(50, seed, phase)
        seen.add(tuple(order.record(epoch * 50 + index) for index in range(50)))
    assert len(seen) == 18 and all(sorted(epoch) == list(range(50)) for epoch in seen)


def test_the_order_of_one_source_never_changes():
    assert [ShuffledOrder(50, 3, 1).record(ordinal) for ordinal in (0, 1, 49, 50, 12345)] == [30, 21, 43, 26, 23]


SIZES, SHARES = (30, 7_000, 900), (0.25, 0.6, 0.15)


def mixed(blocks, sizes=SIZES, shares=SHARES, seed=3, phase=0):
    """Source and record of every ordinal of the first blocks."""
    order = MixedOrder(sizes, shares, seed, phase)
    records = np.array([order.record(ordinal) for ordinal in range(blocks * MixedOrder.BLOCK)])
    return np.searchsorted(np.cumsum(sizes), records, side="right"), records


def test_after_every_block_each_source_has_exactly_its_share():
    sources, _ = mixed(3)
    for blocks in (1, 2, 3):
        assert np.bincount(sources[: blocks * 10_000]).tolist() == [blocks * count for count in (2500, 6000, 1500)]
    halves = np.bincount(sources[:5000])  # a share is kept all along, not only in the whole block
    assert np.allclose(halves / 5000, SHARES, atol=0.03)


def test_each_source_gives_every_record_once_before_it_gives_any_again():
    sources, records = mixed(3)
    for source, size in enumerate(SIZES):
        own = records[sources == source]
        epochs = [own[begin : begin + size].tolist() for begin in range(0, len(own) - size + 1, size)]
        assert epochs and all(len(set(epoch)) == size for epoch in epochs)
        assert len(set(map(tuple, epochs))) == len(epochs)


def test_a_mixed_order_is_a_function_of_the_ordinal_alone():
    _, records = mixed(2)
    order = MixedOrder(SIZES, SHARES, 3, 0)
    for ordinal in (19_999, 0, 10_000, 9_999, 5):
        assert order.record(ordinal) == records[ordinal]


def test_blocks_seeds_phases_and_sources_have_orders_of_their_own():
    sources, records = mixed(2, (500, 500), (0.5, 0.5))
    assert (sources[:10_000] != sources[10_000:]).any()
    first, second = (records[sources == source][:500] - 500 * source for source in range(2))
    assert (first != second).any()
    for other in ({"seed": 4}, {"phase": 1}):
        assert (mixed(1, (500, 500), (0.5, 0.5), **other)[1] != records[:10_000]).any()


@pytest.mark.parametrize(
    "shares, places, counts",
    [
        ((1, 1, 1), 10, (4, 3, 3)),
        ((0.7, 0.3), 10_000, (7000, 3000)),
        ((5, 3, 1), 10, (6, 3, 1)),
        ((1, 3, 5), 10, (1, 3, 6)),
        ((0.0001, 0.9999), 10_000, (1, 9999)),
        ((2,), 7, (7,)),
    ],
)
def test_places_go_by_largest_remainder(shares, places, counts):
    assert apportion(shares, places) == counts


def test_a_source_with_a_tiny_share_has_a_place_in_each_block():
    assert MixedOrder.places((0.5, 0.49997, 0.00003)) == (4999, 5000, 1)
    assert MixedOrder.places((0.7, 0.3, 0.0)) == (7000, 3000, 0)


@pytest.mark.parametrize("size, count", [(11, 11), (100, 7), (4096 * 3 + 1, 4096)])
def test_a_part_of_the_held_out_records_is_taken_from_all_along_them(size, count):
    order = InOrder(size, count)
    records = [order.record(ordinal) for ordinal in range(count)]
    gaps = np.diff([*records, size])
    assert records[0] == 0 and gaps.min() >= 1 and gaps.max() - gaps.min() <= 1
    assert order.record(count) is None


def test_going_on_at_a_batch_gives_what_comes_there():
    whole = [batch.tokens.ids for batch in read_ahead(source())]
    assert len(whole) == 20
    for first in (0, 7, 19):
        rest = [batch.tokens.ids for batch in read_ahead(source(), first)]
        assert all(np.array_equal(one, other) for one, other in zip(rest, whole[first:], strict=True))


def test_ordinals_number_the_sequences_of_a_phase():
    assert source()[2].ordinal[:, 0].tolist() == list(range(16, 24))
    assert source()[2].tokens.ids[:, 0].tolist() == source().record_numbers(2)


def test_the_last_batch_of_an_evaluation_is_filled_up_with_weight_0():
    held_out = source(size=11, order=InOrder(11, 11), batches=2)
    assert held_out[0].tokens.ids[:, 0].tolist() == list(range(8)) and held_out[0].weight[:, 0].tolist() == [1] * 8
    assert held_out[1].tokens.ids[:, 0].tolist() == [8, 9, 10, 0, 0, 0, 0, 0]
    assert held_out[1].weight[:, 0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert held_out[1].tokens.length[:, 0].tolist() == [3, 3, 3, 0, 0, 0, 0, 0]


def test_instances_are_padded():
    batch = assemble(Numbered(9).read([5]), np.array([40]), 6)
    assert batch.tokens.ids.tolist() == [[5, 7, 7, 0, 0, 0]]
    assert batch.tokens.units.tolist() == [[1, 9, 0, 0, 0, 0]]
    assert batch.tokens.segment.tolist() == [[0, 0, 1, 0, 0, 0]]
    assert batch.tokens.sequence.tolist() == [[1, 1, 1, 0, 0, 0]]
    assert batch.tokens.length[0, 0] == 3 and (batch.pair_label[0, 0], batch.ordinal[0, 0]) == (1, 40)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"vocabulary_size": 40}, "holds piece id 4. and the vocabulary has 40 pieces.*another vocabulary"),
        ({"length": 2}, "here holds a row of 3 tokens, and rows of 2 or fewer were expected; delete it"),
    ],
)
def test_an_id_past_the_vocabulary_and_a_row_past_the_length_are_errors(settings, words):
    with pytest.raises(RunError, match=words):
        list(read_ahead(source(**settings)))


def test_a_record_without_tokens_is_a_row_of_weight_0_where_it_stands(monkeypatch):
    whole, read = source()[2], Numbered.read

    def without_the_third(self, numbers):
        found = read(self, numbers)
        begin, end = found.ends[2:4]
        ends = np.where(np.arange(len(found.ends)) > 2, found.ends - (end - begin), found.ends)
        ids, units = (np.delete(array, range(begin, end)) for array in (found.ids, found.units))
        return found._replace(ids=ids, units=units, ends=ends)

    monkeypatch.setattr(Numbered, "read", without_the_third)
    batch = source()[2]
    assert batch.weight[:, 0].tolist() == [1, 1, 0, 1, 1, 1, 1, 1]
    assert not batch.tokens.ids[2].any() and batch.tokens.length[2, 0] == 0
    others = [0, 1, 3, 4, 5, 6, 7]
    assert np.array_equal(batch.tokens.ids[others], whole.tokens.ids[others])
    assert np.array_equal(batch.ordinal, whole.ordinal)


def test_every_eighth_record_is_of_the_treebank_and_no_record_of_the_text_is_left_out():
    text = ShuffledOrder(50, 3, 0)
    order = TaggedOrder(text, 50, 7, 3, 0)
    drawn = [order.record(ordinal) for ordinal in range(8 * 50)]
    assert [ordinal for ordinal, record in enumerate(drawn) if record >= 50] == list(range(7, 400, 8))
    assert [record for record in drawn if record < 50] == [text.record(ordinal) for ordinal in range(350)]
    tagged = [record - 50 for record in drawn if record >= 50]
    assert all(sorted(tagged[begin : begin + 7]) == list(range(7)) for begin in range(0, 49, 7))
    others = [TaggedOrder(text, 50, 7, *other) for other in ((4, 0), (3, 1))]
    assert all(tagged != [other.record(ordinal) - 50 for ordinal in range(7, 400, 8)] for other in others)
