from collections import Counter

import pytest

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.rows_to_predict import has_plain_lines, of_lines, python_records
from bert_jax.records.record import RowFormat
from bert_jax.records.sources import task_records
from bert_jax.system.errors import UsageError

CLASS = TaskConfig(name="x", kind="class", labels=("even", "odd"), max_length=32)
TAGS = CLASS.replace(kind="tags", texts=("words",), label="tags", labels=("a", "b", "c"))


def test_rows_may_be_given_in_python():
    pair = CLASS.replace(texts=("first", "second"))
    for rows, task, columns in (
        (["a b"], CLASS, [{"sentence": "a b"}]),
        ([("a", "b"), {"x": 1}], pair, [{"first": "a", "second": "b"}, {"x": 1}]),
        ([" He  sees. "], TAGS, [{"words": ["He", "sees."]}]),
    ):
        assert [record.values for record in python_records(rows, task)] == columns
    for row in ("a", ("a", "b", "c"), 3):
        with pytest.raises(UsageError, match="row 1 is .*; give {column: value}, or a tuple of first, second"):
            list(python_records([row], pair))


def test_words_of_a_file_with_a_text_a_line_stand_between_spaces(tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("He sees .\n\n\u4ed6\u3000\u770b\n")
    assert has_plain_lines(TAGS, str(lines)) and not has_plain_lines(TAGS.replace(train="rows.txt"), str(lines))
    records = of_lines(task_records(str(lines), Counter(), RowFormat("text", TAGS.texts)), TAGS)
    assert [record.values["words"] for record in records] == [["He", "sees", "."], [], ["\u4ed6", "\u770b"]]
