import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.inference.batches import Row, ahead, batches, row, row_count
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary

VOCABULARY = Vocabulary([*SPECIAL_PIECES, *map(str, range(100))])
CLS, SEP, PAD = VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.pad_id


def rows_of(lengths) -> list[Row]:
    """A row of each length, filled with its number."""
    return [Row([number + 10] * length, length, False) for number, length in enumerate(lengths)]


def shortened(first: list[int], second: list[int], most: int) -> tuple[list[int], list[int]]:
    """What the original's _truncate_seq_pair makes of a pair, one piece after another."""
    first, second = list(first), list(second)
    while len(first) + len(second) > most:
        (first if len(first) > len(second) else second).pop()
    return first, second


@given(st.lists(st.integers(5, 99), max_size=30), st.lists(st.integers(5, 99), max_size=30), st.integers(3, 40))
def test_a_pair_is_cut_as_in_the_original(first, second, longest):
    left, right = shortened(first, second, longest - 3)
    assert row([first, second], VOCABULARY, longest) == Row(
        [CLS, *left, SEP, *right, SEP], len(left) + 2, len(left) + len(right) < len(first) + len(second)
    )


@pytest.mark.parametrize("size, cut", [(0, False), (6, False), (7, True)])
def test_a_single_text_is_cut_at_its_end(size, cut):
    ids = [CLS, *range(5, 5 + min(size, 6)), SEP]
    assert row([list(range(5, 5 + size))], VOCABULARY, 8) == Row(ids, len(ids), cut)


@given(st.lists(st.integers(2, 50), max_size=100))
def test_every_row_is_in_one_batch_and_nothing_else_is(lengths):
    check_batches(lengths)


def test_rows_of_several_windows_keep_their_places():
    check_batches([50, 3] * 1500)


def check_batches(lengths):
    """Every row is in one batch, under its place, with nothing but padding after it."""
    seen = {}
    for batch in batches(rows_of(lengths), PAD, 50, 256):
        for number, place in enumerate(batch.places):
            assert place not in seen
            seen[place] = int(batch.mask[number].sum())
            assert (batch.ids[number] == np.where(batch.mask[number], place + 10, PAD)).all()
        assert not batch.mask[len(batch.places) :].any() and not batch.segments.any()
    assert seen == dict(enumerate(lengths))


@given(st.lists(st.integers(2, 50), min_size=1, max_size=100))
def test_shapes_are_few_and_no_batch_is_too_large(lengths):
    allowed = {(count, length) for length in (16, 32, 50) for count in (1, 4, 16, 256 // length)}
    for batch in batches(rows_of(lengths), PAD, 50, 256):
        assert batch.ids.shape in allowed and batch.ids.size <= 256
        assert batch.ids.shape[1] == 16 or batch.mask.sum(axis=1).max() > batch.ids.shape[1] // 2


def test_the_shapes_of_512_positions_are_27():
    """What the docstrings promise."""
    shapes = {
        (row_count(needed, 8192 // length), length)
        for length in (16, 32, 64, 128, 256, 512)
        for needed in range(1, 8192 // length + 1)
    }
    assert len(shapes) == 27


def test_similar_lengths_go_together():
    lengths = [*range(2, 130)] * 8
    padded = sum(batch.ids.size for batch in batches(rows_of(lengths), PAD, 512, 2048))
    assert padded < 1.5 * sum(lengths) and 128 * len(lengths) > 1.9 * sum(lengths)


def test_the_second_segment_is_marked():
    [batch] = batches([row([[7, 8], [9]], VOCABULARY, 16), row([[7]], VOCABULARY, 16)], PAD, 16, 64)
    assert batch.segments[:2, :8].tolist() == [[0, 0, 0, 0, 1, 1, 0, 0], [0] * 8]
    assert batch.ids[0, :6].tolist() == [CLS, 7, 8, SEP, 9, SEP]


def test_rows_are_read_a_window_at_a_time():
    read = itertools.count()
    endless = (Row([next(read)] * 100, 100, False) for _ in itertools.count())
    first = next(batches(endless, PAD, 512, 2048))
    assert len(first.places) == 16 and next(read) == 656  # 65,536 tokens


def test_items_are_handed_on_when_others_have_been_drawn():
    drawn = []
    items = ahead((drawn.append(number) or number for number in range(6)), 2)
    assert [(item, len(drawn)) for item in items] == [(0, 3), (1, 4), (2, 5), (3, 6), (4, 6), (5, 6)]
