import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.config.task import SpanConfig
from bert_jax.finetuning.windows import BestSpans, TextWindow, windows, with_best_context
from bert_jax.text.vocabulary import PieceSpan

TEXT = "a b c d e f g h"
SPANS = [PieceSpan(9, 2 * number, 2 * number + 1) for number in range(8)]
OFFSET = 3


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
    assert [(window.start, window.stop) for window in windows(count, most, stride)] == expected


def original(count, all_windows):
    """For every piece the number of its best window, as the original's _check_is_max_context finds it."""
    best = []
    for place in range(count):
        scores = [
            min(place - begin, end - 1 - place) + 0.01 * (end - begin) if begin <= place < end else -1.0
            for begin, end in ((window.start, window.stop) for window in all_windows)
        ]
        best.append(scores.index(max(scores)))
    return best


@given(st.integers(0, 90), st.integers(2, 20), st.integers(1, 20))
@settings(deadline=None)
def test_every_piece_has_its_best_context_in_one_window(count, most, stride):
    found = windows(count, most, stride)
    flags = with_best_context(found, count)
    assert [len(one) for one in flags] == list(map(len, found))
    where = np.full(count, -1)
    for number, (window, best) in enumerate(zip(found, flags)):
        assert (where[window.start : window.stop][best] == -1).all()
        where[window.start : window.stop][best] = number
    assert where.tolist() == original(count, found)


def parts(most=8, stride=4):
    found = windows(8, most, stride)
    return [TextWindow(window, best, SPANS, OFFSET) for window, best in zip(found, with_best_context(found, 8))]


def logits(size=8, null=(0.0, 0.0), begins={}, ends={}):
    """Scores of a window: -9 but for the pieces given."""
    scores = np.full((OFFSET + size + 1, 2), -9.0)
    scores[0] = null
    for place, column in enumerate((begins, ends)):
        for piece, score in column.items():
            scores[OFFSET + piece, place] = score
    return scores


def said(*of_windows, most=8, stride=4, **settings):
    best = BestSpans(TEXT, SpanConfig(**settings))
    for part, scores in zip(parts(most, stride), of_windows, strict=True):
        best.add(part, scores)
    return best.prediction()


def test_the_best_pair_of_beginning_and_end_is_the_answer():
    found = said(logits(begins={1: 3, 5: 2}, ends={2: 2, 6: 2.5}))
    # 1-6 has 5.5, 1-2 5, 5-6 4.5; an end before its beginning is no answer.
    assert [one["text"] for one in found["best"][:3]] == ["b c d e f g", "b c", "f g"]
    assert found["predicted_answer"] == "b c d e f g" and found["null_odds"] is None
    shares = [one["probability"] for one in found["best"]]
    assert shares[0] / shares[1] == pytest.approx(math.exp(0.5)) and sum(shares) == pytest.approx(1)
    assert found["probability"] == shares[0] and (found["best"][1]["begin"], found["best"][1]["end"]) == (2, 5)


def test_long_answers_and_those_outside_of_the_text_are_left_out():
    scores = logits(begins={1: 3}, ends={2: 2, 6: 2.5})
    assert said(scores, answer_length=5)["predicted_answer"] == "b c"
    assert said(scores, answer_length=6)["predicted_answer"] == "b c d e f g"
    scores[1] = scores[-1] = 50  # the question, and [SEP]
    assert said(scores)["predicted_answer"] == "b c d e f g"


def test_only_so_many_beginnings_and_ends_are_looked_at_and_answers_listed():
    scores = logits(begins={7: 3, 1: 2}, ends={2: 2, 3: 1})
    assert said(scores, best=1)["best"] == []  # the best end is before the best beginning
    assert [one["text"] for one in said(scores, best=2)["best"]] == ["b c", "b c d"]
    assert len(said(scores, best=20)["best"]) == 20


def test_an_answer_begins_where_its_context_is_best():
    first, second = logits(6), logits(6)
    first[OFFSET + 4, 0] = first[OFFSET + 4, 1] = 5  # e: one piece to its right here, two to its left in the other
    second[OFFSET, 0] = second[OFFSET, 1] = 4  # c: none to its left
    found = said(first, second, most=6, stride=2)
    assert found["best"][0]["probability"] < 0.5 and found["predicted_answer"] not in ("e", "c")


def test_the_same_text_is_listed_once_with_its_best_score():
    best = BestSpans("x x", SpanConfig())
    part = TextWindow(windows(2, 2, 2)[0], np.array([True, True]), [PieceSpan(9, 0, 1), PieceSpan(9, 2, 3)], OFFSET)
    best.add(part, logits(2, begins={0: 1, 1: 2}, ends={0: 1, 1: 2}))
    assert [(one["text"], one["begin"]) for one in best.prediction()["best"]] == [("x", 2), ("x x", 0)]


def test_no_answer_is_said_where_its_score_is_larger_by_the_threshold():
    scores = logits(null=(2.0, 1.5), begins={1: 2}, ends={2: 1})
    found = said(scores, null_answers=True)
    assert (found["predicted_answer"], found["null_odds"]) == ("", 0.5)
    assert [one["text"] for one in found["best"][:2]] == ["", "b c"] and found["probability"] == found["best"][0][
        "probability"
    ]
    answered = said(scores, null_answers=True, null_threshold=0.5)
    assert answered["predicted_answer"] == "b c" and answered["probability"] == found["best"][1]["probability"]
    assert said(scores)["predicted_answer"] == "b c"


def test_the_lowest_null_score_of_all_windows_counts():
    answer = logits(6, null=(-1.0, -2.0), begins={1: 0}, ends={2: 0})
    other = logits(6, null=(5.0, 5.0))
    found = said(answer, other, most=6, stride=2, null_answers=True)
    assert found["null_odds"] == -3.0 and found["predicted_answer"] == "b c"


def test_no_answer_is_always_listed_where_it_may_be():
    scores = logits(null=(-50, -50), begins=dict.fromkeys(range(8), 1), ends=dict.fromkeys(range(8), 1))
    listed = [one["text"] for one in said(scores, null_answers=True, best=5)["best"]]
    assert len(listed) == 6 and listed[-1] == ""
