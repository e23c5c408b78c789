import gzip
import json

import pytest
import zstandard

from bert_jax.config.data import DataConfig
from bert_jax.records.corpus import open_corpus
from bert_jax.system.errors import UsageError

RECORDS = [
    {"text": "First line.\r\n\n  Second line. ", "id": 1},
    {"text": "雪 and more", "id": 2},
]
DOCUMENTS = [["First line.", "Second line."], ["雪 and more"]]


def lines(*records) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def read(path, field="text", **settings):
    corpus = open_corpus(DataConfig(source=f"jsonl:{path}#{field}", **settings))
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


def test_a_field_in_an_object_is_named_with_dots(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines({"page": {"body": {"text": "Deep."}, "text": "Other."}}))
    assert read(tmp_path / "a.jsonl", "page.body.text")[0] == [["Deep."]]


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


@pytest.mark.parametrize(
    "source, words",
    [
        ("jsonl:a.jsonl", "lacks #FIELD, the field that holds the text; write it like jsonl:a.jsonl#text"),
        ("jsonl:a.jsonl#", "write it like jsonl:a.jsonl#text"),
        ("parquet:a.parquet", "write it like parquet:a.parquet#text"),
        ("jsonl:#text", r"names no corpus; expected one like jsonl:corpus/\*.jsonl.zst#text$"),
    ],
)
def test_a_source_without_file_or_field_is_refused(source, words):
    with pytest.raises(UsageError, match=words):
        open_corpus(DataConfig(source=source))
