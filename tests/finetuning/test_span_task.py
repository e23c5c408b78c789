from collections import Counter

import numpy as np
import pytest

from bert_jax.config.task import SpanConfig, TaskConfig
from bert_jax.finetuning.span_task import SpanTask
from bert_jax.finetuning.task import Task
from bert_jax.records.record import Record
from bert_jax.system.errors import UsageError

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
        (LONG, "new dogs"),
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
    assert isinstance(task, Task)
    [examples] = task.encode([record(LONG, "new dogs", question="where the cat sees a dog ?")], repairs, train=True)
    assert repairs["questions longer than 4 pieces, cut"] == 1
    rows = [
        " ".join(wordpiece.vocabulary.pieces[number] for number in example.sequences[0].ids) for example in examples
    ]
    assert rows[0] == "[CLS] where the cat sees [SEP] the old house , a cat sees [SEP]"
    assert rows[1] == "[CLS] where the cat sees [SEP] cat sees the new dog ##s where [SEP]"
    assert [example.sequences[0].first_length for example in examples] == [6] * len(examples) and len(rows) == 4
    # Beginning and end where the window holds the whole answer, otherwise [CLS].
    assert [example.target for example in examples] == [(0, 0), (9, 11), (0, 0), (0, 0)]


def test_an_answer_over_two_windows_is_asked_in_the_one_that_has_all_of_it(wordpiece):
    task = SpanTask(CONFIG, wordpiece)
    [examples] = task.encode([record(LONG, "cat sees the new")], Counter(), train=True)
    asked = [example.target for example in examples if example.target != (0, 0)]
    assert asked == [(5, 8)]


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
    one = record("the cat sees", answers={"text": ["cat", "the cat"], "answer_start": [4, 0]})
    task = SpanTask(CONFIG, wordpiece)
    assert task.gold(one) == ["cat", "the cat"]
    assert task.encode([one], Counter(), train=True)[0][0].target == (6, 6)
    with pytest.raises(UsageError, match=r"'answers' is a string; expected \[{text, answer_start}, ...\]"):
        task.gold(record("the cat", answers="cat"))
    for answers in ({"text": "cat", "answer_start": 4}, {"text": ["cat"], "answer_start": []}):
        with pytest.raises(UsageError, match="'answers' is an object of 'text', 'answer_start'; expected"):
            task.gold(record("the cat", answers=answers))
