"""Texts and rows of a Python program in every form, with every method of a model."""

import datetime
import json
from collections import deque
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

datasets, pandas, pyarrow = map(pytest.importorskip, ("datasets", "pandas", "pyarrow"))

import bert_jax
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.rows_to_predict import python_records
from bert_jax.inference.bert import Bert
from bert_jax.model.task import HeadShape, init_for_task
from bert_jax.records.python_values import python_rows, python_texts
from bert_jax.run.python_input import write_rows, write_texts
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.errors import UsageError

TEXTS = ["The old [MASK] sees.", "A green [MASK] follows the river.", "The [MASK]."]
FRAME = pandas.DataFrame({"text": TEXTS, "number": [1, 2, 3]})
CLASSES = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])})
LABELLED = datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 1, -1]}, features=CLASSES)
READ = {
    "list": lambda: TEXTS,
    "tuple": lambda: tuple(TEXTS),
    "generator": lambda: (text for text in TEXTS),
    "deque": lambda: deque(TEXTS),
    "keys of a dict": lambda: dict.fromkeys(TEXTS).keys(),
    "array": lambda: np.array(TEXTS),
    "array of objects": lambda: np.array(TEXTS, object),
    "array with fields": lambda: np.array([(text, 1) for text in TEXTS], [("text", "U40"), ("number", "i4")]),
    "frame": lambda: FRAME,
    "frame of one column": lambda: FRAME[["text"]].rename(columns={"text": "sentence"}),
    "rows of a frame": lambda: (row for _, row in FRAME.iterrows()),
    "series": lambda: FRAME["text"],
    "series with an index": lambda: FRAME.set_index("number")["text"],
    "categories": lambda: FRAME["text"].astype("category"),
    "index": lambda: pandas.Index(TEXTS),
    "data set": lambda: LABELLED,
    "column of a data set": lambda: LABELLED["text"],
    "data set as arrays": lambda: LABELLED.with_format("numpy"),
    "data set in a stream": lambda: LABELLED.to_iterable_dataset(),
    "mappings": lambda: [{"text": text} for text in TEXTS],
    "table of Arrow": lambda: pyarrow.table({"text": TEXTS}),
    "array of Arrow": lambda: pyarrow.array(TEXTS),
}
RENAMED = {"frame of one column": "sentence"}
"""The forms whose column of texts has another name than text."""
READ_ONCE = "tuple", "generator", "array", "frame", "frame of one column", "data set in a stream"
"""Forms that a method could mistake: for a pair, for what can be read twice or has a truth value, or for a row."""
REFUSED = {
    "a text": (TEXTS[0], "put it in brackets"),
    "bytes": (b"The [MASK].", r"got b'The \[MASK\]\.'; give a list, a generator"),
    "a mapping": ({"text": TEXTS}, "got one mapping of 'text'; put it in brackets if it is a row"),
    "sets of a data set": (datasets.DatasetDict(train=LABELLED), "got one mapping of 'train'"),
    "a set": ({*TEXTS}, "give a list, a generator"),
    "nothing": (None, "got None; give a list"),
    "a number": (5, "got 5; give a list"),
    "an array without axis": (np.array("The [MASK]."), "give a list"),
    "a class": (str, "give a list"),
    "numbers": (np.arange(3), "1 is 0"),
    "bytes in a list": ([b"The [MASK]."], r"1 is b'The"),
    "lists of words": ([["The", "old", "cat"]], r"1 is \['The', 'old', 'cat'\]"),
    "days": ([datetime.date(2026, 11, 29)], "1 is "),
    "columns twice": (FRAME.set_axis(["text", "text"], axis=1), "the DataFrame names the column 'text' twice"),
}
METHODS = {
    "encode": lambda bert, texts: bert.encode(texts).tokens,
    "encode_stream": lambda bert, texts: np.concatenate([some.tokens for some in bert.encode_stream(texts)]),
    "features": lambda bert, texts: np.stack([one.vectors for one in bert.features(texts, pool="mean")]),
    "embed": lambda bert, texts: bert.embed(texts),
    "score": lambda bert, texts: np.array(bert.score(texts)),
    "tokens": lambda bert, texts: np.asarray(bert.tokens(texts).ids),
    "fill_mask": lambda bert, texts: np.array([fills[0][0][1] for fills in bert.fill_mask(texts)]),
    "search by": lambda bert, texts: np.array([hits[0].score for hits in bert.search(texts, ["The cat."])]),
    "search in": lambda bert, texts: np.array([hit.score for hit in bert.search("The cat.", texts)]),
}


@pytest.fixture(scope="module")
def bert(tiny_run):
    return bert_jax.load(tiny_run.path)


@pytest.fixture(scope="module")
def expected(bert):
    return {name: method(bert, TEXTS) for name, method in METHODS.items()}


@pytest.fixture(scope="module")
def classifier(bert):
    """Predicts classes, with a random head."""
    task = TaskConfig(name="texts", kind="class", texts=("text",), labels=("bad", "good"), max_length=32)
    params = init_for_task(bert.config, HeadShape.of(task), jax.random.key(0))
    return Bert(bert.config, params, bert.tokenizer, task)


@pytest.mark.parametrize("form", READ)
def test_every_form_gives_its_texts_and_its_rows(tmp_path, form):
    assert [*python_texts(READ[form](), "x")] == TEXTS
    run = RunDirectory(tmp_path / "run")
    file = Path(write_texts(run, READ[form]()).removeprefix("jsonl:").removesuffix("#text"))
    assert [json.loads(line) for line in file.read_text().splitlines()] == [{"text": text} for text in TEXTS]
    if isinstance(next(python_rows(READ[form](), "x")), dict):
        rows = [json.loads(line) for line in Path(write_rows(run, "train", READ[form]())).read_text().splitlines()]
        assert [row[RENAMED.get(form, "text")] for row in rows] == TEXTS
    else:
        with pytest.raises(UsageError, match=r"row 1 is 'The old .*; give mappings such as"):
            write_rows(run, "train", READ[form]())


@pytest.mark.parametrize("form", READ_ONCE)
def test_every_method_reads_what_is_no_list_as_a_list(bert, classifier, expected, form):
    for name, method in METHODS.items():
        np.testing.assert_array_equal(method(bert, READ[form]()), expected[name], err_msg=name)
    task = classifier.task.replace(texts=(RENAMED.get(form, "text"),))
    renamed = Bert(classifier.config, classifier.params, classifier.tokenizer, task)
    assert renamed.predict(READ[form]()) == classifier.predict(TEXTS)


@pytest.mark.parametrize("form", REFUSED)
def test_every_method_and_training_refuses_what_holds_no_texts(bert, classifier, tmp_path, form):
    given, words = REFUSED[form]
    run = RunDirectory(tmp_path / "run")
    taking = {name: partial(method, bert) for name, method in METHODS.items()}
    if form == "a text":
        for name in ("fill_mask", "search by", "search in"):  # they take one text too, or the name of a file
            del taking[name]
    taking |= {"predict": classifier.predict, "pretrain": partial(write_texts, run)}
    taking["finetune"] = partial(write_rows, run, "train")
    for name, take in taking.items():
        with pytest.raises(UsageError, match=words) as refusal:
            take(given)
        assert "\n" not in str(refusal.value), name
    assert not [*tmp_path.rglob("*.jsonl")]


@pytest.mark.parametrize("form", ["pandas", "arrow"])
def test_a_data_set_in_the_format_of_tables_has_rows_and_a_list_of_tables_has_none(form):
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["a", "b"])})
    given = datasets.Dataset.from_dict({"text": ["x"], "label": [1]}, features=features).with_format(form)
    assert list(python_rows(given, "f")) == [{"text": "x", "label": "b"}]
    with pytest.raises(UsageError, match="f: row 1 is a table; give its rows"):
        list(python_rows([given[:]], "f"))


def test_classes_of_a_data_set_are_their_names_and_minus_one_is_none():
    tags = datasets.ClassLabel(names=["O", "B-PER"])
    features = CLASSES | {
        "tags": datasets.Sequence(tags),
        "spans": datasets.List({"kind": tags, "begin": datasets.Value("int32")}),
        "about": {"kind": tags},
    }
    row = {"text": "a", "label": 1, "tags": [0, 1], "spans": [{"kind": 1, "begin": 1}], "about": {"kind": 0}}
    other = {"text": "b", "label": -1, "tags": [], "spans": [], "about": None}
    named = row | {
        "label": "good",
        "tags": ["O", "B-PER"],
        "spans": [{"kind": "B-PER", "begin": 1}],
        "about": {"kind": "O"},
    }
    data = datasets.Dataset.from_list([row, other], features=datasets.Features(features))
    for form in (data, data.with_format("numpy"), data.to_iterable_dataset()):
        first, second = python_rows(form, "finetune")
        assert first == named and second["label"] is None and second["tags"] == []


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan"), pandas.NA, pandas.NaT, ""])
def test_a_missing_text_is_an_empty_one_in_every_method(bert, expected, classifier, missing, capsys):
    texts = [TEXTS[0], missing]
    for name, method in METHODS.items():
        if name in ("fill_mask", "search by"):
            with pytest.raises(UsageError, match="there is no|is empty"):
                method(bert, texts)
            continue
        alike = method(bert, [TEXTS[0], ""])
        capsys.readouterr()
        np.testing.assert_array_equal(method(bert, texts), alike, err_msg=name)
        assert ("1 of 2 texts are missing" in capsys.readouterr().err) == (not isinstance(missing, str))
    assert classifier.predict(texts) == classifier.predict([TEXTS[0], ""])
    assert classifier.predict([{"text": TEXTS[0]}, {"text": missing}]) == classifier.predict([TEXTS[0], ""])
    assert [*python_texts(pandas.Series(texts), "x")] == [TEXTS[0], ""]


WORDS = ["The", "old", "cat"]


@pytest.mark.parametrize(
    "rows",
    [
        [WORDS],
        ["The old cat"],
        [np.array(WORDS)],
        np.array([WORDS]),
        pandas.DataFrame({"words": [np.array(WORDS)]}),
        pandas.Series([WORDS]),
        [pandas.Series(WORDS)],
        [(WORDS,)],
        [{"words": tuple(WORDS)}],
        datasets.Dataset.from_dict({"words": [WORDS]}),
        pyarrow.array([WORDS]),
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_arrays_of_words_are_words(rows):
    tags = TaskConfig(name="tags", kind="tags", texts=("words",), label="tags", labels=("O", "B-PER"))
    assert [record.values for record in python_records(python_rows(rows, "predict"), tags)] == [{"words": WORDS}]


def test_a_single_word_in_a_list_is_words():
    tags = TaskConfig(name="tags", kind="tags", texts=("words",), label="tags", labels=("O", "B-PER"))
    assert [*python_records(python_rows([["cat"]], "predict"), tags)][0].values == {"words": ["cat"]}


def test_pairs_are_read_in_lists_tuples_and_arrays(bert):
    expected = bert.encode([("A house", "near the river.")]).tokens
    for pairs in ([["A house", "near the river."]], np.array([["A house", "near the river."]])):
        np.testing.assert_array_equal(bert.encode(pairs).tokens, expected)
    for method in (bert.fill_mask, lambda pairs: bert.search(pairs, TEXTS), bert.score):
        with pytest.raises(UsageError, match="give a text|is a pair, and a text is needed"):
            method([("A [MASK]", "near the river.")])


def test_attention_takes_one_text_or_a_pair(bert):
    assert bert.attention(np.array(TEXTS)[0]).shape == bert.attention(TEXTS[0]).shape
    for texts in (TEXTS[:2], np.array(TEXTS[:2]), FRAME, None, 5, iter(TEXTS), b"a"):
        with pytest.raises(UsageError, match="attention takes a text, or a pair of texts as a tuple, and got"):
            bert.attention(texts)
    with pytest.raises(UsageError, match="give a text or a pair of texts"):
        bert.attention(("a", "b", "c"))


def test_what_contains_itself_is_refused(bert, classifier, tmp_path):
    row = {"text": "a"}
    row["rows"] = [row]
    for take in (classifier.predict, bert.encode, lambda rows: write_rows(RunDirectory(tmp_path / "r"), "train", rows)):
        with pytest.raises(UsageError, match="1 contains itself"):
            take([row])


def test_several_columns_without_the_name_text_are_refused(bert):
    frame = FRAME.rename(columns={"text": "sentence"})
    with pytest.raises(UsageError, match="encode: text 1 is a row of 'sentence', 'number'; give one column alone"):
        bert.encode(frame)


class _Rows(list):
    features = {"label": datasets.ClassLabel(names=["a", "b"])}


def test_a_class_without_a_name_is_refused():
    with pytest.raises(UsageError, match="the class 7 of a Dataset has no name: its feature has 2"):
        list(python_rows(_Rows([{"label": 7}]), "finetune"))
