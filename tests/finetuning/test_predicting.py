import itertools
import json
from collections import Counter

import numpy as np
import pytest

from bert_jax.config.task import SpanConfig, TaskConfig
from bert_jax.finetuning.dataset import LabelledRows, make_task
from bert_jax.finetuning.metrics import metric_of
from bert_jax.finetuning.predicting import measure, predictions
from bert_jax.model.task import HeadShape
from bert_jax.records.record import Record

CLASS = TaskConfig(name="x", kind="class", labels=("even", "odd"), max_length=32)
TAGS = CLASS.replace(kind="tags", texts=("words",), label="tags", labels=("a", "b", "c"))
CHOICE = CLASS.replace(kind="choice", choices=("first", "second"), labels=None)
SPAN_CONFIG = SpanConfig(stride=4, question_length=4)
SPAN = TaskConfig(name="x", kind="span", texts=("question", "context"), max_length=16, span=SPAN_CONFIG)


def by_ids(task):
    """A model whose outputs depend on the row's real tokens alone: their sum, told apart by output."""

    def run(batch):
        kind, outputs = task.config.kind, 1 + np.arange(HeadShape.of(task.config).outputs)
        tokens = batch.tokens
        of_sequence = tokens.sequence[:, None] == np.arange(1, tokens.length.shape[1] + 1)[:, None]
        sums = (tokens.ids[:, None] * of_sequence).sum(axis=2)
        if kind == "choice":
            return np.sin(sums.reshape(*batch.weight.shape, -1))
        if kind in ("tags", "span"):
            of_token = (sums[..., None] * of_sequence).sum(axis=1)
            return np.sin(tokens.ids[..., None] * outputs + of_token[..., None])
        return np.sin(sums[..., None] * outputs)

    return run


def rows(kind, count):
    random = np.random.default_rng(1)
    some = ["the", "cat", "sees", "dogs", "unseen", "house", "old"]
    for number in range(count):
        words = [some[place] for place in random.integers(0, len(some), random.integers(1, 50))]
        text = " ".join(words)
        special = {"tags": {"words": words}, "span": {"question": "who ?", "context": text}}
        plain = {"sentence": text[:100], "first": text[:40], "second": text[20:60]}
        yield Record(f"row {number}", special.get(kind, plain))


@pytest.mark.parametrize("config", [CLASS, TAGS, CHOICE, SPAN], ids=lambda config: config.kind)
@pytest.mark.long(first=1)
def test_rows_come_in_their_order_with_what_each_has_alone(wordpiece, config):
    task = make_task(config, wordpiece)
    records = list(rows(config.kind, 300))
    found = list(predictions(task, records, by_ids(task), Counter(), tokens=64))
    assert [record for record, _ in found] == records
    for record, said in found[::37]:
        [(_, alone)] = predictions(task, [record], by_ids(task), Counter(), tokens=64)
        assert rounded(said) == rounded(alone)
    assert len({str(said) for _, said in found}) > 10


def rounded(said: object) -> object:
    """A prediction whose numbers have nine decimals."""
    return json.loads(json.dumps(said), parse_float=lambda number: round(float(number), 9))


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


@pytest.mark.parametrize(
    "config, metric",
    [
        (CLASS, "accuracy"),
        (CLASS.replace(metric="f1"), "f1"),
        (TAGS, "accuracy"),
        (TAGS.replace(labels=("B-X", "O")), "entity_f1"),
        (CLASS.replace(kind="number", labels=None), "pearson"),
        (SPAN, "f1"),
    ],
)
def test_every_kind_has_a_metric_that_counts(config, metric):
    assert metric_of(config) == metric


def test_measurements_have_a_score_and_a_baseline_and_say_if_one_answer_is_given_for_all(wordpiece):
    records = [Record(f"row {number}", {"sentence": "the cat"}) for number in range(4)]
    rows, task = LabelledRows(records, [0, 1, 1, 1]), make_task(CLASS.replace(metric="macro_f1"), wordpiece)
    for logits, constant in (([[1, 0]] * 4, "even"), ([[1, 0], [0, 1]] * 2, None)):
        found = measure(task, rows, lambda batch: np.array(logits, np.float32)[batch.ordinal]).content
        assert (found["metric"], found["score"]) == ("macro_f1", found["macro_f1"])
        assert found["score"] != found["accuracy"]
        assert found["baseline"] == {"accuracy": 0.75, "f1": 6 / 7, "macro_f1": 3 / 7, "matthews": 0.0}
        assert found["constant_prediction"] == constant
    one = measure(task, LabelledRows(records[:1], [1]), lambda batch: np.ones((1, 1, 2), np.float32)).content
    assert one["constant_prediction"] is None  # of a single row
