"""Files in a bucket give what the same files on disk give."""

import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard
from conftest import stories

from bert_jax.config.data import BLANK_LINE, LINE_END, DataConfig
from bert_jax.records import file_source
from bert_jax.records.corpus import open_corpus
from bert_jax.records.decoded_lines import Pass
from bert_jax.records.file_source import FileRange, beginnings, spread_ranges
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
        found.append((list(corpus.documents()), corpus.total, corpus.position))
        assert corpus.content_hash == open_corpus(DataConfig(source=f"{kind}:{folder}/{pattern}")).content_hash
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


@pytest.mark.parametrize("source, unit", [("a.txt", "MB"), ("*", "MB compressed"), ("a.txt a.gz", "MB compressed")])
def test_the_unit_says_where_bytes_are_not_those_of_the_text(tmp_path, source, unit):
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "a.gz").write_bytes(gzip.compress(TEXT.encode()))
    corpus = open_corpus(DataConfig(source=tuple(f"text:{tmp_path}/{name}" for name in source.split())))
    assert corpus.unit == unit and corpus.total == pytest.approx(sum(part.source.total for part in corpus.parts))


DOCUMENTS = stories(40).strip().split("\n\n")


def read(ranges, separator=BLANK_LINE):
    return "".join(each.read(separator, Pass())[0].raw.read().decode() for each in ranges)


@pytest.mark.parametrize("size", [37, 2000, 4096, 1 << 20])
@pytest.mark.parametrize("between", ["\n\n", "\n \t\n", "\r\n\r\n"])
def test_adjoining_ranges_hold_each_document_once(tmp_path, size, between):
    path = tmp_path / "a.txt"
    path.write_text(between.join(DOCUMENTS), newline="")
    # Documents are shorter than 2,000 bytes; a range of 37 may lie within one, and then holds some of its lines.
    found = read(FileRange(path, begin, size) for begin in range(0, path.stat().st_size, size))
    assert size == 37 or found == path.read_bytes().decode()
    assert all(document in found for document in DOCUMENTS)


def test_records_are_whole_however_long(tmp_path, monkeypatch):
    lines = [json.dumps({"text": "word " * count}) for count in (10, 3000, 5, 800, 1)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    ranges = [FileRange(path, begin, 100) for begin in range(0, path.stat().st_size, 100)]
    assert read(ranges, LINE_END).split("\n") == lines
    monkeypatch.setattr("bert_jax.records.file_source._SEARCHED_BYTES", 5000)  # of text files alone
    assert read([FileRange(path, 0, 100)], LINE_END) == "\n".join([*lines[:2], ""])
    assert read([FileRange(path, 5000, 100)], LINE_END) == ""


def test_within_a_long_document_a_range_is_its_lines_or_words(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"line {number}" for number in range(1000)))
    assert all(line.startswith("line ") for line in read([FileRange(path, 502, 200)]).splitlines())
    path.write_text("word " * 1000)
    assert read([FileRange(path, 502, 200)]).split() == ["word"] * 39
    path.write_text("中文" * 1000, encoding="utf-8")
    for begin in range(502, 506):
        assert set(read([FileRange(path, begin, 200)])) == {"中", "文"}
    assert read([FileRange(path, 5998, 200)]) == ""


def test_any_first_ranges_are_spread_over_all_files(tmp_path):
    sizes = {tmp_path / name: size for name, size in (("a", 1000), ("b", 10), ("c", 3000))}
    ranges = spread_ranges(sizes, 200, 8)
    assert len(set(ranges)) == 200
    for count in (20, 50, 200):
        in_first = sum(each.path.name == "a" for each in ranges[:count])
        assert abs(in_first / count - 0.25) < 0.06
        places = sorted(each.begin for each in ranges[:count] if each.path.name == "c")
        assert max(b - a for a, b in zip(places, places[1:], strict=False)) < 4 * 4010 / count
    chosen = beginnings(list(sizes), 2, 8)
    assert {each.path.name for each in chosen} <= set("abc") and len(set(chosen)) == 2


def test_a_large_source_is_sampled_and_a_small_one_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(file_source, "_RANGE_BYTES", 2000)
    path, documents = tmp_path / "a.txt", stories(300).strip().split("\n\n")
    path.write_text("\n\n".join(documents))
    whole = open_corpus(DataConfig(source=f"text:{path}")).parts[0]
    assert list(whole.sampled(1 << 20).documents()) == list(whole.documents())
    sample = whole.sampled(path.stat().st_size // 3)
    found = ["\n".join(document) for document in sample.documents()]
    assert sample.source.has_ranges and set(found) < set(documents)
    assert sample.position / whole.source.total == pytest.approx(1 / 3, abs=0.1)
    assert len(found) / len(documents) == pytest.approx(1 / 3, abs=0.12)


def test_many_compressed_files_are_sampled_by_their_beginnings(tmp_path, monkeypatch):
    monkeypatch.setattr(file_source, "_BEGINNING_BYTES", 1000)
    for number in range(20):
        (tmp_path / f"{number:02d}.txt.gz").write_bytes(gzip.compress(stories(20, first=20 * number).encode()))
    whole = open_corpus(DataConfig(source=f"text:{tmp_path}/*.gz")).parts[0]
    sample = whole.sampled(16_000)
    found = ["\n".join(document) for document in sample.documents()]
    assert sample.source.has_ranges and len(found) == len(set(found))
    firsts = [number for number in range(20) if stories(1, first=20 * number).strip() in found]
    assert len(firsts) == 16 and firsts[0] < 3 and firsts[-1] > 16


def test_a_damaged_file_of_a_sample_is_named(tmp_path):
    for number in range(20):
        packed = gzip.compress(stories(20, first=20 * number).encode())
        (tmp_path / f"{number:02d}.txt.gz").write_bytes(packed[:-400] if number == 7 else packed)
    whole = open_corpus(DataConfig(source=f"text:{tmp_path}/*.gz")).parts[0]
    with pytest.raises(UsageError, match="07.txt.gz is damaged or cut short"):
        list(whole.sampled(16_000).documents())


def test_many_undecodable_lines_are_counted_in_a_sample_without_an_error(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("Bären äßen Öl.\n".encode("latin-1") * 50)
    sample = open_corpus(DataConfig(source=f"text:{path}")).parts[0].sampled(1 << 20)
    assert len(list(sample.documents())) == 1 and sample.repairs["lines with undecodable bytes"] == 50
