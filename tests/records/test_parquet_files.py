import io
import random
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest

from bert_jax.config.data import DataConfig
from bert_jax.records import file_source, record_files
from bert_jax.records.corpus import open_corpus
from bert_jax.system.errors import UsageError

TEXTS = ["First line.\n\nSecond line.", None, "雪", " "]
DOCUMENTS = [["First line.", "Second line."], ["雪"]]


def write(path, texts, kind=None, **more):
    pyarrow.parquet.write_table(pa.table({"id": range(len(texts)), "text": pa.array(texts, kind), **more}), path)
    return path


def read(path, field="text", **settings):
    corpus = open_corpus(DataConfig(source=f"parquet:{path}#{field}", **settings))
    return list(corpus.documents()), corpus


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
    assert documents == DOCUMENTS * 2 and corpus.repairs == {"records without text": 4}
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


def test_undecodable_text_is_replaced_or_refused(tmp_path):
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
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match=r"pip install .*\[parquet\]."):
        read(tmp_path / "a.parquet")
