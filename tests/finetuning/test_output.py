import json
from collections import Counter

import pytest

from bert_jax.finetuning.output import write_predictions
from bert_jax.records.record import Record
from bert_jax.records.task_files import task_records
from bert_jax.system.errors import UsageError

ROWS = [
    Record(f"in, line {number}", {"id": number, "text": text}) for number, text in enumerate(['a "b", c', "雪", ""], 2)
]
SAID = {"predicted_label": "no", "probabilities": {"no": 0.75, "yes": 0.25}}
ANSWER = {"predicted_answer": "b", "probability": 0.9, "best": [{"text": "b", "probability": 0.9}], "null_odds": None}


def pairs(said, rows=ROWS):
    return ((record, said) for record in rows)


def test_json_lines_have_the_row_and_the_prediction(tmp_path):
    path = tmp_path / "out.jsonl"
    write_predictions(path, pairs(SAID), "class")
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == [
        {**row.values, **SAID} for row in ROWS
    ]
    assert "雪" in path.read_text("utf-8")


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_tables_have_a_column_for_each_probability_and_can_be_read_again(tmp_path, suffix):
    path = tmp_path / f"out.{suffix}"
    write_predictions(path, pairs(SAID), "class")
    found = [record.values for record in task_records(str(path), Counter())]
    said = {"predicted_label": "no", "probability_no": "0.75", "probability_yes": "0.25"}
    assert found == [{"id": str(row.values["id"]), "text": row.values["text"], **said} for row in ROWS]


def test_without_rows_nothing_is_written(tmp_path):
    with pytest.raises(UsageError, match="there is no row to write predictions of"):
        write_predictions(tmp_path / "out.jsonl", [], "class")
    assert not list(tmp_path.iterdir())


def test_a_table_has_the_columns_that_its_first_row_lacks(tmp_path):
    (tmp_path / "in.tsv").write_text("a\tb\tc\n1\t2\n1\t2\t3\n")
    write_predictions(
        tmp_path / "out.tsv", pairs(SAID, list(task_records(str(tmp_path / "in.tsv"), Counter()))), "class"
    )
    assert [line.split("\t")[:4] for line in (tmp_path / "out.tsv").read_text().splitlines()] == [
        ["a", "b", "c", "predicted_label"],
        ["1", "2", "", "no"],
        ["1", "2", "3", "no"],
    ]


def test_choices_are_numbered(tmp_path):
    write_predictions(tmp_path / "out.csv", pairs({"predicted_choice": 1, "probabilities": [0.5, 0.5]}), "choice")
    assert (
        (tmp_path / "out.csv").read_text("utf-8").startswith("id,text,predicted_choice,probability_0,probability_1\n")
    )


def test_words_have_their_predicted_tag_last(tmp_path):
    row = Record("in, line 1", {"words": ["the", "U.N."], "tags": ["O", "B-X"], "doc": "x"})
    write_predictions(tmp_path / "out.conll", [(row, {"predicted_tags": ["O", "O"]})] * 2, "tags")
    assert (tmp_path / "out.conll").read_text("utf-8") == "the\tO\tO\nU.N.\tB-X\tO\n\n" * 2


def test_a_word_with_a_line_feed_is_no_line_of_conll(tmp_path):
    row = Record("in, line 1", {"words": ["a\nb"]})
    with pytest.raises(UsageError, match="in, line 1 holds a tab or line feed"):
        write_predictions(tmp_path / "out.conll", [(row, {"predicted_tags": ["O"]})], "tags")


def test_answers_go_by_their_question(tmp_path):
    write_predictions(tmp_path / "out.json", pairs(ANSWER), "span")
    read = lambda name: json.loads((tmp_path / name).read_text("utf-8"))  # noqa: E731
    assert read("out.json") == {"2": "b", "3": "b", "4": "b"}
    assert read("out.best.json")["3"] == ANSWER["best"]
    assert not (tmp_path / "out.null_odds.json").exists()
    write_predictions(tmp_path / "out.json", pairs(ANSWER | {"null_odds": -1.5}), "span")
    assert read("out.null_odds.json") == {"2": -1.5, "3": -1.5, "4": -1.5}


@pytest.mark.parametrize(
    "name, kind, rows, words",
    [
        ("out.txt", "class", ROWS, "out.txt: predictions of kind class are written to .jsonl, .csv, .tsv; name it so"),
        ("out.conll", "class", ROWS, "written to .jsonl, .csv, .tsv; name"),
        ("out.json", "tags", ROWS, "written to .jsonl, .csv, .tsv, .conll"),
        ("out.tsv", "class", [Record("in, line 2", {"text": "a\tb"})], "in, line 2 holds a tab or line feed in 'a"),
        (
            "out.csv",
            "class",
            [*ROWS, Record("in, line 9", {"more": 1})],
            "in, line 9 has columns that the first row lacks",
        ),
        ("out.json", "span", [ROWS[0], ROWS[0]], "in, line 2: the id '2' stands twice"),
        (
            "out.csv",
            "class",
            [Record("in, line 2", {"probability_no": "9"})],
            "has a column 'probability_no', and one of",
        ),
        ("out.jsonl", "class", [Record("in, line 2", {"predicted_label": "x"})], "has a column 'predicted_label', and"),
        ("none/out.csv", "class", ROWS, "there is no folder"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_no_file(tmp_path, name, kind, rows, words):
    with pytest.raises(UsageError) as refusal:
        write_predictions(tmp_path / name, pairs(ANSWER if kind == "span" else SAID, rows), kind)
    assert words in str(refusal.value) and not list(tmp_path.iterdir())
