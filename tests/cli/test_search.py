"""bert-jax search, as typed."""

import json
import subprocess

import pytest
import zstandard
from conftest import program
from warm_process import COMMAND

import bert_jax
from bert_jax.inference import search as search_module

LINES = ["The old cat sees the dog.", "", "A quiet house near the river.", "The old cat sees the dog.", "dog " * 99]
QUERIES = ["the dog", "a house"]


@pytest.fixture(scope="module")
def expected(vectors_run):
    return bert_jax.load(vectors_run.path).search(QUERIES, LINES, top=3)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with the lines in files of each form."""
    monkeypatch.chdir(tmp_path)
    content = "".join(f"{line}\n" for line in LINES).encode()
    (tmp_path / "lines.txt").write_bytes(content)
    (tmp_path / "lines.txt.zst").write_bytes(zstandard.compress(content))
    (tmp_path / "rows.tsv").write_text("n\tbody\n" + "".join(f"1\t{line}\n" for line in LINES))
    return tmp_path


@pytest.fixture
def found(vectors_run, folder, done):
    """The hits of each query that a search prints by --json, and what it says."""

    def search(source, *flags):
        shown = done("search", vectors_run.path, source, *QUERIES, *flags, "--json")
        rows = [json.loads(line) for line in shown.out.splitlines()]
        assert [row["query"] for row in rows] == QUERIES
        return [row["hits"] for row in rows], shown.err

    return search


def ranked(hits) -> list[list[tuple]]:
    """Rank, row and text of each hit, as it was printed or found by Python."""
    if isinstance(hits[0][0], dict):
        return [[(hit["rank"], hit["row"], hit["text"]) for hit in each] for each in hits]
    return [[(rank, hit.row, hit.text) for rank, hit in enumerate(each, 1)] for each in hits]


@pytest.mark.parametrize("column", ["_id", "id"])
def test_the_ids_of_a_table_are_printed(vectors_run, folder, expected, found, done, column):
    rows = [json.dumps({column: f"d{number}", "body": line}) for number, line in enumerate(LINES, 1)]
    (folder / "named.jsonl").write_text("\n".join(rows))
    done("features", vectors_run.path, "named.jsonl", "v.npz", "--texts", "body")
    for corpus in (["named.jsonl"], ["v.npz", "--lines", "named.jsonl"]):
        hits, _ = found(*corpus, "--texts", "body", "--top", "3")
        assert all(each and all(hit["id"] == f"d{hit['row']}" for hit in each) for each in hits)
    shown = done("search", vectors_run.path, "named.jsonl", *QUERIES, "--texts", "body", "--top", "3").out
    assert "id" in shown and f"d{expected[0][0].row}" in shown


@pytest.mark.parametrize("source", ["lines.txt.zst", "rows.tsv --texts body"])
def test_texts_of_every_form_are_searched(found, expected, source):
    hits, said = found(*source.split(), "--top", "3")
    assert ranked(hits) == ranked(expected)
    name = source.split()[0]
    assert f"{name}: 1 empty text left out" in said and "1 of 4 texts are longer than 16 tokens" in said


@pytest.mark.parametrize("written, width", [("float16", None), ("float32", 16)])
def test_vectors_of_features_are_searched_with_or_without_their_texts(vectors_run, found, done, written, width):
    flags = ["--width", width] if width else []
    done("features", vectors_run.path, "lines.txt", "v.npz", "--dtype", written, *flags)
    expected = bert_jax.load(vectors_run.path).search(QUERIES, LINES, 3, width)
    for lines in (["--lines", "lines.txt"], ["--lines", "rows.tsv", "--texts", "body"]):
        assert ranked(found("v.npz", "--top", "3", *flags, *lines)[0]) == ranked(expected)
    alone = ranked(found("v.npz", "--top", "5", *flags)[0])
    assert [len(hits) for hits in alone] == [5, 5] and {text for hits in alone for _, _, text in hits} == {None}


def test_people_get_a_table_for_each_query(vectors_run, folder, expected, done):
    out = done("search", vectors_run.path, "lines.txt", *QUERIES, "--top", "2").out
    for query, hits in zip(QUERIES, expected):
        table = out[out.index(query) :]
        for hit in hits[:2]:
            assert f"{hit.score:.4f}" in table and str(hit.row) in table
    assert "rank" in out and "text" in out and "The old cat sees the dog." in out
    out = done("search", vectors_run.path, "rows.tsv", *QUERIES, "--texts", "n", "body", "--top", "5").out
    assert "1 | A quiet house near the river." in out and "dog " * 40 not in out.replace("\n", "")[:100]


def test_texts_cannot_change_the_table_that_shows_them(vectors_run, folder, done):
    texts = ["cat\ndog\tcow", "\x1b[2Jdog", "\u202egod\u2066", "x" * 300]
    (folder / "rows.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
    out = done("search", vectors_run.path, "rows.jsonl", "the\n\x1b[1m\u202edog", "--texts", "body").out
    assert not set("\x1b\t\u202e\u2066") & set(out)
    for shown in (r"the\n\x1b[1m\u202edog", r"cat\ndog\tcow", r"\x1b[2Jdog", r"\u202egod\u2066"):
        assert shown in out
    assert len({len(line) for line in out.splitlines()[1:]}) == 1  # the lines of a table are of one width


def test_a_corpus_comes_from_standard_input(vectors_run):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = program(COMMAND, "search", vectors_run.path, "-", "the dog", "--json", **pipes)
    out, _ = process.communicate(b"The cat.\n\nThe dog.\n")
    assert process.returncode == 0 and {hit["row"] for hit in json.loads(out)["hits"]} == {1, 3}


def test_standard_input_is_called_so(vectors_run, refused, monkeypatch):
    monkeypatch.setattr(search_module, "read_texts", lambda *_: iter(["", " "]))
    assert "standard input has nothing to search" in refused("search", vectors_run.path, "-", "the dog")
