import gzip
import json

import pytest
from conftest import stories

from bert_jax.config.data import DataConfig
from bert_jax.records import file_source
from bert_jax.records.corpus import open_corpus
from bert_jax.records.decoded_lines import Pass
from bert_jax.records.file_source import FileRange, beginnings, spread_ranges
from bert_jax.records.formats import BLANK_LINE, LINE_END
from bert_jax.system.errors import UsageError

TEXT = stories(40)
DOCUMENTS = TEXT.strip().split("\n\n")


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
    assert (
        read((FileRange(path, begin, 100) for begin in range(0, path.stat().st_size, 100)), LINE_END).split("\n")
        == lines
    )
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
    assert sample.source.in_ranges and set(found) < set(documents)
    assert sample.position / whole.source.total == pytest.approx(1 / 3, abs=0.1)
    assert len(found) / len(documents) == pytest.approx(1 / 3, abs=0.12)


def test_many_compressed_files_are_sampled_by_their_beginnings(tmp_path, monkeypatch):
    monkeypatch.setattr(file_source, "_BEGINNING_BYTES", 1000)
    for number in range(20):
        (tmp_path / f"{number:02d}.txt.gz").write_bytes(gzip.compress(stories(20, first=20 * number).encode()))
    whole = open_corpus(DataConfig(source=f"text:{tmp_path}/*.gz")).parts[0]
    sample = whole.sampled(16_000)
    found = ["\n".join(document) for document in sample.documents()]
    assert sample.source.in_ranges and len(found) == len(set(found))
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
