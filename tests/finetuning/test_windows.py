import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.finetuning.windows import Window, windows, with_best_context


@pytest.mark.parametrize(
    "count, most, stride, expected",
    [
        (0, 10, 4, [(0, 0)]),
        (10, 10, 4, [(0, 10)]),
        (11, 10, 4, [(0, 10), (4, 11)]),
        (19, 10, 4, [(0, 10), (4, 14), (8, 18), (12, 19)]),
        (12, 4, 8, [(0, 4), (4, 8), (8, 12)]),
    ],
)
def test_windows_overlap_by_a_stride_and_end_with_the_text(count, most, stride, expected):
    assert windows(count, most, stride) == expected


def original(count, all_windows):
    """For every piece the number of its best window, as the original's _check_is_max_context finds it."""
    best = []
    for place in range(count):
        scores = [
            min(place - begin, end - 1 - place) + 0.01 * (end - begin) if begin <= place < end else -1.0
            for begin, end in all_windows
        ]
        best.append(scores.index(max(scores)))
    return best


@given(st.integers(0, 90), st.integers(2, 20), st.integers(1, 20))
@settings(deadline=None)
def test_every_piece_has_its_best_context_in_one_window(count, most, stride):
    found = windows(count, most, stride)
    flags = with_best_context(found, count)
    assert [len(one) for one in flags] == [end - begin for begin, end in found]
    where = np.full(count, -1)
    for number, (window, best) in enumerate(zip(found, flags)):
        assert (where[window.begin : window.end][best] == -1).all()
        where[window.begin : window.end][best] = number
    assert where.tolist() == original(count, found)


def test_the_papers_example():
    """The original's comment: of `bought` in two windows the second has one piece to its left and the third four."""
    flags = with_best_context([Window(0, 5), Window(3, 8), Window(6, 11)], 11)
    assert [one.tolist() for one in flags][1] == [False, True, True, True, False]


def test_of_two_contexts_alike_the_larger_windows_is_better():
    first, second = with_best_context([Window(0, 4), Window(1, 8)], 8)
    assert first.tolist() == [True, True, False, False] and second[1]
