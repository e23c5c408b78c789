import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.batching.grouping import Group, ahead, few_sizes, grouped, in_input_order, padded_length, usual_lengths


@pytest.mark.parametrize(
    "longest, lengths",
    [
        (512, (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)),
        (50, (16, 24, 32, 48, 50)),
        (48, (16, 24, 32, 48)),
        (9, (9,)),
    ],
)
def test_lengths_of_unknown_sequences_rise_by_halves_and_thirds(longest, lengths):
    assert usual_lengths(longest) == lengths
    assert [padded_length(size, lengths) for size in (1, lengths[-1])] == [lengths[0], longest]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=40), st.floats(0, 60))
@settings(deadline=None)
def test_chosen_sizes_cost_the_least_of_all_choices(needed, compiling):
    cost = lambda sizes: sum(padded_length(size, sizes) for size in needed) + compiling * len(sizes)  # noqa: E731
    chosen = few_sizes(needed, compiling)
    sizes = sorted({*needed} - {max(needed)})
    choices = (some for count in range(len(sizes) + 1) for some in itertools.combinations(sizes, count))
    assert cost(chosen) == pytest.approx(min(cost((*some, max(needed))) for some in choices))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=300), st.floats(0, 5000))
@settings(deadline=None)
def test_a_shape_is_compiled_once_it_pays(sizes, compiling):
    groups = list(grouped(sizes, int, usual_lengths(50), 256, compiling))
    assert sorted(place for group in groups for place in group.places) == list(range(len(sizes)))
    for group in groups:
        assert [sizes[place] for place in group.places] == group.items
        assert len(group.items) <= group.shape[0] and max(group.items) <= group.shape[1]
    padded = lambda groups: sum(group.shape[0] * group.shape[1] for group in groups)  # noqa: E731
    shapes = lambda groups: {group.shape for group in groups}  # noqa: E731
    free = list(grouped(sizes, int, usual_lengths(50), 256))
    allowed = {(count, length) for length in usual_lengths(50) for count in (1, 4, 16, 256 // length)}
    assert shapes(groups) | shapes(free) <= allowed
    assert all(group.shape[1] == padded_length(max(group.items), usual_lengths(50)) for group in free)
    paid = 50 * len(sizes) + 256 + len(shapes(free)) * compiling
    assert len(shapes(groups)) == 1 or padded(groups) + compiling <= paid


def test_items_are_read_a_window_at_a_time_and_similar_lengths_go_together():
    read = itertools.count()
    first = next(grouped((100 + 0 * next(read) for _ in itertools.count()), int, usual_lengths(512), 2048))
    assert first.places == list(range(16)) and next(read) == 656  # 65,536 tokens
    sizes = [*range(2, 130)] * 8
    padded = sum(np.prod(group.shape) for group in grouped(sizes, int, usual_lengths(512), 2048))
    assert padded < 1.25 * sum(sizes) and 128 * len(sizes) > 1.9 * sum(sizes)


def test_few_sequences_take_one_shape_and_many_take_what_suits_them():
    sizes = np.clip(np.random.default_rng(0).geometric(0.045, 20_000) + 4, 4, 64).tolist()
    few, many = (list(grouped(some, int, usual_lengths(64), 2048, 20_000)) for some in (sizes[:400], sizes))
    assert {group.shape for group in few} == {(32, 64)}
    assert len({group.shape for group in many}) < 8
    padded = sum(group.shape[0] * group.shape[1] for group in many)
    freely = sum(group.shape[0] * group.shape[1] for group in grouped(sizes, int, usual_lengths(64), 2048))
    assert padded < 1.1 * freely


def test_one_long_sequence_does_not_make_all_others_long():
    groups = list(grouped([500, *[20] * 1000], int, usual_lengths(512), 2048, 20_000))
    assert {group.shape for group in groups} == {(4, 512), (85, 24)}


def test_a_group_that_is_nearly_full_has_its_lengths_largest_shape():
    sizes = [16, *[15] * 7]  # only the first one needs 16, and a group of one would be another shape
    [group] = grouped(sizes, int, (15, 16), 128)
    assert group.shape == (8, 16) and group.places == list(range(8)) and group.items == sizes
    assert [group.shape for group in grouped([16, *[8] * 7], int, (8, 16), 128)] == [(1, 16), (16, 8)]


@pytest.mark.parametrize("threads", [1, 2])
def test_items_come_in_order_when_others_have_been_drawn(threads):
    drawn = []
    items = ahead(lambda item: -item, (drawn.append(number) or number for number in range(8)), threads)
    assert [(item, computed, len(drawn)) for item, computed in items] == [
        *((number, -number, 5 + number) for number in range(4)),
        *((number, -number, 8) for number in range(4, 8)),
    ]


def test_two_are_computed_at_once():
    both = threading.Barrier(2, timeout=60)
    list(ahead(lambda _: both.wait(), range(4)))


def test_what_computing_raises_comes_in_its_turn():
    items = ahead(lambda item: 1 // item, [1, 0, 1])
    assert next(items) == (1, 1)
    with pytest.raises(ZeroDivisionError):
        next(items)


def test_results_come_in_the_order_of_the_input_without_those_of_padding():
    groups = [Group([2, 0], ["c", "a"], (3, 16)), Group([1], ["b"], (1, 16)), Group([3], ["d"], (2, 16))]
    computed = [(group.places, [*group.items, *["padding"] * (group.shape[0] - len(group.items))]) for group in groups]
    assert [*in_input_order(computed)] == ["a", "b", "c", "d"]
