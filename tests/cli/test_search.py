"""bert-jax search, as typed."""

import gzip
import json
import subprocess

import numpy as np
import pytest
import zstandard
from conftest import program
from warm_process import COMMAND

import bert_jax
from bert_jax.cli.main import run
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
    (tmp_path / "lines.txt.gz").write_bytes(gzip.compress(content))
    (tmp_path / "lines.txt.zst").write_bytes(zstandard.compress(content))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"n": 1, "body": line}) + "\n" for line in LINES))
    (tmp_path / "rows.tsv").write_text("n\tbody\n" + "".join(f"1\t{line}\n" for line in LINES))
    return tmp_path


def hits_of(output) -> list[list[tuple]]:
    """What --json printed: for each query rank, row and text of each hit."""
    rows = [json.loads(line) for line in output.splitlines()]
    assert [row["query"] for row in rows] == QUERIES
    return [[(hit["rank"], hit["row"], hit["text"]) for hit in row["hits"]] for row in rows]


def ranked(expected, texts=True) -> list[list[tuple]]:
    return [[(rank, hit.row, hit.text if texts else None) for rank, hit in enumerate(hits, 1)] for hits in expected]


@pytest.mark.parametrize("column", ["_id", "id"])
def test_the_ids_of_a_table_are_printed(vectors_run, folder, expected, capsys, column):
    rows = [json.dumps({column: f"d{number}", "body": line}) for number, line in enumerate(LINES, 1)]
    (folder / "named.jsonl").write_text("\n".join(rows))
    line = ["search", str(vectors_run.path), "named.jsonl", *QUERIES, "--texts", "body", "--top", "3"]
    assert run([*line, "--json"]) == 0
    hits = [hit for row in map(json.loads, capsys.readouterr().out.splitlines()) for hit in row["hits"]]
    assert hits and all(hit["id"] == f"d{hit['row']}" for hit in hits)
    assert run(line) == 0
    assert "id" in (shown := capsys.readouterr().out) and f"d{expected[0][0].row}" in shown
    assert run(["features", str(vectors_run.path), "named.jsonl", "v.npz", "--texts", "body"]) == 0
    line = ["search", str(vectors_run.path), "v.npz", *QUERIES, "--lines", "named.jsonl", "--texts", "body", "--json"]
    capsys.readouterr()
    assert run(line) == 0
    for row in map(json.loads, capsys.readouterr().out.splitlines()):
        assert all(hit["id"] == f"d{hit['row']}" for hit in row["hits"])


@pytest.mark.parametrize(
    "source",
    ["lines.txt", "lines.txt.gz", "lines.txt.zst", "rows.jsonl --texts body", "rows.tsv --texts body"],
)
def test_texts_of_every_form_are_searched(vectors_run, folder, expected, capsys, source):
    name, *flags = source.split()
    assert run(["search", str(vectors_run.path), name, *QUERIES, *flags, "--top", "3", "--json"]) == 0
    shown = capsys.readouterr()
    assert hits_of(shown.out) == ranked(expected)
    assert f"{name}: 1 empty text left out" in shown.err and "1 of 4 texts are longer than 16 tokens" in shown.err


@pytest.mark.parametrize("written, flags", [("float32", []), ("float16", []), ("float32", ["--width", "16"])])
def test_vectors_of_features_are_searched_with_or_without_their_texts(vectors_run, folder, capsys, written, flags):
    path = str(vectors_run.path)
    assert run(["features", path, "lines.txt", "v.npz", "--dtype", written, *flags]) == 0
    expected = bert_jax.load(path).search(QUERIES, LINES, 3, 16 if flags else None)
    capsys.readouterr()
    search = ["search", path, "v.npz", *QUERIES, "--top", "3", "--json", *flags]
    assert run([*search, "--lines", "lines.txt"]) == 0
    assert hits_of(capsys.readouterr().out) == ranked(expected)
    assert run([*search, "--lines", "rows.tsv", "--texts", "body"]) == 0
    assert hits_of(capsys.readouterr().out) == ranked(expected)
    assert run([*search[: -1 - len(flags)], "--top", "5", "--json", *flags]) == 0
    alone = hits_of(capsys.readouterr().out)
    assert [len(hits) for hits in alone] == [5, 5] and {text for hits in alone for _, _, text in hits} == {None}


def test_a_whole_vector_is_cut_to_the_width_of_the_search(vectors_run, folder, capsys):
    assert run(["features", str(vectors_run.path), "lines.txt", "v.npz"]) == 0
    capsys.readouterr()
    search = [str(vectors_run.path), "v.npz", *QUERIES, "--width", "8", "--json", "--lines", "lines.txt", "--top", "3"]
    assert run(["search", *search]) == 0
    assert hits_of(capsys.readouterr().out) == ranked(bert_jax.load(vectors_run.path).search(QUERIES, LINES, 3, 8))


def test_people_get_a_table_for_each_query(vectors_run, folder, expected, capsys):
    assert run(["search", str(vectors_run.path), "lines.txt", *QUERIES, "--top", "2"]) == 0
    out = capsys.readouterr().out
    for query, hits in zip(QUERIES, expected):
        table = out[out.index(query) :]
        for hit in hits[:2]:
            assert f"{hit.score:.4f}" in table and str(hit.row) in table
    assert "rank" in out and "text" in out and "The old cat sees the dog." in out
    assert run(["search", str(vectors_run.path), "rows.jsonl", *QUERIES, "--texts", "n", "body", "--top", "1"]) == 2
    assert run(["search", str(vectors_run.path), "rows.tsv", *QUERIES, "--texts", "n", "body", "--top", "5"]) == 0
    out = capsys.readouterr().out
    assert "1 | A quiet house near the river." in out and "dog " * 40 not in out.replace("\n", "")[:100]


def test_texts_cannot_change_the_table_that_shows_them(vectors_run, folder, capsys):
    texts = ["cat\ndog\tcow", "\x1b[2Jdog", "\u202egod\u2066", "x" * 300]
    (folder / "rows.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
    assert run(["search", str(vectors_run.path), "rows.jsonl", "the\n\x1b[1m\u202edog", "--texts", "body"]) == 0
    out = capsys.readouterr().out
    assert not set("\x1b\t\u202e\u2066") & set(out)
    for shown in (r"the\n\x1b[1m\u202edog", r"cat\ndog\tcow", r"\x1b[2Jdog", r"\u202egod\u2066"):
        assert shown in out
    assert len({len(line) for line in out.splitlines()[1:]}) == 1  # the lines of a table are of one width


def test_a_pretrained_run_is_searched_with_a_warning(tiny_run, folder, capsys):
    assert run(["search", str(tiny_run.path), "lines.txt", "the dog", "--json"]) == 0
    assert "the model was not trained for vectors of texts" in capsys.readouterr().err


def test_a_corpus_comes_from_standard_input(vectors_run):
    process = program(
        COMMAND, "search", vectors_run.path, "-", "the dog", "--json", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    out, _ = process.communicate(b"The cat.\n\nThe dog.\n")
    assert process.returncode == 0 and {hit["row"] for hit in json.loads(out)["hits"]} == {1, 3}


def test_standard_input_is_called_so(vectors_run, folder, capsys, monkeypatch):
    monkeypatch.setattr(search_module, "read_texts", lambda *_: iter(["", " "]))
    assert run(["search", str(vectors_run.path), "-", "the dog"]) == 2
    assert "standard input has nothing to search" in capsys.readouterr().err


NPZ = {
    "tokens": {"vectors": np.ones((3, 32), np.float32), "pieces": ["a", "b", "c"], "offsets": [0, 3]},
    "wide": {"vectors": np.ones((3, 64), np.float32)},
    "narrow": {"vectors": np.ones((3, 8), np.float32)},
    "ok": {"vectors": np.ones((3, 32), np.float32)},
    "none": {"vectors": np.ones((0, 32), np.float32)},
}


@pytest.mark.parametrize(
    "line, words",
    [
        ("lines.txt ''", "the query is empty; give some words"),
        ("lines.txt q --top 0", "--top 0: expected a whole number above 0"),
        ("lines.txt q --width 40", "--width=40 is not possible: this model's vectors have 32 numbers; give 1 to 32"),
        ("lines.txt q --lines lines.txt", "lines.txt has texts itself, and --lines=lines.txt is for a .npz file"),
        ("rows.tsv q", "rows.tsv has the columns"),
        ("absent.txt q", "absent.txt can't be read (No such file or directory)"),
        ("absent.npz q", "absent.npz can't be read (No such file or directory)"),
        (". q", "can't be read (Is a directory)"),
        ("empty.txt q", "empty.txt has nothing to search; give a corpus with texts"),
        ("blank.txt q", "blank.txt has nothing to search"),
        ("none.npz q", "none.npz has nothing to search"),
        ("tokens.npz q", "tokens.npz has a vector of each token; write one of each text"),
        ("wide.npz q", "wide.npz has vectors of 64 numbers, and those of this search have 32; give a file that"),
        (
            "narrow.npz q",
            "vectors of 8 numbers, and those of this search have 32; search with --width=8, or",
        ),
        ("narrow.npz q --width 16", "narrow.npz has vectors of 8 numbers, and those of this search have 16; give"),
        ("ok.npz q --texts body", "ok.npz has no columns of texts; add --lines=FILE"),
        ("ok.npz q --lines two.txt", "ok.npz has 3 vectors and two.txt has only 2 texts; give the file"),
        ("ok.npz q --lines lines.txt", "ok.npz has 3 vectors and lines.txt has more texts; give the file"),
        ("cut.npz q", "cut.npz is no .npz file, or damaged"),
    ],
)
def test_wrong_use_is_one_line(vectors_run, folder, capsys, line, words):
    for name, arrays in NPZ.items():
        np.savez(f"{name}.npz", **arrays)
    (folder / "cut.npz").write_bytes((folder / "ok.npz").read_bytes()[:300])
    for name, content in {"empty": "", "blank": "\n \n", "two": "a\nb\n"}.items():
        (folder / f"{name}.txt").write_text(content)
    assert run(["search", str(vectors_run.path), *(word.strip("'") for word in line.split())]) == 2
    shown = capsys.readouterr()
    remarks = "left out", "doesn't say which model wrote it"
    said = [one for one in shown.err.splitlines() if not any(remark in one for remark in remarks)]
    assert len(said) == 1 and words in said[0] and not shown.out
