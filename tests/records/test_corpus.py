import gzip
import json
from collections import Counter
from pathlib import Path

import pytest
from conftest import stories

from bert_jax.config.data import DataConfig
from bert_jax.records import python_docs
from bert_jax.records.corpus import open_corpus, text_content
from bert_jax.records.sources import resolved_source
from bert_jax.system.errors import UsageError


@pytest.fixture
def sources(tmp_path):
    """Two sources of 5 and 7 documents; the second has a record without text."""
    (tmp_path / "a.txt").write_bytes(stories(5).encode() + b"\xff\n")
    records = [{"text": text} for text in [*stories(7, first=50).split("\n\n"), None]]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, records)))
    return (f"text:{tmp_path / 'a.txt'}", f"jsonl:{tmp_path / 'b.jsonl'}#text")


def each_alone(sources):
    return [open_corpus(DataConfig(source=source)) for source in sources]


def test_sources_come_one_after_the_other(sources):
    corpus, alone = open_corpus(DataConfig(source=sources)), each_alone(sources)
    documents = [list(part.documents()) for part in alone]
    assert list(corpus.documents()) == documents[0] + documents[1]
    assert [source for source, _ in corpus.sourced_documents()] == [0] * 5 + [1] * 7
    assert [list(own) for _, own in corpus.portions()] == documents


def test_size_position_and_repairs_add_up_and_begin_anew_with_each_pass(sources):
    corpus, alone = open_corpus(DataConfig(source=sources)), each_alone(sources)
    assert corpus.unit == "MB" and corpus.total == pytest.approx(sum(part.total for part in alone))
    for _ in range(2):
        positions, repairs = [], []
        for _ in corpus.documents():
            positions.append(corpus.position)
            repairs.append(corpus.repairs)
        assert positions == sorted(positions) and positions[0] < 0.5 * corpus.total
        assert repairs[0] == {} and repairs[5] == {"lines with undecodable bytes": 1}
        assert corpus.position == corpus.total
        assert corpus.repairs == Counter({"lines with undecodable bytes": 1, "records without text": 1})


def test_sources_in_different_units_are_measured_in_percent(sources, monkeypatch):
    monkeypatch.setattr(python_docs, "_module_paths", lambda: [Path(__file__)] * 4)
    monkeypatch.setattr(python_docs, "available_cores", lambda: 1)
    corpus = open_corpus(DataConfig(source=(sources[0], "python-docs")))
    assert (corpus.unit, corpus.total) == ("%", 100)
    _, documents = next(corpus.portions())
    list(documents)
    assert corpus.position == 50
    corpus.parts[1].was_read(Counter(), 10)
    assert corpus.position == 100


def test_the_stamp_is_that_of_the_only_source_or_of_all_in_their_order(sources):
    stamps = [text_content(DataConfig(source=source)) for source in (*sources, sources, sources[::-1])]
    assert stamps[0] == each_alone(sources)[0].parts[0].source.content_hash
    assert len(set(stamps)) == 4
    assert text_content(DataConfig(source=(*sources, "text:absent"))) is None


@pytest.mark.parametrize(
    "name, field, source",
    [
        ("en.txt", "", "text:{}"),
        ("en.txt.gz", "", "text:{}"),
        ("en.zst", "", "text:{}"),
        ("en", "", "text:{}"),
        ("a#b.txt", "", "text:{}"),
        ("en.jsonl", "", "jsonl:{}#text"),
        ("en.jsonl.zst", "#page.body", "jsonl:{}#page.body"),
        ("en.parquet", "#body", "parquet:{}#body"),
    ],
)
def test_a_path_or_pattern_is_taken_by_its_name(tmp_path, name, field, source):
    (tmp_path / name).write_bytes(b"")
    for path in (tmp_path / name, tmp_path / f"*{name[1:]}"):
        assert resolved_source(f"{path}{field}") == source.format(path)


@pytest.mark.parametrize(
    "name, words",
    [
        ("absent.txt", "no file matches '.*/absent.txt'; expected a path or pattern, or"),
        ("a\0.txt", r"no file matches '.*/a\\x00.txt'"),
        ("", "is a folder; name its files by a pattern like .*/[*].txt"),
        ("rows.csv", "rows.csv' is a table and not read as text; write its column of text as plain text"),
        ("array.json", "array.json' has no JSON object on each line; write it so: jq -c"),
        ("wiki_00", "wiki_00' has JSON on its lines; name the field of the text: jsonl:.*/wiki_00#text"),
    ],
)
def test_a_path_that_is_no_text_is_refused(tmp_path, name, words):
    (tmp_path / "rows.csv").write_text("a,b")
    (tmp_path / "array.json").write_text(json.dumps([{"text": "One."}], indent=1))
    (tmp_path / "wiki_00").write_text(json.dumps({"id": 1, "text": "One."}))
    with pytest.raises(UsageError, match=words):
        resolved_source(f"{tmp_path}/{name}")


@pytest.mark.parametrize(
    "source, words",
    [
        ("text:absent/*.txt", "no file matches 'absent/[*].txt'"),
        ("text:", "--data.source='text:' names no corpus; expected one like text:corpus/[*].txt.gz"),
        ("jsonl:a.jsonl", "lacks #FIELD, the field that holds the text; write it like jsonl:a.jsonl#text"),
        ("jsonl:a.jsonl#", "write it like jsonl:a.jsonl#text"),
        ("parquet:a.parquet", "write it like parquet:a.parquet#text"),
        ("jsonl:#text", "names no corpus; expected one like jsonl:corpus/[*].jsonl.zst#text$"),
        ("tfds:pages/plain", "names no corpus; expected one like tfds:"),
        *(
            (f"hf:{rest}", "names no corpus; expected one like hf:OWNER/SET:train#text")
            for rest in ("a/b", "a/b:train", "a/b#text", ":train#text", "a/b:train[:1%]#text")
        ),
    ],
)
def test_a_source_that_lacks_a_part_is_refused(source, words):
    with pytest.raises(UsageError, match=words):
        open_corpus(DataConfig(source=source))


def test_json_files_with_a_record_on_each_line_are_records(tmp_path):
    (tmp_path / "c4.json.gz").write_bytes(gzip.compress(b'{"text": "One."}\n{"text": "Two."}\n'))
    assert resolved_source(f"{tmp_path}/*.json.gz") == f"jsonl:{tmp_path}/*.json.gz#text"
    documents = open_corpus(DataConfig(source=f"{tmp_path}/c4.json.gz")).documents()
    assert list(documents) == [["One."], ["Two."]]


@pytest.mark.parametrize(
    "line", [b'{"text": "a b\xefd line"}', b'{"text": "one\\nt\xefwo\\nthree"}', b'{"text": "a \\ud83d\\nb \\ud83d"}']
)
def test_a_record_counts_as_one_line_of_which_a_tenth_may_be_undecodable(tmp_path, line):
    path = tmp_path / "records.jsonl"
    data = DataConfig(source=(f"jsonl:{path}#text",))
    good = b'{"text": "one\\ntwo\\nthree"}'
    for bad, refused in ((5, False), (10, False), (11, True), (100, True)):
        path.write_bytes(b"\n".join([line] * bad + [good] * (100 - bad)) + b"\n")
        corpus = open_corpus(data)
        if refused:
            with pytest.raises(UsageError, match=f"{bad} of 100 lines with text read so far are not UTF-8"):
                list(corpus.documents())
        else:
            assert len(list(corpus.documents())) == 100
            assert corpus.repairs == {"lines with undecodable bytes": bad}
