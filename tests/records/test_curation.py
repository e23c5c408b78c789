"""What curation drops, and that nothing but the text decides it."""

import contextlib
import json
import pickle
import random
from importlib.machinery import ModuleSpec

import numpy as np
import pytest
from prepared_sets import files

from bert_jax.config.data import DataConfig
from bert_jax.config.operation import PreparationConfig
from bert_jax.records import engine, examination, signatures
from bert_jax.records.corpus import open_corpus
from bert_jax.records.curation import curated, curation_damage
from bert_jax.records.drops import check_lines, first_place
from bert_jax.records.examination import check_packages
from bert_jax.records.filters import check_language_filter
from bert_jax.system import errors, spark
from bert_jax.system.errors import RunError, UsageError

WORDS = [f"w{number}" for number in range(5000)]


def document(seed, words=120):
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def with_changes(text, share, seed=0):
    words, rng = text.split(), random.Random(seed)
    for place in rng.sample(range(len(words)), round(share * len(words))):
        words[place] = f"other{rng.random()}"
    return " ".join(words)


class Curated:
    """A corpus of these documents, curated with these settings."""

    def __init__(self, folder, documents, engine="local", processes=1, memory=500, **settings):
        self.path = folder / "text.jsonl"
        self.path.write_text("\n".join(json.dumps({"text": text}) for text in documents))
        self.data = DataConfig(**{"source": f"jsonl:{self.path}#text", **settings})
        self.directory = folder / "curation"
        corpus = open_corpus(self.data)
        preparation = PreparationConfig(engine=engine, processes=processes, memory_megabytes=memory)
        corpus.drops = curated(corpus, self.data, preparation, self.directory)
        self.kept = ["\n".join(lines) for lines in corpus.documents()]
        self.repairs = corpus.repairs

    @property
    def listed(self):
        return [json.loads(line) for line in (self.directory / "dropped.jsonl").read_text().splitlines()]


def test_exact_copies_but_the_first_are_dropped_and_listed(tmp_path, capsys):
    texts = ["One two three.", "Four five.", "One two three.", "Six.", "one two three."]
    found = Curated(tmp_path, texts, deduplicate="exact")
    assert found.kept == [texts[0], texts[1], texts[3], texts[4]]
    original = {"source": found.data.source[0], "document": 1, "begins": texts[0]}
    dropped = {"document": 3, "copy_of": original, "similarity": 1.0, "dropped_by": "data.deduplicate"}
    assert found.listed == [original | dropped]
    assert found.repairs["documents dropped"] == 1
    assert "--data.deduplicate drops 1 of 5 documents" in capsys.readouterr().err


def test_near_copies_are_found_among_many_documents_and_no_others(tmp_path):
    texts = [document(seed) for seed in range(300)]
    copies = [with_changes(texts[seed], (0, 0.01, 0.05)[seed % 3], seed) for seed in range(60)]
    found = Curated(tmp_path, [*texts, *copies], deduplicate="near")
    assert found.kept == texts
    assert [line["copy_of"]["document"] for line in found.listed] == list(range(1, 61))
    assert all(line["similarity"] > 0.5 for line in found.listed)


def test_only_what_is_like_a_document_that_stays_is_dropped(tmp_path):
    """Of texts each moved on from the one before, every second one stays: the first and third have little in common."""
    words = document(0, 2000).split()
    texts = [" ".join(words[150 * number : 150 * number + 700]) for number in range(8)]
    found = Curated(tmp_path, [*texts, document(1)], deduplicate="near")
    assert found.kept == [*texts[::2], document(1)]
    assert [line["copy_of"]["document"] for line in found.listed] == [1, 3, 5, 7]
    assert all(line["similarity"] > 0.5 for line in found.listed)


def test_what_is_like_a_copy_is_compared_with_its_original(tmp_path, monkeypatch):
    first = document(0, 400)
    texts = [first, with_changes(first, 0.02, 1), with_changes(first, 0.02, 2), document(1)]
    without = signatures._CANDIDATES + "and not (earlier = 0 and document = 2)"
    monkeypatch.setattr(signatures, "_CANDIDATES", without)
    assert Curated(tmp_path, texts, deduplicate="near").kept == [texts[0], texts[3]]


def test_documents_that_are_all_alike_leave_one(tmp_path):
    found = Curated(tmp_path, ["The same words in each of them."] * 500, deduplicate="near")
    assert found.kept == ["The same words in each of them."] and len(found.listed) == 499


def test_huge_and_tiny_documents_and_those_without_words(tmp_path):
    huge = "\n".join(document(seed, 2000) for seed in range(40))
    texts = [huge, "Yes.", "No.", "?!", "...", "Yes.", with_changes(huge, 0.02).replace(" w0 ", "\n")]
    found = Curated(tmp_path, texts, deduplicate="near")
    assert found.kept[:5] == texts[:5] and len(found.kept) == 5


def test_paragraphs_of_earlier_documents_are_dropped(tmp_path):
    shared, heading = document(1, 40), "History"
    texts = [f"{heading}\n{shared}\n{document(2)}\n{shared}", f"{shared}\n{heading}\n{document(3)}\n{shared}", shared]
    found = Curated(tmp_path, texts, deduplicate="exact")
    assert found.kept == [texts[0], f"{heading}\n{document(3)}"]
    assert found.repairs["lines dropped"] == 2 and [line["document"] for line in found.listed] == [3]
    assert Curated(tmp_path, texts, deduplicate="exact", layout="sentences").kept == texts


def test_boilerplate_is_told_and_dropped_if_that_is_set(tmp_path, capsys):
    texts = [f"Share this\n{document(seed)}\nHeading {seed % 75}" for seed in range(300)]
    assert Curated(tmp_path, texts, deduplicate="exact").kept == texts
    assert "drop-boilerplate would drop 300 lines (1 distinct)" in capsys.readouterr().err
    found = Curated(tmp_path, texts, drop_boilerplate=True)
    assert found.kept == [text.removeprefix("Share this\n") for text in texts]
    assert "data.drop-boilerplate drops 300 lines" in (said := capsys.readouterr().err) and "'Share this'" in said


def test_a_document_of_dropped_lines_alone_is_listed(tmp_path, capsys):
    notices = [f"{document(seed)}\nOut of office" for seed in range(20)] + ["Out of office"] * 3
    found = Curated(tmp_path, notices, drop_boilerplate=True)
    assert [line["document"] for line in found.listed] == [21, 22, 23] and len(found.kept) == 20
    assert {line["dropped_by"] for line in found.listed} == {"data.drop_boilerplate"}
    assert "all of whose lines it drops; for example document 21: 'Out of office'" in capsys.readouterr().err
    with pytest.raises(UsageError, match="--data.drop-boilerplate would drop all 40 documents"):
        Curated(tmp_path, ["Out of office"] * 40, drop_boilerplate=True)


def test_equal_lines_of_a_document_are_dropped_whatever_their_spans(tmp_path):
    shared = document(1, 40)
    texts = [{"text": shared}, {"text": f"{shared}\n{document(2)}\n{shared}", "spans": [[0, 5, "entity"]]}]
    path = tmp_path / "text.jsonl"
    path.write_text("\n".join(json.dumps({"spans": None, **text}) for text in texts))
    data = DataConfig(source=f"jsonl:{path}#text", spans="spans", deduplicate="exact")
    corpus = open_corpus(data)
    corpus.drops = curated(corpus, data, PreparationConfig(processes=1), tmp_path / "curation")
    assert list(corpus.documents()) == [[shared], [document(2)]]


def test_lines_of_dropped_documents_are_no_boilerplate(tmp_path):
    text = f"{document(0)}\nonly here"
    texts = [text] * 50 + [document(seed) for seed in range(1, 60)]
    found = Curated(tmp_path, texts, deduplicate="exact", drop_boilerplate=True)
    assert found.kept[0] == text and len(found.kept) == 60


def test_filters_drop_by_length_symbols_and_language(tmp_path, capsys):
    english = "This is a long enough sentence of plain English words, which nobody would take for another language."
    german = "Dies ist ein hinreichend langer deutscher Satz, den niemand für englischen Text halten würde."
    texts = [english, "Two words.", f"{english} ### … ... # # # # # #", german, "中文字符很多"]
    found = Curated(tmp_path, texts, min_doc_words=5, max_symbol_word_ratio=0.1, language_filter=True)
    assert found.kept == [english]
    by = [line["dropped_by"] for line in found.listed]
    assert by == ["data.min_doc_words", "data.max_symbol_word_ratio", *["data.language_filter"] * 2]
    assert "data.min-doc-words drops 1 of 5 documents" in capsys.readouterr().err
    assert Curated(tmp_path, texts, min_doc_words=1).kept == texts
    assert capsys.readouterr().err == "no document is dropped\n"


def test_no_filter_rests_on_a_language_that_is_not_known():
    check_language_filter(DataConfig(language=("nb", "zh-Hant", "hr"), source=("a", "b", "c"), language_filter=True))
    check_language_filter(DataConfig(language="yi"))
    for code, name in (("yi", "Yiddish"), ("cv", "Chuvash"), ("ti", "Tigrinya"), ("ckb", "Central Kurdish")):
        with pytest.raises(UsageError, match=f"can't identify {code} \\({name}\\); .* It can identify ace af .* zu$"):
            check_language_filter(DataConfig(language=("en", code), source=("a", "b"), language_filter=True))


class Elsewhere(spark.Spark):
    """In place of Spark: computes each item as another process would, in another order."""

    def map(self, function, items, finished):
        return [function(pickle.loads(pickle.dumps(item))) for item in reversed(items)][::-1]


def test_engine_processes_batches_and_memory_make_no_difference(tmp_path, monkeypatch):
    texts = [document(seed % 40) if seed % 3 else with_changes(document(seed % 40), 0.04, seed) for seed in range(120)]
    texts = [f"shared\n{text}" for text in texts]
    for number in range(6):
        part = tmp_path / f"part-{number}.txt"
        part.write_text("\n\n".join(texts[20 * number : 20 * number + 20]))
    settings = {"source": f"text:{tmp_path}/part-*.txt", "deduplicate": "near", "chunk_megabytes": 0.01}

    def run(name, **others):
        folder = tmp_path / name
        folder.mkdir()
        found = Curated(folder, [], **settings, **others)
        return files(found.directory), found.kept

    expected = run("local")
    assert 35 < len(expected[1]) < 50
    monkeypatch.setattr(engine, "connected", lambda *_: contextlib.nullcontext(Elsewhere(None)))
    assert run("spark", engine="spark") == expected
    assert run("processes", processes=2) == expected
    monkeypatch.setattr(engine, "_MOST_READERS_FEED", 1)
    assert engine.works_by_portions(open_corpus(DataConfig(**settings)), PreparationConfig(processes=2))
    assert run("readers", processes=2) == expected
    monkeypatch.setattr(examination, "_BATCH_BYTES", 3000)
    assert run("small", processes=1, memory=100) == expected


def test_a_finished_curation_is_used_again_until_text_or_settings_change_or_it_is_damaged(tmp_path, monkeypatch):
    texts = ["One two.", "One two.", "Three."]
    found = Curated(tmp_path, texts, deduplicate="exact")
    record = found.directory / "curation.json"
    written = record.stat().st_mtime_ns

    def again(**settings):
        nonlocal written
        corpus = open_corpus(found.data.replace(**settings))
        curated(corpus, found.data.replace(**settings), PreparationConfig(processes=1), found.directory)
        before, written = written, record.stat().st_mtime_ns
        return before != written

    assert not again() and not again(held_out=0.3, weights=(2.0,))
    assert again(min_doc_words=1) and not again(min_doc_words=1) and again()
    assert curation_damage(found.directory) is None
    np.save(found.directory / "documents.npy", np.zeros(0, np.uint64))
    assert curation_damage(found.directory) == "documents.npy is not as it was written"
    assert again() and not again()
    found.path.write_text(json.dumps({"text": "Another."}))
    assert again()


def test_what_would_leave_nothing_of_a_source_is_refused_and_nothing_is_left(tmp_path):
    with pytest.raises(UsageError, match=r"text.jsonl#text, --data.min-doc-words would drop all 3 documents"):
        Curated(tmp_path, ["One."] * 3, min_doc_words=5)
    assert [path.name for path in tmp_path.iterdir()] == ["text.jsonl"]


def test_places_have_limits():
    assert first_place(0, 1) > first_place(0, 0) + (1 << 31) and first_place(1, 0) > first_place(0, (1 << 20) - 1)
    with pytest.raises(UsageError, match="raise --data.chunk-megabytes"):
        first_place(0, 1 << 20)
    with pytest.raises(UsageError, match="cut it into several"):
        check_lines((1 << 32) + 1)


@pytest.mark.parametrize("package", ["duckdb", "pyarrow", "rensa"])
def test_missing_packages_are_named_with_their_extra(package, monkeypatch):
    spec = lambda name: None if name == package else ModuleSpec(name, None, origin="x")
    monkeypatch.setattr(errors, "find_spec", spec)
    with pytest.raises(UsageError, match=rf"need {package}, which isn't installed; .*\[deduplicate\]"):
        check_packages(DataConfig(min_doc_words=5))
    check_packages(DataConfig())


def test_too_little_memory_is_said_with_its_setting(tmp_path, monkeypatch):
    monkeypatch.setattr(signatures, "_CANDIDATES", "select list(hash(range)) from range(100_000_000)")
    with pytest.raises(RunError, match="^--preparation.memory-megabytes=100 is too little .*; give more"):
        Curated(tmp_path, ["One.", "Two."], deduplicate="exact", memory=100)
    assert [path.name for path in tmp_path.iterdir()] == ["text.jsonl"]
