import json
from collections import Counter

import pytest
from conftest import stories

from bert_jax.config.data import DataConfig
from bert_jax.data.corpus import Corpus, Mixture, corpus_stamp, open_corpus, source_of
from bert_jax.data.python_docs import PythonDocs


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
    assert isinstance(corpus, Corpus)
    documents = [list(part.documents()) for part in alone]
    assert list(corpus.documents()) == documents[0] + documents[1]
    assert [source for source, _ in corpus.sourced_documents()] == [0] * 5 + [1] * 7
    assert [list(own) for own in corpus.passes()] == documents


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
    text, docs = each_alone(sources[:1])[0], PythonDocs()
    docs.paths = docs.paths[:4]
    docs.total = 4
    corpus = Mixture([text, docs])
    assert (corpus.unit, corpus.total) == ("%", 100)
    passes = corpus.passes()
    list(next(passes))
    assert corpus.position == 50
    next(passes), setattr(docs, "position", 1)
    assert corpus.position == 62.5


def test_the_stamp_is_that_of_the_only_source_or_of_all_in_their_order(sources):
    stamps = [corpus_stamp(DataConfig(source=source)) for source in (*sources, sources, sources[::-1])]
    assert stamps[0] == each_alone(sources)[0].parts[0].stamp
    assert len(set(stamps)) == 4
    assert corpus_stamp(DataConfig(source=(*sources, "text:absent"))) is None


@pytest.mark.parametrize(
    "text, source",
    [
        ("corpus/a.txt", "text:corpus/a.txt"),
        ("text:a", "text:a"),
        ("jsonl:a#b", "jsonl:a#b"),
        ("tfds:a:b", "tfds:a:b"),
        ("python-docs", "python-docs"),
        ("C:/a.txt", "text:C:/a.txt"),
    ],
)
def test_a_plain_path_means_text(text, source):
    assert source_of(text) == source
