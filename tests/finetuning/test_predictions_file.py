import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bert_jax.config.task import TaskConfig
from bert_jax.config.task_kind import TASK_KINDS
from bert_jax.finetuning import predictions_file
from bert_jax.finetuning.columns import list_or_value
from bert_jax.finetuning.predictions_file import write_predictions
from bert_jax.records.record import Record
from bert_jax.records.sources import task_records
from bert_jax.system.errors import UsageError

ROWS = [
    Record(f"in, line {number}", {"id": number, "text": text}) for number, text in enumerate(['a "b", c', "雪", ""], 2)
]
SAID = {"predicted_label": "no", "probabilities": {"no": 0.75, "yes": 0.25}}
ANSWER = {"predicted_answer": "b", "probability": 0.9, "best": [{"text": "b", "probability": 0.9}], "null_odds": None}


NEEDED = {
    "choice": {"choices": ("a", "b")},
    "tags": {"texts": ("words",), "label": "tags"},
    "span": {"texts": ("question", "context"), "max_length": 384},
    "vectors": {"texts": ("text", "other")},
}
"""Settings that a kind of task needs."""


def task(kind, **settings):
    return TaskConfig(kind=kind, **NEEDED.get(kind, {}) | settings)


def pairs(said, rows=ROWS):
    return ((record, said) for record in rows)


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv"])
def test_a_file_has_the_row_and_the_prediction_and_can_be_read_again(tmp_path, suffix):
    """A table has a column for each probability."""
    path, said, number = tmp_path / f"out.{suffix}", SAID, int
    write_predictions(path, pairs(SAID), task("class"))
    found = [record.values for record in task_records(str(path), Counter())]
    if suffix != "jsonl":
        said, number = {"predicted_label": "no", "probability_no": "0.75", "probability_yes": "0.25"}, str
    assert found == [row.values | {"id": number(row.values["id"])} | said for row in ROWS]
    assert "雪" in path.read_text("utf-8")


def test_a_table_has_the_columns_that_its_first_row_lacks(tmp_path):
    (tmp_path / "in.tsv").write_text("a\tb\tc\n1\t2\n1\t2\t3\n")
    rows = list(task_records(str(tmp_path / "in.tsv"), Counter()))
    write_predictions(tmp_path / "out.tsv", pairs({"predicted_label": "no"}, rows), task("class"))
    assert (tmp_path / "out.tsv").read_text() == "a\tb\tc\tpredicted_label\n1\t2\t\tno\n1\t2\t3\tno\n"


def test_choices_are_numbered(tmp_path):
    write_predictions(tmp_path / "out.csv", pairs({"predicted_choice": 1, "probabilities": [0.5, 0.5]}), task("choice"))
    names = (tmp_path / "out.csv").read_text("utf-8").partition("\n")[0]
    assert names == "id,text,predicted_choice,probability_0,probability_1"


def test_the_words_come_first_in_conll_and_no_other_column_in_their_place(tmp_path):
    row = Record("in, line 1", {"id": ["1", "2"], "words": ["20 000", "cats"], "spans": [[0, 1, "X"]] * 2})
    write_predictions(tmp_path / "out.conll", [(row, {"predicted_tags": ["O", "B"]})], task("tags"))
    [back] = task_records(str(tmp_path / "out.conll"), Counter())
    assert back.values["words"] == ["20 000", "cats"] and back.values["tags"] == ["O", "B"]
    split = {"predicted_spans": [], "predicted_words": ["Ann", "."], "predicted_tags": ["B-X", "O"]}
    row = Record("in, line 1", {"id": 3, "body": "Ann.", "tokens": ["?", "?"]})
    write_predictions(tmp_path / "out.conll", [(row, split)], task("tags", texts=("body",)))
    assert (tmp_path / "out.conll").read_text("utf-8") == "Ann\t?\tB-X\n.\t?\tO\n\n"


TREE = """\
# text = Dogs bark.
1\tDogs\tdog\tX\tN\tNumber=Plur\t2\tnsubj\t_\t_
2-3\tbark.\t_\t_\t_\t_\t_\t_\t_\t_
2\tbark\tbark\tX\tV\t_\t0\troot\t_\tSpaceAfter=No
3\t.\t.\tX\t.\t_\t2\tpunct\t_\t_

"""


def test_conllu_keeps_the_columns_of_a_treebank_and_numbers_other_words(tmp_path):
    (tmp_path / "in.conllu").write_text(TREE)
    [tree] = task_records(str(tmp_path / "in.conllu"), Counter())
    text = Record("in, line 1", {"words": ["Cats", "\u200b"], "id": "a", "tags": ["A", "B"]})
    rows = [(tree, {"predicted_tags": ["NOUN", "VERB", "PUNCT"]}), (text, {"predicted_tags": ["NOUN", ""]})]
    write_predictions(tmp_path / "out.conllu", rows, task("tags", label="upos"))
    kept = [line for line in TREE.splitlines(keepends=True) if line[:1] != "#" and "-" not in line[:2]]
    tagged = "".join(kept).replace("\tX\t", "\t{}\t").format("NOUN", "VERB", "PUNCT")
    blank = "\t_" * 6 + "\n"
    numbered = f"1\tCats\t_\tNOUN{blank}2\t\u200b\t_\t_{blank}\n"
    assert (tmp_path / "out.conllu").read_text("utf-8") == tagged + numbered


def test_conllu_has_no_column_for_other_tags(tmp_path):
    rows = [(Record("in, line 1", {"words": ["a"]}), {"predicted_tags": ["B-PER"]})]
    with pytest.raises(UsageError, match="learned the column 'tags', and in CoNLL-U .* 'upos', .*; write a .conll"):
        write_predictions(tmp_path / "out.conllu", rows, task("tags"))


def test_rows_without_words_are_left_out_of_conll_and_counted(tmp_path, capsys):
    words = ([], ["a"], [])
    rows = [(Record("in", {"words": each}), {"predicted_tags": ["O"] * len(each)}) for each in words]
    write_predictions(tmp_path / "out.conll", rows, task("tags"))
    assert (tmp_path / "out.conll").read_text() == "a\tO\n\n"
    assert "2 rows without a word" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["a", " "], ["-DOCSTART-"], [" a"], ["a\nb"]])
def test_words_that_would_be_read_otherwise_are_refused_in_conll(tmp_path, words):
    row, said = Record("in, line 1", {"words": words}), {"predicted_tags": ["O"] * len(words)}
    fault = (
        "has a tab or line end" if words == ["a\nb"] else "has a word with the columns .*, which a .conll can't hold"
    )
    with pytest.raises(UsageError, match=f"in, line 1 {fault}.*; write a .jsonl"):
        write_predictions(tmp_path / "out.conll", [(row, said)], task("tags"))


WRITTEN = {
    "class": {"predicted_label": "no", "probabilities": {"no": 0.75, "yes": 0.25}},
    "labels": {"predicted_labels": ["a", "b"], "probabilities": {"a": 1.0, "b": 0.5}},
    "number": {"predicted_number": 1.5},
    "choice": {"predicted_choice": 1, "probabilities": [0.25, 0.75]},
    "tags": {"predicted_tags": ["O", "B-X"]},
    "span": {"predicted_answer": "a", "probability": 0.5, "best": [], "null_odds": None},
    "vectors": {"predicted_similarity": 0.5},
}
ODD = st.text(st.sampled_from("ab\"',;|\t \n\r#[]{}()1-\\\u00a0\u2028\u0085\ufeff😀é"), max_size=6)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".conll", ".conllu"])
@pytest.mark.parametrize("kind", WRITTEN)
def test_what_is_written_is_read_back_or_refused(tmp_path, kind, suffix, data):
    """By the reader of rows: every column of the input, whatever its text, and the prediction."""
    if suffix not in (".jsonl", ".csv", ".tsv", *TASK_KINDS[kind].written_to):
        return
    of_words = {"label": "upos"} if suffix == ".conllu" else {}
    count = len(WRITTEN["tags"]["predicted_tags"])
    words = st.lists(ODD, min_size=count, max_size=count)
    columns = {"words": words, "tags": words} if kind == "tags" else {"id": ODD, "text": ODD, "label": ODD}
    rows = data.draw(st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=3))
    path = tmp_path / f"out{suffix}"
    try:
        write_predictions(path, [(Record("in", row), dict(WRITTEN[kind])) for row in rows], task(kind, **of_words))
    except UsageError:
        return
    back = list(task_records(str(path), Counter()))
    assert len(back) == len(rows)
    for one, row in zip(back, rows, strict=True):
        if suffix == ".conll":
            expected = {"words": row["words"], "column 2": row["tags"], "tags": ["O", "B-X"]}
            assert {name: one.values[name] for name in expected} == expected
        elif suffix == ".conllu":
            assert one.values["words"] == row["words"] and one.values["upos"] == ["O", "B-X"]
        else:
            read = {name: list_or_value(one, name) if kind == "tags" else one.values[name] for name in row}
            assert read == row
            name, value = next(iter(WRITTEN[kind].items()))
            assert str(list_or_value(one, name)) == str(value)


def test_answers_go_by_their_question(tmp_path):
    write_predictions(tmp_path / "out.json", pairs(ANSWER), task("span"))
    read = lambda name: json.loads((tmp_path / name).read_text("utf-8"))  # noqa: E731
    assert read("out.json") == {"2": "b", "3": "b", "4": "b"}
    assert read("out.best.json")["3"] == ANSWER["best"]
    assert not (tmp_path / "out.null_odds.json").exists()
    write_predictions(tmp_path / "out.json", pairs(ANSWER | {"null_odds": -1.5}), task("span"))
    assert read("out.null_odds.json") == {"2": -1.5, "3": -1.5, "4": -1.5}
    write_predictions(tmp_path / "out.json", pairs(ANSWER), task("span"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.best.json", "out.json"]


@pytest.mark.parametrize("count", range(3))
def test_a_kill_leaves_no_answers_beside_files_of_others(tmp_path, monkeypatch, count):
    """After so many files are written."""
    write_predictions(tmp_path / "out.json", pairs(ANSWER | {"null_odds": -1.5}), task("span"))
    left, write = iter(range(count)), predictions_file.write_json
    monkeypatch.setattr(predictions_file, "write_json", lambda path, value: write(path, [next(left), value]))
    with pytest.raises(StopIteration):
        write_predictions(tmp_path / "out.json", pairs(ANSWER | {"null_odds": 2.5}), task("span"))
    names = ["out.best.json", "out.null_odds.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names[:count]


@pytest.mark.parametrize(
    "name, kind, rows, words",
    [
        ("out.txt", "class", ROWS, "out.txt: predictions of kind class are written to .jsonl, .csv, .tsv; name it so"),
        ("out.json", "tags", ROWS, "written to .jsonl, .csv, .tsv, .conll"),
        ("out.tsv", "class", [Record("in, line 2", {"text": "a\tb"})], "in, line 2 has a tab or line end in 'a"),
        ("out.csv", "class", [*ROWS, Record("in, line 9", {"more": 1})], "line 9 has columns that the first row lacks"),
        ("out.json", "span", [ROWS[0], ROWS[0]], "in, line 2: the id '2' occurs twice"),
        ("out.csv", "class", [Record("in, line 2", {"probability_no": "9"})], "has a column 'probability_no', and one"),
        ("out.jsonl", "class", [Record("in, line 2", {"predicted_label": "x"})], "has a column 'predicted_label', and"),
        ("out.jsonl", "class", [], "there is no row to write predictions of"),
        ("none/out.csv", "class", ROWS, "there is no folder"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_no_file(tmp_path, name, kind, rows, words):
    with pytest.raises(UsageError) as refusal:
        write_predictions(tmp_path / name, pairs(ANSWER if kind == "span" else SAID, rows), task(kind))
    assert words in str(refusal.value) and not list(tmp_path.iterdir())
