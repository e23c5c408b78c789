"""What sources are taken for."""

import gzip
import json
from pathlib import Path

import pytest
from conftest import stories

from bert_jax.config.data import DataConfig
from bert_jax.records import corpus_reading, python_docs
from bert_jax.records.corpus import open_corpus
from bert_jax.records.corpus_reading import read_corpus
from bert_jax.system.errors import UsageError

GERMAN = "Die Mathematik ist eine Wissenschaft, welche aus der Untersuchung von Figuren und Zahlen entstand."


def reading(*sources, **settings):
    data = DataConfig(source=sources, **settings)
    return read_corpus(open_corpus(data), data)


def facts(*sources, **settings):
    return dict(reading(*sources, **settings).rows())


def test_a_text_is_described_and_a_clean_one_has_no_remark(tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(stories(20).encode()))
    found, size = reading(f"{tmp_path}/a"), (tmp_path / "a").stat().st_size / 1e6
    assert found.subject == f"corpus {tmp_path}/a" and not found.remarks
    assert dict(found.rows()) == {
        "format": "text in .gz files (content)",
        "files": "1 file",
        "size": f"{size:.3g} MB compressed",
        "documents": "20",
        "begins with": repr(stories(1).replace("\n", " ")[:60]),
        "a line has": facts(f"{tmp_path}/a")["a line has"],
        "languages": "100% en (content)",
    }
    assert facts(f"text:{tmp_path}/a")["format"] == "text in .gz files (prefix)"


def test_of_a_large_text_a_part_is_read_and_the_documents_are_estimated(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_reading, "_BYTES", 20_000)
    monkeypatch.setattr(corpus_reading, "_LEAST_BYTES", 10_000)
    (tmp_path / "a.txt").write_text(stories(400))
    number, by = facts(f"text:{tmp_path}/a.txt")["documents"].split(" (")
    assert by.startswith("estimated from ") and by.endswith("% of the text)")
    assert number.startswith("about ") and int(number.split()[1]) == pytest.approx(400, rel=0.2)


def test_many_sources_are_one_reading_with_one_remark_for_all_of_a_kind(tmp_path):
    for number in range(30):
        page = "".join(f"<p>{line}</p>\n" for line in stories(4, first=number).split("\n") if line)
        (tmp_path / f"{number}.txt").write_text(page if number < 3 else stories(3, first=number))
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": GERMAN * 10}) + "\n" + json.dumps({"text": None}))
    sources = [f"text:{tmp_path}/{number}.txt" for number in range(30)]
    found = reading(*sources, f"{tmp_path}/a.jsonl", language=("en",) * 30 + ("de",))
    rows = dict(found.rows())
    assert found.subject == "corpus of 31 sources" and len(rows) == 8
    assert rows["format"] == "30 x text, 1 x jsonl (prefix, suffix .jsonl)" and rows["files"] == "31 files"
    assert rows["mended or left out"] == "1 record without text (in the sample)"
    assert "% en, " in rows["languages"] and "% de" in rows["languages"]
    (remark,) = found.remarks
    assert remark.startswith(f"{sources[0]}: 100% of the lines, like '<p>")
    assert remark.endswith("(2 more sources are so)")


@pytest.mark.parametrize(
    "text, settings, words",
    [
        (GERMAN, {}, "is German, and it is said to be in English; is it the right file"),
        (GERMAN, {"language": "hi"}, "is German, and it is said to be in Hindi"),
        (f"{GERMAN} " * 3, {"language": "de", "layout": "sentences"}, "a line has 3.0 sentences on average"),
    ],
)
def test_what_a_text_is_said_to_be_and_is_not_is_remarked(tmp_path, text, settings, words):
    (tmp_path / "a.txt").write_text("\n\n".join(f"{text} Das ist {number}." for number in range(3)))
    if "layout" in settings:
        (tmp_path / "a.txt").write_text("\n\n".join([text] * 3))
    (remark,) = reading(f"text:{tmp_path}/a.txt", **settings).remarks
    assert words in remark


def test_of_a_language_that_the_identifier_does_not_know_nothing_is_remarked(tmp_path):
    (tmp_path / "a.txt").write_text(GERMAN * 20)
    assert not reading(f"text:{tmp_path}/a.txt", language="bar").remarks


def test_a_source_without_text_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text(" \n\n")
    with pytest.raises(UsageError, match="a.txt' holds no text; give another"):
        reading(f"text:{tmp_path}/a.txt")


def test_the_docstrings_are_not_read_for_it(monkeypatch):
    monkeypatch.setattr(python_docs, "_module_paths", lambda: [Path(__file__)])
    assert list(facts("python-docs")) == ["format", "size"]
