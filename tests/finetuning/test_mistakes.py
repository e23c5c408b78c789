"""Wrong predictions as people read them, and the worst of them in the results of a measurement."""

import numpy as np
import pytest

from bert_jax.config.task import SpanConfig, TaskConfig
from bert_jax.finetuning.dataset import LabelledRows, make_task
from bert_jax.finetuning.predicting import measure
from bert_jax.finetuning.task import Example, Outcome
from bert_jax.records.record import Record

PAIR = {"texts": ("a", "b"), "labels": ("no", "yes")}
CASES = {
    "class": (PAIR, 1, {"predicted_label": "no", "probabilities": {"no": 0.9, "yes": 0.1}}, (0.9, "yes", "no", 0.9)),
    "labels": (
        PAIR,
        (0, 1),
        {"predicted_labels": ["no"], "probabilities": {"no": 0.75, "yes": 0.25}},
        (2, "yes", "no", 0.75**2),
    ),
    "number": ({"texts": ("a", "b")}, 2.5, {"predicted_number": 1.0}, (1.5, "2.5", "1", None)),
    "choice": (
        {"texts": ("{a} | {b}",), "choices": ("c", "d")},
        1,
        {"predicted_choice": 0, "probabilities": [0.8, 0.2]},
        (0.8, "two", "one", 0.8),
    ),
    "tags": (
        {"texts": ("words",), "label": "tags", "labels": ("B-X", "O")},
        ["B-X", "O", "O"],
        {"predicted_tags": ["O", "O", "B-X"]},
        (2, "x B-X, y O", "x O, y B-X", pytest.approx(0.75)),
    ),
    "span": (
        {"texts": ("a", "b"), "label": "answers", "span": SpanConfig(stride=32)},
        ["the red cat"],
        {"predicted_answer": "cat", "probability": 0.25},
        (pytest.approx(1 / 3), "the red cat", "cat", 0.25),
    ),
}
ROW = {"a": "x", "b": "y", "c": "one", "d": "two", "words": ["x", "|", "y"]}


@pytest.mark.parametrize("kind", CASES)
def test_a_mistake_has_its_size_and_both_answers_and_a_right_answer_is_none(kind, wordpiece):
    settings, gold, prediction, wrong = CASES[kind]
    task, record = make_task(TaskConfig(name="x", kind=kind, **settings), wordpiece), Record("f, line 1", ROW)
    # Of tags only: "x" has logits of even odds, "y" of 3 to 1.
    examples, outputs = [Example((), origin={0: 0, 2: 1})], [np.array([[0, 0], [np.log(3), 0]])]
    outcome = Outcome(record, examples, outputs) if kind == "tags" else Outcome(record, [], [])
    assert task.mistake(outcome, gold, prediction) == wrong
    assert task.shown_text(record) == "x | y"
    name = next(iter(prediction))
    right = {"class": "yes", "labels": ["yes"], "span": "The red cat"}.get(kind, gold)
    assert task.mistake(outcome, gold, prediction | {name: right}) is None


def test_the_worst_are_in_the_results_first_and_cut(wordpiece):
    task = make_task(TaskConfig(name="x", kind="number", texts=("a",)), wordpiece)
    records = [Record(f"line {number}", {"a": f"{number} {'x' * 1000}"}) for number in range(30)]
    rows = LabelledRows(records, [float(number % 20) for number in range(30)])
    found = measure(task, rows, run=lambda batch: np.zeros((*batch.weight.shape, 1))).content
    assert [error["right"] for error in found["errors"]] == ["19", "18", "17", "16", "15", "14", "13", "12", "11", "10"]
    assert found["errors"][0]["text"].startswith("19 x") and len(found["errors"][0]["text"]) == 400
