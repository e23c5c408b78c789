"""Files in a bucket give what the same files on disk give."""

import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard
from conftest import stories

from bert_jax.config.data import DataConfig
from bert_jax.records.corpus import open_corpus
from bert_jax.system import bucket as bucket_module
from bert_jax.system.errors import RunError, UsageError

TEXT = stories(60)


def compressed(text: str) -> dict[str, bytes]:
    """The same documents in every kind of file."""
    documents = text.strip().split("\n\n")
    table = io.BytesIO()
    pyarrow.parquet.write_table(pa.table({"text": documents}), table, row_group_size=7)
    return {
        "text:*.txt": text.encode(),
        "text:*.gz": gzip.compress(text.encode()),
        "text:**/*.zst": zstandard.compress(text.encode()),
        "jsonl:*.jsonl#text": "".join(json.dumps({"text": document}) + "\n" for document in documents).encode(),
        "parquet:*.parquet#text": table.getvalue(),
    }


@pytest.mark.parametrize("source", compressed(""))
def test_a_bucket_gives_the_same_text_as_a_folder(bucket_server, bucket, tmp_path, source, monkeypatch):
    monkeypatch.setattr(bucket_module, "_BLOCK_BYTES", 5000)  # many ranges
    kind, _, pattern = source.partition(":")
    name = pattern.partition("#")[0].replace("**/", "").replace("*", "a")
    found = []
    for number, text in enumerate((TEXT, stories(20, first=100))):
        data = compressed(text)[source]
        (tmp_path / f"{number}{name}").write_bytes(data)
        bucket_server.put(f"{bucket}/{number}{name}".removeprefix("gs://"), data)
    bucket_server.put(f"{bucket}/1{name}.other".removeprefix("gs://"), b"not asked for")
    for folder in (tmp_path, bucket):
        corpus = open_corpus(DataConfig(source=f"{kind}:{folder}/{pattern}"))
        found.append((list(corpus.documents()), corpus.total, corpus.position, corpus.stamp))
    assert found[0] == found[1] and len(found[0][0]) == 80


def test_nothing_there_and_no_such_bucket_are_one_line_each(bucket_server, bucket):
    with pytest.raises(UsageError, match="no file matches 'gs://"):
        open_corpus(DataConfig(source=f"text:{bucket}/*.gz"))
    bucket_server.fail("GET /storage/v1/b/elsewhere/", "404")
    with pytest.raises(UsageError, match=r"gs://elsewhere can't be read .*check its name.*gcloud auth"):
        open_corpus(DataConfig(source="text:gs://elsewhere/*.gz"))


def test_an_answer_that_fails_is_asked_for_again(bucket_server, bucket):
    bucket_server.put(f"{bucket}/a.txt".removeprefix("gs://"), TEXT.encode())
    for how in ("503", "cut"):
        bucket_server.fail("GET /download/.*a.txt", how)
        assert len(list(open_corpus(DataConfig(source=f"text:{bucket}/a.txt")).documents())) == 60


def test_text_that_comes_short_is_noticed(bucket_server, bucket):
    bucket_server.put(f"{bucket}/a.txt".removeprefix("gs://"), TEXT.encode())
    corpus = open_corpus(DataConfig(source=f"text:{bucket}/a.txt"))
    bucket_server.fail("GET /download/.*a.txt", "short")
    with pytest.raises(RunError, match=r"bytes came from byte 0 on where .* asked for; give the same command again"):
        list(corpus.documents())


@pytest.mark.parametrize(
    "source, unit",
    [
        ("text:{}/a.txt", "MB"),
        ("text:{}/*.gz", "MB compressed"),
        ("text:{}/*", "MB compressed"),
        ("text:{0}/a.txt text:{0}/*.gz", "MB compressed"),
        ("jsonl:{}/*.zst#text", "MB compressed"),
        ("parquet:{}/*.parquet#text", "MB compressed"),
    ],
)
def test_the_unit_says_where_bytes_are_not_those_of_the_text(tmp_path, source, unit):
    for kind, data in compressed(TEXT).items():
        name = "a" + kind.partition(":")[2].partition("#")[0].replace("**/", "").removeprefix("*")
        (tmp_path / name).write_bytes(data)
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress((tmp_path / "a.jsonl").read_bytes()))
    (tmp_path / "a.zst").unlink()
    corpus = open_corpus(DataConfig(source=tuple(source.format(tmp_path).split())))
    assert corpus.unit == unit and corpus.total == pytest.approx(sum(part.source.total for part in corpus.parts))
