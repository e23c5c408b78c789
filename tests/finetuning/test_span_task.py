import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.config.task import SpanConfig, TaskConfig
from bert_jax.finetuning.span_task import BestSpans, SpanTask, TextWindow, text_windows, with_best_context
from bert_jax.records.record import Record
from bert_jax.system.errors import UsageError
from bert_jax.text.vocabulary import PieceSpan

SPAN = SpanConfig(stride=5, question_length=4)
CONFIG = TaskConfig(name="squad", kind="span", texts=("question", "context"), label="answers", max_length=14, span=SPAN)
NULL = CONFIG.replace(span=SPAN.replace(null_answers=True))
LONG = "the old house , a cat sees the new dogs where a dog in the house sees a cat ."


def record(context, *answers, question="who sees ?", **values):
    places = [{"text": answer, "answer_start": context.find(answer)} for answer in answers]
    return Record("f, question 'q'", {"context": context, "question": question, "answers": places} | values)


def oracle(task, one):
    """What is predicted where the logits are those of the targets."""
    [train], [asked] = (task.encode([one], Counter(), train=flag) for flag in (True, False))
    assert [example.sequences for example in train] == [example.sequences for example in asked]
    outputs = []
    for example in train:
        logits = np.zeros((example.size + 30, 2), np.float32)  # padded
        logits[example.size :] = 99
        if example.target != (0, 0):
            logits[list(example.target), [0, 1]] = 9
        outputs.append(logits)
    return task.predict(one, asked, outputs), train


@pytest.mark.parametrize(
    "context, answer",
    [
        (LONG, "the new dogs where a dog"),
        (LONG, "."),
        ("in 東京大学 , the old house", "東京大学"),
        ("the\u200b old\u00a0 cat\x00 's", "old\u00a0 cat"),
    ],
)
def test_an_answer_goes_to_tokens_and_comes_back_exactly(tokenizer, context, answer):
    longest = 45 if tokenizer.kind == "byte_bpe" else 30  # its pieces are shorter
    config = CONFIG.replace(max_length=longest, span=SPAN.replace(stride=16))
    said, _ = oracle(SpanTask(config, tokenizer), record(context, answer))
    assert said["predicted_answer"] == answer and said["null_odds"] is None
    first = said["best"][0]
    assert context[first["begin"] : first["end"]] == first["text"] == answer


def test_windows_hold_the_question_and_a_part_of_the_text(wordpiece):
    task, repairs = SpanTask(CONFIG, wordpiece), Counter()
    [examples] = task.encode([record(LONG, "new dogs", question="where the cat sees a dog ?")], repairs, train=True)
    assert repairs["questions longer than 4 pieces, cut"] == 1
    pieces = wordpiece.vocabulary.pieces
    rows = [" ".join(pieces[number] for number in example.sequences[0].ids) for example in examples]
    assert rows[0] == "[CLS] where the cat sees [SEP] the old house , a cat sees [SEP]"
    assert rows[1] == "[CLS] where the cat sees [SEP] cat sees the new dog ##s where [SEP]"
    assert [example.sequences[0].first_length for example in examples] == [6] * len(examples) and len(rows) == 4
    # Beginning and end where the window holds the whole answer, otherwise [CLS].
    assert [example.target for example in examples] == [(0, 0), (9, 11), (0, 0), (0, 0)]
    [examples] = task.encode([record(LONG, "cat sees the new")], Counter(), train=True)  # over two windows
    assert [example.target for example in examples if example.target != (0, 0)] == [(5, 8)]


def test_questions_without_an_answer_are_answered_by_the_first_token(wordpiece):
    task = SpanTask(NULL, wordpiece)
    impossible = record("the cat sees", "cat", is_impossible=True)
    for one in (impossible, record("the cat sees")):
        [[example]] = task.encode([one], Counter(), train=True)
        assert example.target == (0, 0) and task.gold(one) == []
    possible = record("the cat sees", "cat", is_impossible=0)
    assert task.gold(possible) == task.gold(record("the cat sees", "cat", is_impossible=None)) == ["cat"]
    with pytest.raises(UsageError, match="f, question 'q': 'is_impossible' is 'false'; expected true or false"):
        task.gold(record("the cat sees", "cat", is_impossible="false"))
    with pytest.raises(UsageError, match="f, question 'q' has no answer; .* with --task.span.null-answers"):
        SpanTask(CONFIG, wordpiece).encode([impossible], Counter(), train=True)


def test_no_answer_is_the_class_token_where_that_is(wordpiece):
    task = SpanTask(NULL, wordpiece.with_class_token("last"))
    [examples] = task.encode([record(LONG, "new dogs")], Counter(), train=True)
    ends = [example.size - 1 for example in examples]
    assert [example.sequences[0].ids[end] for example, end in zip(examples, ends, strict=True)] == [2] * len(ends)
    assert [example.target for example in examples] == [(ends[0], ends[0]), (7, 9), *((end, end) for end in ends[2:])]
    [asked] = task.encode([record("the cat sees", "cat")], Counter(), train=False)
    for high, answer in ((slice(-1, None), ""), (slice(5, 6), "cat")):
        logits = np.zeros((asked[0].size, 2), np.float32)
        logits[high] = 9
        assert task.predict(record("the cat sees", "cat"), asked, [logits])["predicted_answer"] == answer


@pytest.mark.parametrize("start", [3, -1, 99])
def test_answers_that_are_not_in_the_text_are_counted_and_dropped(wordpiece, start):
    task, repairs = SpanTask(CONFIG, wordpiece), Counter()
    one = record("the cat sees", answers=[{"text": "cat", "answer_start": start}])
    assert task.encode([one], repairs, train=True) == [[]]
    assert +repairs == {"questions whose answer is not in the text where it should be, not learned from": 1}
    assert len(task.encode([one], repairs, train=False)[0]) == 1 and task.gold(one) == ["cat"]


def test_offsets_may_be_texts_and_answers_may_have_spaces_around_them(wordpiece):
    task, repairs = SpanTask(CONFIG, wordpiece), Counter()
    one = record("the cat sees", answers=[{"text": " cat ", "answer_start": "3"}])
    [[example]] = task.encode([one], repairs, train=True)
    assert example.target == (6, 6) and +repairs == {"offsets given as texts, read as numbers": 1}


def test_an_answer_without_a_piece_and_an_empty_text_are_counted(wordpiece):
    task, repairs = SpanTask(CONFIG, wordpiece), Counter()
    assert task.encode([record("the \u200b cat", "\u200b"), record("", "")], repairs, train=True) == [[], []]
    assert +repairs == {"questions whose answer has no piece, not learned from": 1, "rows with an empty text": 1}
    for question in ("", None, "\u200b"):
        repairs.clear()
        asked = record("the cat", "cat", question=question)
        assert task.encode([asked], repairs, train=True) == [[]] and repairs["rows with an empty text"] == 1
        assert len(task.encode([asked], repairs, train=False)[0]) == 1 and repairs["rows with an empty text"] == 2
    [[example]] = task.encode([record("", "x")], repairs, train=False)
    assert task.predict(record("", "x"), [example], [np.zeros((14, 2))])["predicted_answer"] == ""


def test_answers_may_be_an_object_of_lists(wordpiece):
    task = SpanTask(CONFIG, wordpiece)
    one = record("the cat sees", answers={"text": ["cat", "the cat"], "answer_start": [4, 0]})
    assert task.gold(one) == ["cat", "the cat"]
    assert task.encode([one], Counter(), train=True)[0][0].target == (6, 6)
    for answers, kind in (
        ("cat", "a string"),
        ({"text": "cat", "answer_start": 4}, "an object of 'text', 'answer_start'"),
        ({"text": ["cat"], "answer_start": []}, "an object of 'text', 'answer_start'"),
    ):
        with pytest.raises(UsageError, match=rf"'answers' is {kind}; expected \[{{text, answer_start}}, ...\]"):
            task.gold(record("the cat", answers=answers))


TEXT = "a b c d e f g h"
SPANS = [PieceSpan(9, 2 * number, 2 * number + 1) for number in range(8)]
OFFSET = 3


@pytest.mark.parametrize(
    "count, most, stride, expected",
    [
        (0, 10, 4, [(0, 0)]),
        (10, 10, 4, [(0, 10)]),
        (19, 10, 4, [(0, 10), (4, 14), (8, 18), (12, 19)]),
        (12, 4, 8, [(0, 4), (4, 8), (8, 12)]),
    ],
)
def test_windows_overlap_by_a_stride_and_end_with_the_text(count, most, stride, expected):
    assert [(window.start, window.stop) for window in text_windows(count, most, stride)] == expected


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
    found = text_windows(count, most, stride)
    flags = with_best_context(found, count)
    assert [len(one) for one in flags] == list(map(len, found))
    where = np.full(count, -1)
    for number, (window, best) in enumerate(zip(found, flags)):
        assert (where[window.start : window.stop][best] == -1).all()
        where[window.start : window.stop][best] = number
    assert where.tolist() == original(count, found)


def parts(most=8, stride=4):
    found = text_windows(8, most, stride)
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
    scores[1] = scores[-1] = 50  # the question, and [SEP]
    assert said(scores, answer_length=6)["predicted_answer"] == "b c d e f g"


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
    best, pieces = BestSpans("x x", SpanConfig()), [PieceSpan(9, 0, 1), PieceSpan(9, 2, 3)]
    part = TextWindow(text_windows(2, 2, 2)[0], np.array([True, True]), pieces, OFFSET)
    best.add(part, logits(2, begins={0: 1, 1: 2}, ends={0: 1, 1: 2}))
    assert [(one["text"], one["begin"]) for one in best.prediction()["best"]] == [("x", 2), ("x x", 0)]


def test_no_answer_is_said_where_its_score_is_larger_by_the_threshold():
    scores = logits(null=(2.0, 1.5), begins={1: 2}, ends={2: 1})
    found = said(scores, null_answers=True)
    assert (found["predicted_answer"], found["null_odds"]) == ("", 0.5)
    first, second = found["best"][:2]
    assert (first["text"], second["text"]) == ("", "b c") and found["probability"] == first["probability"]
    answered = said(scores, null_answers=True, null_threshold=0.5)
    assert answered["predicted_answer"] == "b c" and answered["probability"] == second["probability"]
    assert said(scores)["predicted_answer"] == "b c"


def test_the_lowest_null_score_of_all_windows_counts():
    answer, other = logits(6, null=(-1.0, -2.0), begins={1: 0}, ends={2: 0}), logits(6, null=(5.0, 5.0))
    found = said(answer, other, most=6, stride=2, null_answers=True)
    assert found["null_odds"] == -3.0 and found["predicted_answer"] == "b c"


def test_no_answer_is_always_listed_where_it_may_be():
    scores = logits(null=(-50, -50), begins=dict.fromkeys(range(8), 1), ends=dict.fromkeys(range(8), 1))
    listed = [one["text"] for one in said(scores, null_answers=True, best=5)["best"]]
    assert len(listed) == 6 and listed[-1] == ""
