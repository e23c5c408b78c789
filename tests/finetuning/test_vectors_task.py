"""Rows of pairs: their columns, negatives and scores, and what is refused."""

import json

import numpy as np
import pytest

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.dataset import LabelledRows, make_task, read_labelled, read_training
from bert_jax.finetuning.predicting import measure
from bert_jax.finetuning.vectors_task import pair_of
from bert_jax.records.record import Record
from bert_jax.system.errors import UsageError

CONFIG = TaskConfig(name="x", kind="vectors", texts=("query", "positive"), label="score", max_length=16)


def record(**values):
    return Record("f, line 1", values)


@pytest.mark.parametrize(
    ("values", "settings", "expected"),
    [
        ({"query": "a", "positive": "b"}, {}, ("a", "b", [], None)),
        ({"a": "x", "b": "y", "score": "2.5"}, {}, ("x", "y", [], 2.5)),
        ({"q": "a", "title": "t", "body": "b"}, {"texts": ("q", "{title}. {body}")}, ("a", "t. b", [], None)),
        ({"query": "a", "positive": "b", "negatives": ["c", " ", "d"]}, {}, ("a", "b", ["c", "d"], None)),
        ({"query": "a", "positive": "b", "negatives": '["c", "d"]'}, {}, ("a", "b", ["c", "d"], None)),
        ({"query": "a", "positive": "b", "negatives": "[c]"}, {}, ("a", "b", ["[c]"], None)),
        ({"query": "a", "positive": "b", "hard": "c"}, {"negatives": "hard"}, ("a", "b", ["c"], None)),
        ({"query": "a", "positive": "b", "score": None}, {}, ("a", "b", [], None)),
    ],
)
def test_the_columns_of_a_pair(values, settings, expected):
    assert pair_of(CONFIG.replace(**settings), record(**values)) == expected


@pytest.mark.parametrize(
    ("values", "settings", "words"),
    [
        ({"sentence": "a", "label": "b"}, {}, "no pair of texts in query and positive: there is 'sentence', 'label'"),
        ({"query": "a", "positive": "b", "negatives": [1]}, {}, "'negatives' is .*give one text or, in JSON lines, a"),
        ({"a": "a", "b": "b", "score": 7}, {"score_range": (0.0, 5.0)}, "is 7, and --task.score-range is 0 to 5"),
    ],
)
def test_what_is_no_pair_is_refused(values, settings, words):
    with pytest.raises(UsageError, match=words):
        pair_of(CONFIG.replace(**settings), record(**values))


def learned(rows, wordpiece, tmp_path, **settings):
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_training(CONFIG.replace(train=str(file), **settings), wordpiece)


def test_the_training_rows_settle_scores_and_negatives(wordpiece, tmp_path):
    pairs = [
        {"query": "cat", "positive": "dog", "negatives": ["old", "new"]},
        {"query": "house", "positive": "café"},
        {"query": "house", "positive": "", "negatives": ["cat", "dog", "old"]},  # which isn't learned from
    ]
    for most, expected in ((None, 2), (1, 1), (0, 0)):
        config = learned(pairs, wordpiece, tmp_path, most_negatives=most).task.config
        assert (config.scored, config.most_negatives) == (False, expected)
    scored = [{"a": "cat", "b": "dog", "score": 1, "negatives": ["old"]}, {"a": "house", "b": "café", "score": 2}]
    config = learned(scored, wordpiece, tmp_path).task.config
    assert config.scored and config.most_negatives == 0


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"query": "cat", "positive": "dog"}, {"query": "old", "positive": None}], "there is one pair to learn from"),
        ([{"query": "cat", "positive": "The"}, {"query": "dog", "positive": "the"}], "the second text is the same"),
        ([{"query": "cat", "positive": "dog"}, {"query": "cat", "positive": "old"}], "the first text is the same"),
        ([{"a": "cat", "b": "dog", "score": 1}, {"a": "old", "b": "new", "score": 1}], "all pairs have the score 1"),
        ([{"query": "cat", "positive": " "}], "has no row to learn from"),
    ],
)
def test_pairs_that_teach_nothing_are_refused(rows, problem, wordpiece, tmp_path):
    with pytest.raises(UsageError, match=problem):
        learned(rows, wordpiece, tmp_path)


def test_negatives_that_are_a_text_of_the_pair_and_empty_pairs_are_counted(wordpiece, tmp_path, capsys):
    pairs = [
        {"query": "the cat", "positive": "a dog", "negatives": ["a dog", "The cat", "house"]},
        {"query": "old", "positive": "new"},
        {"query": "old", "positive": ""},
    ]
    examples = learned(pairs, wordpiece, tmp_path).examples
    said = capsys.readouterr().err
    assert "2 negatives equal to a text of their pair, left out" in said
    assert "1 row with an empty text, not learned from" in said
    assert [len(example.sequences) for example in examples] == [3, 2]
    mixed = [{"a": "old", "b": "new", "score": 1}, {"a": "old", "b": "house"}]
    with pytest.raises(UsageError, match="1 of 2 rows have no score, 'score' is empty"):
        learned(mixed, wordpiece, tmp_path)


def test_each_text_is_encoded_once_and_equal_vectors_find_nothing(wordpiece):
    task = make_task(CONFIG.replace(widths=(2,)), wordpiece)
    pairs = ("the cat", "house"), ("a dog", "house"), ("old", "new")
    rows = [record(query=query, positive=positive) for query, positive in pairs]
    assert [one.values["text"] for one in task.inputs(rows)] == ["the cat", "house", "a dog", "old", "new"]
    found = measure(task, LabelledRows(rows, [None] * 3), run=lambda batch: np.ones((*batch.weight.shape, 4))).content
    assert found["metric"] == "ndcg@10" and found["recall@1"] == found["2/recall@1"] == 0.0
    assert found["baseline"] == found["baselines"]["BM25"] and {"tf-idf", "BM25"} == found["baselines"].keys()


def test_a_metric_that_the_rows_do_not_have_is_refused(wordpiece):
    task = make_task(CONFIG.replace(metric="recall@1"), wordpiece)
    assert task.metric([None]) == "recall@1"
    with pytest.raises(UsageError, match="the dev pairs have scores; choose from spearman, pearson"):
        task.metric([1.0])


def test_dev_pairs_with_an_empty_text_are_not_measured(wordpiece, tmp_path, capsys):
    file = tmp_path / "dev.jsonl"
    file.write_text('{"query": "cat", "positive": "dog"}\n{"query": "cat", "positive": " "}\n')
    rows = read_labelled(make_task(CONFIG.replace(dev=str(file)), wordpiece))
    assert len(rows.records) == 1 and "1 row with an empty text, not measured" in capsys.readouterr().err
