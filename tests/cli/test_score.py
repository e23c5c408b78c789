"""bert-jax score, as typed."""

import gzip
import json
import math
import os
import subprocess
import sys

import pytest
from conftest import story

import bert_jax
from bert_jax.cli.main import run
from bert_jax.products.report.measurements import minimal_pairs
from bert_jax.products.report.run_summary import RunSummary

LINES = ["The old cat sees the dog.", "", "A quiet house near the river.", "The old " * 40]


@pytest.fixture(scope="module")
def bert(tiny_run):
    return bert_jax.load(tiny_run.path)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with texts in files of each form, and pairs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in LINES))
    (tmp_path / "lines.txt.gz").write_bytes(gzip.compress((tmp_path / "lines.txt").read_bytes()))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"body": line}) + "\n" for line in LINES))
    (tmp_path / "ragged.csv").write_text("body,n\na,1\nb,2,3\n")
    (tmp_path / "none.txt").write_text("")
    (tmp_path / "pairs").mkdir()
    for number, name in enumerate(("order", "words")):
        texts = [story(number + seed)[0].split()[:8] for seed in range(4)]
        rows = [
            {"sentence_good": " ".join(text), "sentence_bad": " ".join(text[::-1]), "field": "syntax"} for text in texts
        ]
        rows.append({"sentence_good": "same", "sentence_bad": "same", "field": "syntax"})
        (tmp_path / "pairs" / f"{name}.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    return tmp_path


def score(capsys, *words) -> tuple[list[dict], str]:
    """What the command printed to standard output, an object a line, and to standard error."""
    assert run(["score", *map(str, words)]) == 0
    shown = capsys.readouterr()
    return [json.loads(line) for line in shown.out.splitlines()], shown.err


@pytest.mark.parametrize("source", ["lines.txt", "lines.txt.gz", "rows.jsonl --texts body"])
def test_each_line_gives_a_row_and_the_totals_are_told(bert, tiny_run, folder, capsys, source):
    rows, told = score(capsys, tiny_run.path, *source.split())
    expected = bert.score(LINES)
    assert [row["text"] for row in rows] == LINES
    assert [row["score"] for row in rows] == [
        None if math.isnan(one) else pytest.approx(one, abs=1e-4) for one in expected
    ]
    assert rows[0]["score_per_token"] == pytest.approx(rows[0]["score"] / rows[0]["tokens"], abs=1e-5)
    assert "2 of 4 texts have no score: 1 empty, 1 longer than the model's 32 positions" in told
    assert "texts 4, scored 2," in told and "perplexity" in told and "bits per character" in told


def test_standard_input_and_a_corpus_are_read(tiny_run, folder, capsys, monkeypatch):
    read, write = os.pipe()
    os.write(write, (folder / "lines.txt").read_bytes())
    os.close(write)
    kept = os.dup(0)
    try:
        os.dup2(read, 0)
        rows, _ = score(capsys, tiny_run.path, "-", "--json")
    finally:
        os.dup2(kept, 0)
    assert len(rows) == len(LINES) + 1 and rows[-1]["texts"] == 4 and rows[-1]["method"] == "token"
    rows, _ = score(capsys, tiny_run.path, "jsonl:rows.jsonl#body")
    assert [row["text"] for row in rows] == [line.strip() for line in LINES if line]


@pytest.mark.long
def test_a_closed_standard_input_is_refused_at_once(tiny_run):
    command = 'exec "$0" -c "from bert_jax.cli.main import main; main()" score "$1" - <&-'
    ended = subprocess.run(["sh", "-c", command, sys.executable, tiny_run.path], capture_output=True, timeout=200)
    assert ended.returncode == 2 and b"standard input has no text to score" in ended.stderr and not ended.stdout


def test_a_file_gets_the_rows_and_on_request_each_token(bert, tiny_run, folder, capsys):
    totals, _ = score(capsys, tiny_run.path, "lines.txt", "scores.jsonl", "--tokens", "--method", "word", "--json")
    rows = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    assert (
        len(rows) == 4 and totals[0]["method"] == "word" and totals[0]["tokens"] == sum(row["tokens"] for row in rows)
    )
    first = next(bert.score_stream(LINES[:1], "word"))
    assert rows[0]["pieces"] == [bert.tokenizer.spelled(number) for number in first.ids]
    assert rows[0]["scores"] == pytest.approx(first.logs.tolist(), abs=1e-5)
    assert "pieces" not in rows[1]


def test_pairs_end_with_the_line_of_json_that_others_read(tiny_run, folder, capsys):
    [found], told = score(capsys, tiny_run.path, "--pairs", "pairs", "--json")
    assert found["pairs"] == 10 and found["ties"] == 2 and set(found["files"]) == {"order", "words"}
    assert found["accuracy"] == found["score"] == sum(found["files"].values()) / 2
    assert found["accuracy"] == pytest.approx(found["groups"]["field"]["syntax"]) and found["method"] == "token"
    assert "pairs: 2 pairs of equal sentences, which are ties" in told
    assert run(["score", str(tiny_run.path), "--pairs", "pairs/order.jsonl.gz", "--normalize"]) == 0
    shown = capsys.readouterr().out
    assert "Accuracy on 5 minimal pairs" in shown and "mean of 1 file" in shown and "syntax" in shown


def test_kept_accuracies_stand_in_the_report_and_do_no_harm(tiny_copy, folder, capsys):
    [found], _ = score(capsys, tiny_copy.path, "--pairs", "pairs", "--json", "--save")
    section = minimal_pairs(RunSummary(tiny_copy.path)).markup
    assert "mean of 2 files at step 12" in section and f"{found['accuracy']:.3f}" in section and "By field" in section
    assert run(["verify", str(tiny_copy.path)]) == 0
    tiny_copy.pairs_file.write_text(
        '{"score": 0.5, "files": {"<b>": 0.5, "x": "y"}, "groups": {"g": 7}, "steps": "no"}'
    )
    summary = RunSummary(tiny_copy.path)
    assert "&lt;b&gt;" in minimal_pairs(summary).markup and "pairs.json that can't be read" in " ".join(
        summary.problems
    )
    tiny_copy.pairs_file.write_text("[]")
    summary = RunSummary(tiny_copy.path)
    assert not minimal_pairs(summary) and "pairs.json can't be read" in summary.problems[-1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("lines.txt lines.txt", "lines.txt is the input (lines.txt); choose another output"),
        ("lines.txt scores.csv", "scores.csv: scores are written as JSON lines; name it .jsonl"),
        ("lines.txt no/scores.jsonl", "there is no folder"),
        ("jsonl:rows.jsonl#body rows.jsonl", "rows.jsonl is the input"),
        ("jsonl:rows*.jsonl#body rows.jsonl", "rows.jsonl is the input"),
        ("none.txt scores.jsonl", "none.txt has no text to score; give some"),
        (
            "--pairs pairs --columns sentence_good sentence_good",
            "--columns sentence_good sentence_good: two columns are",
        ),
        ("missing.txt", "missing.txt can't be read (No such file or directory)"),
        ("rows.jsonl", "rows.jsonl has the columns 'body'; name that of the texts by --texts"),
        ("rows.jsonl --texts title", "has no column 'title': there is 'body'; name columns that are there by --texts"),
        ("text:missing.txt", "no file matches"),
        ("jsonl:rows.jsonl", "--data.source='jsonl:rows.jsonl' lacks #FIELD"),
        ("ragged.csv --texts body", "(score has no flag --task.columns and --task.separator: change the input)"),
        ("lines.txt --method letter", "--method letter: expected token or word"),
        ("--pairs missing.jsonl", "'missing.jsonl' names no file: there is nothing at that path"),
        (
            "--pairs rows.jsonl",
            "has no column 'sentence_good': there is 'body'; name columns that are there by --columns",
        ),
        (
            "--pairs pairs --columns sentence_good",
            "--columns sentence_good: two columns are needed, that of the acceptable",
        ),
        ("--pairs pairs --groups kind", "has no column 'kind'"),
        ("--pairs pairs --tokens", "--tokens is no setting of bert-jax score"),
        ("", "lacks INPUT; give bert-jax score RUN INPUT"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(tiny_run, folder, capsys, words, expected):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert run(["score", str(tiny_run.path), *words.split()]) == 2
    told = capsys.readouterr().err.splitlines()
    assert expected in told[-1] and told[-1].startswith("bert-jax: ")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
