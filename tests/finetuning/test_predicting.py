import itertools
from collections import Counter

import numpy as np
import pytest

from bert_jax.config.task import SpanConfig, TaskConfig
from bert_jax.finetuning.dataset import LabelledRows, make_task
from bert_jax.finetuning.metrics import metric_of
from bert_jax.finetuning.predicting import given_records, has_plain_lines, measure, of_lines, predictions
from bert_jax.model.task import HeadShape
from bert_jax.records.record import Record
from bert_jax.records.row_format import RowFormat
from bert_jax.records.task_files import task_records
from bert_jax.system.errors import UsageError

LENGTHS = (8, 16, 32)
CLASS = TaskConfig(name="x", kind="class", labels=("even", "odd"), max_length=32, padded_lengths=LENGTHS)
TAGS = CLASS.replace(kind="tags", texts=("words",), label="tags", labels=("a", "b", "c"))
CHOICE = CLASS.replace(kind="choice", choices=("first", "second"), labels=None)
SPAN = TaskConfig(
    name="x",
    kind="span",
    texts=("question", "context"),
    max_length=16,
    padded_lengths=(16,),
    span=SpanConfig(stride=4, question_length=4),
)


def by_ids(task):
    """A model whose outputs depend on the row's real tokens alone: their sum, told apart by output."""

    def run(batch):
        kind, outputs = task.config.kind, HeadShape.of(task.config).outputs
        ids = np.where(batch.tokens.sequence > 0, batch.tokens.ids, 0)
        if kind == "choice":
            return np.sin(ids.sum(axis=2))
        if kind in ("tags", "span"):
            return np.sin(ids[:, 0, :, None] * (1 + np.arange(outputs)) + ids[:, 0].sum(axis=1)[:, None, None])
        return np.sin(ids[:, 0].sum(axis=1)[:, None] * (1 + np.arange(outputs)))

    return run


def rows(kind, count):
    random = np.random.default_rng(1)
    some = ["the", "cat", "sees", "dogs", "unseen", "house", "old"]
    for number in range(count):
        words = [some[place] for place in random.integers(0, len(some), random.integers(1, 50))]
        text = " ".join(words)
        yield Record(
            f"row {number}",
            {"tags": {"words": words}, "span": {"question": "who ?", "context": text}}.get(
                kind, {"sentence": text[:100], "first": text[:40], "second": text[20:60]}
            ),
        )


@pytest.mark.parametrize("config", [CLASS, TAGS, CHOICE, SPAN], ids=lambda config: config.kind)
def test_rows_come_in_their_order_with_what_each_has_alone(wordpiece, config):
    task = make_task(config, wordpiece)
    records = list(rows(config.kind, 300))
    found = list(predictions(task, records, by_ids(task), Counter(), tokens=64))
    assert [record for record, _ in found] == records
    for record, said in found[::37]:
        [(_, alone)] = predictions(task, [record], by_ids(task), Counter(), tokens=64)
        assert flat(said) == pytest.approx(flat(alone), abs=1e-9)
    assert len({str(said) for _, said in found}) > 10


def flat(said):
    """All strings and numbers of a prediction."""
    if isinstance(said, dict):
        said = [*said, *said.values()]
    found = {}
    for number, value in enumerate(said if isinstance(said, list) else [said]):
        inner = flat(value) if isinstance(value, (dict, list)) else {"": value}
        found |= {f"{number}.{key}": one for key, one in inner.items()}
    return {key: one for key, one in found.items() if not isinstance(one, str)} | {
        f"{key}={one}": 0 for key, one in found.items() if isinstance(one, str)
    }


def test_an_endless_stream_is_read_a_bounded_way_ahead(wordpiece):
    task, read = make_task(CLASS, wordpiece), itertools.count()
    endless = (Record("f", {"sentence": f"the cat {next(read)}"}) for _ in itertools.repeat(None))
    found = predictions(task, endless, by_ids(task), Counter(), tokens=64)
    first = list(itertools.islice(found, 20))
    assert len(first) == 20 and next(read) < 3000


def test_what_was_cut_is_counted(wordpiece):
    task, repairs = make_task(CLASS, wordpiece), Counter()
    texts = [Record("f", {"sentence": text}) for text in ("the " * 50, "", "cat")]
    assert len(list(predictions(task, texts, by_ids(task), repairs, tokens=64))) == 3
    assert +repairs == {"rows with an empty text": 1, "sequences longer than 32 pieces, cut": 1}


def test_predictions_are_measured_by_the_metric_that_counts(wordpiece):
    task = make_task(CLASS.replace(metric="matthews"), wordpiece)
    records = list(rows("class", 50))
    said = [one["predicted_label"] for _, one in predictions(task, records, by_ids(task), Counter(), tokens=64)]
    golds = [task.labels.number(name, "") for name in said]
    found = measure(task, LabelledRows(records, golds), by_ids(task))
    assert (found["metric"], found["score"], found["accuracy"]) == ("matthews", 1.0, 1.0)


@pytest.mark.parametrize(
    "config, metric",
    [
        (CLASS, "accuracy"),
        (CLASS.replace(metric="f1"), "f1"),
        (TAGS, "accuracy"),
        (TAGS.replace(labels=("B-X", "O")), "entity_f1"),
        (TAGS.replace(labels=("B-X", "O"), metric="accuracy"), "accuracy"),
        (CLASS.replace(kind="number", labels=None), "pearson"),
        (SPAN, "f1"),
    ],
)
def test_every_kind_has_a_metric_that_counts(config, metric):
    assert metric_of(config) == metric


def test_rows_may_be_given_in_python():
    pair = CLASS.replace(texts=("first", "second"))
    assert [record.values for record in given_records(["a \ud800"], CLASS)] == [{"sentence": "a \ufffd"}]
    assert [record.values for record in given_records([("a", "b"), {"x": 1}], pair)] == [
        {"first": "a", "second": "b"},
        {"x": 1},
    ]
    assert [record.values for record in given_records([" He  sees. "], TAGS)] == [{"words": ["He", "sees."]}]
    for row in ("a", ("a", "b", "c"), 3):
        with pytest.raises(UsageError, match="row 1 is .*; give {column: value}, or a tuple of first, second"):
            list(given_records([row], pair))


def test_words_of_a_file_with_a_text_a_line_stand_between_spaces(tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("He sees .\n\n\u4ed6\u3000\u770b\n")
    assert has_plain_lines(TAGS, str(lines)) and not has_plain_lines(TAGS.replace(train="rows.txt"), str(lines))
    records = of_lines(task_records(str(lines), Counter(), RowFormat("text", TAGS.texts)), TAGS)
    assert [record.values["words"] for record in records] == [["He", "sees", "."], [], ["\u4ed6", "\u770b"]]


def test_measurements_have_a_baseline_and_say_if_one_answer_is_given_for_all(wordpiece):
    records = [Record(f"row {number}", {"sentence": "the cat"}) for number in range(4)]
    rows, task = LabelledRows(records, [0, 1, 1, 1]), make_task(CLASS, wordpiece)
    for logits, constant in (([[1, 0]] * 4, "even"), ([[1, 0], [0, 1]] * 2, None)):
        found = measure(task, rows, lambda batch: np.array(logits, np.float32)[batch.ordinal])
        assert found["baseline"] == {"accuracy": 0.75, "f1": 6 / 7, "macro_f1": 3 / 7, "matthews": 0.0}
        assert found["constant_prediction"] == constant
    one = measure(task, LabelledRows(records[:1], [1]), lambda batch: np.ones((1, 2), np.float32))
    assert one["constant_prediction"] is None  # of a single row
