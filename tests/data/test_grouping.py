import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.grouping import ahead, few_lengths, grouped, padded_length, row_count, usual_lengths


def test_the_shapes_of_512_positions_are_51():
    """What the docstrings promise."""
    shapes = {
        (row_count(needed, 8192 // length), length)
        for length in usual_lengths(512)
        for needed in range(1, 8192 // length + 1)
    }
    assert len(shapes) == 51


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


@given(st.lists(st.integers(1, 60), min_size=1, max_size=80))
@settings(deadline=None)
def test_chosen_lengths_are_the_best_of_their_number(sizes):
    largest = max(sizes)
    lengths = few_lengths(sizes, largest)
    assert lengths[-1] == largest and list(lengths) == sorted(set(lengths)) and len(lengths) <= 16
    taken = lambda lengths: sum(padded_length(size, lengths) for size in sizes)  # noqa: E731
    assert 0.92 * taken(lengths) <= sum(sizes) or len(lengths) == 16
    for place, change in itertools.product(range(len(lengths) - 1), range(-3, 4)):  # no neighbour is better
        other = {*lengths[:place], min(max(lengths[place] + change, 1), largest), *lengths[place + 1 :]}
        assert taken(sorted(other)) >= taken(lengths)


def test_few_different_sizes_need_few_lengths():
    assert few_lengths([7] * 50 + [20] * 9, 20) == (7, 20)
    assert few_lengths([32, 31, 32], 32) == (32,)


def test_longer_sequences_than_were_seen_have_lengths_too():
    assert few_lengths([7] * 50 + [20] * 9, 128) == (7, 20, 40, 80, 128)


def test_a_group_that_is_nearly_full_has_its_lengths_largest_shape():
    sizes = [16, *[15] * 7]  # only the first one needs 16, and a group of one would be another shape
    [group] = grouped(sizes, int, (15, 16), 128)
    assert group.shape == (8, 16) and group.places == list(range(8)) and group.items == sizes
    assert [group.shape for group in grouped([16, *[8] * 7], int, (8, 16), 128)] == [(1, 16), (16, 8)]


def test_padding_of_lengths_that_suit_is_below_a_tenth():
    sizes = np.clip(np.random.default_rng(0).geometric(0.08, 20_000) + 2, 3, 64).tolist()
    groups = list(grouped(sizes, int, few_lengths(sizes, 64), 2048))
    assert sum(sizes) > 0.9 * sum(np.prod(group.shape) for group in groups)


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
