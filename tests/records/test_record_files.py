import gzip
import io
import json
import os
import random
import sys
from collections import Counter

import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard

from bert_jax.config.data import DataConfig
from bert_jax.records import file_source, record_files
from bert_jax.records.corpus import open_corpus
from bert_jax.records.decoded_lines import InputFile, Pass
from bert_jax.records.python_values import python_rows
from bert_jax.records.record import RowFormat
from bert_jax.records.sources import task_records
from bert_jax.system.errors import UsageError

RECORDS = [{"text": "First line.\r\n\n  Second line. ", "id": 1}, {"text": "雪 and more", "id": 2}]
DOCUMENTS = [["First line.", "Second line."], ["雪 and more"]]


def lines(*records) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def read(path, field="text", **settings):
    corpus = open_corpus(DataConfig(source=f"{path}#{field}", **settings))
    return list(corpus.documents()), corpus


@pytest.mark.parametrize(
    "name, pack",
    [
        ("a.jsonl", lambda text: text),
        ("a.jsonl.gz", gzip.compress),
        ("a.jsonl.zst", zstandard.compress),
        ("bom.jsonl", lambda text: b"\xef\xbb\xbf" + text),
        ("windows.jsonl", lambda text: text.replace(b"\n", b"\r\n")),
        ("blank.jsonl", lambda text: b"\n" + text.replace(b"\n", b"\n \n").rstrip()),
        ("plain-utf8.jsonl", lambda text: text.replace(b"\\u96ea", "雪".encode())),
    ],
)
def test_a_record_is_a_document_in_every_format(tmp_path, name, pack):
    (tmp_path / name).write_bytes(pack(lines(*RECORDS)))
    documents, corpus = read(tmp_path / name)
    counted = {"bom.jsonl": {"byte-order marks taken off": 1}, "blank.jsonl": {"empty lines left out": 2}}
    assert documents == DOCUMENTS and corpus.repairs == counted.get(name, {})
    assert corpus.position == corpus.total == (tmp_path / name).stat().st_size / 1e6


def test_records_without_text_are_left_out_and_counted(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines({"text": None}, *RECORDS, {"text": ""}, {"text": " \n "}))
    documents, corpus = read(tmp_path / "a.jsonl")
    assert documents == DOCUMENTS and corpus.repairs == {"records without text": 3}
    assert list(corpus.documents()) == DOCUMENTS and corpus.repairs == {"records without text": 3}


@pytest.mark.parametrize(
    "record, field, words",
    [
        ('{"body": "x", "id": 3}', "text", "has no column 'text': there is 'body', 'id'; name another after #"),
        ("{}", "text", "has no column 'text': there is nothing"),
        ('{"text": 3}', "text", "'text' is a number and not a string"),
        ('{"text": {"body": "x"}}', "text", "'text' is an object of 'body' and not a string"),
        ('{"text": ["x"]}', "text", "'text' is an array and not a string"),
        ('{"text": "x"}', "text.body", "has no column 'text.body': it is a string"),
        ('{"text": {"title": "x"}}', "text.body", "has no column 'text.body': there is 'title'"),
        ("[1, 2]", "text", "is an array; a record is an object"),
        ('{"text": "x"', "text", "is not JSON that can be read"),
        ("[" * 100_000, "text", "is not JSON that can be read"),
    ],
)
def test_a_record_that_has_not_the_field_is_refused_with_file_line_and_what_is_there(tmp_path, record, field, words):
    good = {"text": {"body": "x"}} if "." in field else RECORDS[0]
    (tmp_path / "a.jsonl").write_bytes(lines(good) + b"\n" + record.encode() + b"\n")
    with pytest.raises(UsageError) as refusal:
        read(tmp_path / "a.jsonl", field)
    assert f"a.jsonl, line 3{words if words.startswith(':') else ''}" in str(refusal.value)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_undecodable_text_is_replaced_or_refused(tmp_path):
    raw = lines(RECORDS[0]) + b'{"text": "bad \xff byte"}\n' + b'{"text": "half a \\ud83d pair"}\n'
    (tmp_path / "a.jsonl").write_bytes(raw)
    documents, corpus = read(tmp_path / "a.jsonl")
    assert documents[1] == ["bad \ufffd byte"] and documents[2][0].startswith("half a \ufffd")
    assert corpus.repairs == {"lines with undecodable bytes": 2}
    with pytest.raises(UsageError, match=r"a\.jsonl, line 2: byte 15 is not UTF-8"):
        read(tmp_path / "a.jsonl", undecodable="refuse")
    (tmp_path / "a.jsonl").write_bytes(raw.replace(b"\xff", b""))
    with pytest.raises(UsageError, match=r"a\.jsonl, line 3, 'text', line 1: byte 8 is not UTF-8"):
        read(tmp_path / "a.jsonl", undecodable="refuse")


TEXTS = ["First line.\n\nSecond line.", None, "雪", " "]
ROWS = [["First line.", "Second line."], ["雪"]]


def write(path, texts, kind=None, **more):
    pyarrow.parquet.write_table(pa.table({"id": range(len(texts)), "text": pa.array(texts, kind), **more}), path)
    return path


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.binary()],
    ids=str,
)
def test_a_row_is_a_document_in_every_type_of_text(tmp_path, kind):
    texts = [text and text.encode() for text in TEXTS] if kind == pa.binary() else TEXTS
    for name in ("b.parquet", "a.parquet"):
        write(tmp_path / name, texts, kind)
    documents, corpus = read(tmp_path / "*.parquet")
    assert documents == ROWS * 2 and corpus.repairs == {"records without text": 4}
    assert corpus.position == corpus.total == sum(path.stat().st_size for path in tmp_path.iterdir()) / 1e6
    assert corpus.unit == "MB compressed" and list(corpus.documents()) == documents


def test_a_field_of_a_struct_is_named_with_dots(tmp_path):
    pages = pa.array([{"body": {"text": "Deep."}, "n": 1}, None, {"body": None, "n": 2}])
    write(tmp_path / "a.parquet", ["x", "y", "z"], page=pages)
    documents, corpus = read(tmp_path / "a.parquet", "page.body.text")
    assert documents == [["Deep."]] and corpus.repairs == {"records without text": 2}


def test_a_dot_may_be_in_the_name_of_a_column(tmp_path):
    write(tmp_path / "a.parquet", ["x", "y"], **{"page.text": ["First.", "Second."]})
    assert read(tmp_path / "a.parquet", "page.text")[0] == [["First."], ["Second."]]


class Counting(io.BufferedReader):
    """A file that counts what is read of it."""

    count = 0

    def read(self, size=-1):
        found = super().read(size)
        Counting.count += len(found)
        return found


def test_only_one_column_is_read_and_of_it_little_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(Counting, "count", 0)
    monkeypatch.setattr(record_files, "_READ_BYTES", 1 << 14)
    monkeypatch.setattr(file_source, "opened", lambda path: Counting(io.FileIO(path)))
    texts = [f"{number} " + random.Random(number).randbytes(500).hex() for number in range(5000)]
    path = write(tmp_path / "a.parquet", texts, other=texts)
    assert pyarrow.parquet.ParquetFile(path).num_row_groups == 1
    documents = open_corpus(DataConfig(source=f"parquet:{path}#text")).documents()
    Counting.count = 0  # opening reads the first row, too
    next(documents)
    assert Counting.count < 0.3 * path.stat().st_size
    assert sum(1 for _ in documents) == 4999
    assert Counting.count < 0.7 * path.stat().st_size


@pytest.mark.parametrize("field", ["body", "page.body", "text.body", "id", "page", "tags"])
def test_a_column_that_is_no_text_is_refused_when_the_corpus_is_opened(tmp_path, field):
    write(tmp_path / "a.parquet", ["x"], page=pa.array([{"title": "x"}]), tags=pa.array([["x"]]))
    with pytest.raises(UsageError) as refusal:
        open_corpus(DataConfig(source=f"parquet:{tmp_path / 'a.parquet'}#{field}"))
    words = f"a.parquet has no text column '{field}': there is 'text', 'page.title'; name another after #"
    assert words in str(refusal.value)


def test_a_later_file_without_the_column_is_named(tmp_path):
    write(tmp_path / "a.parquet", TEXTS)
    pyarrow.parquet.write_table(pa.table({"body": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(UsageError, match=r"b\.parquet has no text column 'text': there is 'body'"):
        read(tmp_path / "*.parquet")


def test_undecodable_text_of_a_row_is_replaced_or_refused(tmp_path):
    write(tmp_path / "a.parquet", [b"good", b"first\nbad \xff"], pa.binary())
    documents, corpus = read(tmp_path / "a.parquet")
    assert documents[1] == ["first", "bad \ufffd"] and corpus.repairs == {"lines with undecodable bytes": 1}
    with pytest.raises(UsageError, match=r"a\.parquet, row 2, 'text', line 2: byte 5 is not UTF-8"):
        read(tmp_path / "a.parquet", undecodable="refuse")


def test_a_damaged_file_is_named(tmp_path):
    path = write(tmp_path / "a.parquet", [f"document {number} {number * 7919}" for number in range(5000)])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"a\.parquet is damaged after row 0, or is no Parquet file"):
        read(path)
    path.write_bytes(whole[:30000] + b"\0" * 30000 + whole[60000:])
    with pytest.raises(UsageError, match=r"a\.parquet is damaged after row"):
        read(path)


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet", TEXTS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install .*\[parquet\]."):
        read(tmp_path / "a.parquet")


CLASS = {"_type": "ClassLabel", "names": ["bad", "good"]}
FEATURES = {
    "label": CLASS,
    "tags": {"_type": "List", "feature": CLASS},
    "answers": {"_type": "Sequence", "feature": {}},
}
"""As the library `datasets` writes them beside a table."""


def rows_of(path):
    return [record.values for record in task_records(str(path), Counter())]


def test_the_rows_of_a_task_have_the_values_of_json_and_the_names_of_classes(tmp_path):
    table = pa.table(
        {
            "text": pa.array(["x", None], pa.large_string()),
            "kind": pa.array(["a", "a"]).dictionary_encode(),
            "label": [1, -1],
            "tags": [[0, 1], []],
            "score": [float("nan"), 0.5],
            "answers": [{"text": ["x"], "answer_start": [0]}, None],
            "day": pa.array([0, 1], pa.date32()),
            "image": [{"bytes": b"\xff"}, None],
        }
    )
    metadata = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    first = {"text": "x", "kind": "a", "label": "good", "tags": ["bad", "good"], "score": None}
    second = {"text": None, "kind": "a", "label": None, "tags": [], "score": 0.5, "answers": None}
    counted = Counter()
    rows = [record.values for record in task_records(str(tmp_path / "a.parquet"), counted)]
    assert rows == [first | {"answers": {"text": ["x"], "answer_start": [0]}}, second]
    assert counted == {"columns of dates, images or other types left out": 2}
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert [(row["label"], row["tags"]) for row in rows_of(tmp_path / "a.parquet")] == [(1, [0, 1]), (-1, [])]


def test_the_rows_of_a_data_set_are_those_that_a_program_gives(tmp_path):
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features({"words": datasets.List(datasets.Value("string")), "tags": datasets.List(label)})
    rows = datasets.Dataset.from_dict({"words": [["a", "b"], []], "tags": [[1, 0], []]}, features)
    rows.to_parquet(tmp_path / "a.parquet")
    expected = list(python_rows(rows, "finetune"))
    assert rows_of(tmp_path / "a.parquet") == expected and expected[0]["tags"] == ["good", "bad"]


@pytest.mark.parametrize(
    "columns, features, words",
    [
        ({"label": [2]}, FEATURES, "the class 2 of a Dataset has no name: its feature has 2; mend it"),
        ({"day": pa.array([0], pa.date32())}, {}, "has no column of texts, numbers or lists"),
    ],
)
def test_rows_that_a_task_cannot_read_are_refused(tmp_path, columns, features, words):
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pyarrow.parquet.write_table(pa.table(columns).replace_schema_metadata(metadata), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match=words):
        rows_of(tmp_path / "a.parquet")


NAMES_OF_NUMBERS = b'{"info": {"features": {"label": {"_type": "ClassLabel", "names": [0, 1]}}}}'


@pytest.mark.parametrize("metadata", [b"{", b"[]", b'{"info": {"features": 1}}', NAMES_OF_NUMBERS])
def test_metadata_of_another_form_says_nothing(tmp_path, metadata):
    table = pa.table({"label": [1]}).replace_schema_metadata({"huggingface": metadata})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert rows_of(tmp_path / "a.parquet") == [{"label": 1}]


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["text", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(UsageError, match=r"a\.parquet names the column 'text' twice"):
        rows_of(tmp_path / "a.parquet")


def test_rows_in_a_pipe_are_refused(tmp_path):
    reader, writer = os.pipe()
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        file = InputFile(tmp_path / "a.parquet", pipe, Pass())
        with pytest.raises(UsageError, match="is a pipe, and Parquet can't be read from one"):
            next(record_files.parquet_records(file, RowFormat()))
