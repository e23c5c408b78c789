"""bert-jax score, as typed."""

import gzip
import json
import math
import os
import subprocess

import pytest
from conftest import program, story

import bert_jax
from bert_jax.products.report.measurements import minimal_pairs
from bert_jax.products.report.run_summary import RunSummary

CLOSED = """
import os, sys

os.close(0)
sys.stdin = None  # as Python has it where the shell closed it
from bert_jax.cli.main import main

main()
"""
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
    (tmp_path / "pairs").mkdir()
    for number, name in enumerate(("order", "words")):
        texts = [story(number + seed)[0].split()[:8] for seed in range(4)]
        pairs = [(" ".join(text), " ".join(text[::-1])) for text in texts] + [("same", "same")]
        rows = [{"sentence_good": good, "sentence_bad": bad, "field": "syntax"} for good, bad in pairs]
        (tmp_path / "pairs" / f"{name}.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    return tmp_path


@pytest.fixture
def score(done):
    """What the command prints to standard output, an object a line, and to standard error."""

    def printed(*words):
        shown = done("score", *words)
        return [json.loads(line) for line in shown.out.splitlines()], shown.err

    return printed


@pytest.mark.parametrize("source", ["lines.txt", "lines.txt.gz", "rows.jsonl --texts body"])
def test_each_line_gives_a_row_and_the_totals_are_told(bert, tiny_run, folder, score, source):
    rows, told = score(tiny_run.path, *source.split())
    expected = bert.score(LINES)
    assert [row["text"] for row in rows] == LINES
    assert [row["score"] for row in rows] == [
        None if math.isnan(one) else pytest.approx(one, abs=1e-4) for one in expected
    ]
    assert rows[0]["score_per_token"] == pytest.approx(rows[0]["score"] / rows[0]["tokens"], abs=1e-5)
    assert "2 of 4 texts have no score: 1 empty, 1 longer than the model's 32 positions" in told
    assert "texts 4, scored 2," in told and "perplexity" in told and "bits per character" in told


def test_standard_input_and_a_corpus_are_read(tiny_run, folder, score):
    read, write = os.pipe()
    os.write(write, (folder / "lines.txt").read_bytes())
    os.close(write)
    kept = os.dup(0)
    try:
        os.dup2(read, 0)
        rows, _ = score(tiny_run.path, "-", "--json")
    finally:
        os.dup2(kept, 0)
    assert len(rows) == len(LINES) + 1 and rows[-1]["texts"] == 4 and rows[-1]["method"] == "token"
    rows, _ = score(tiny_run.path, "jsonl:rows.jsonl#body")
    assert [row["text"] for row in rows] == [line.strip() for line in LINES if line]


@pytest.mark.long
def test_a_closed_standard_input_is_refused_at_once(tiny_run):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = program(CLOSED, "score", tiny_run.path, "-", **pipes)
    output, said = process.communicate(timeout=200)
    assert process.returncode == 2 and "standard input has no text to score" in said and not output


def test_a_file_gets_the_rows_and_on_request_each_token(bert, tiny_run, folder, score):
    totals, _ = score(tiny_run.path, "lines.txt", "scores.jsonl", "--tokens", "--method", "word", "--json")
    rows = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    assert len(rows) == 4 and totals[0]["method"] == "word"
    assert totals[0]["tokens"] == sum(row["tokens"] for row in rows)
    first = next(bert.score_stream(LINES[:1], "word"))
    assert rows[0]["pieces"] == [bert.tokenizer.spelled(number) for number in first.ids]
    assert rows[0]["scores"] == pytest.approx(first.logs.tolist(), abs=1e-5)
    assert "pieces" not in rows[1]


def test_pairs_end_with_the_line_of_json_that_others_read(tiny_run, folder, score, done):
    [found], told = score(tiny_run.path, "--pairs", "pairs", "--json")
    assert found["pairs"] == 10 and found["ties"] == 2 and set(found["files"]) == {"order", "words"}
    assert found["accuracy"] == found["score"] == sum(found["files"].values()) / 2
    assert found["accuracy"] == pytest.approx(found["groups"]["field"]["syntax"]) and found["method"] == "token"
    assert "pairs: 2 pairs of equal sentences, which are ties" in told
    shown = done("score", tiny_run.path, "--pairs", "pairs/order.jsonl.gz", "--normalize").out
    assert "Accuracy on 5 minimal pairs" in shown and "mean of 1 file" in shown and "syntax" in shown


def test_kept_accuracies_stand_in_the_report_and_do_no_harm(tiny_copy, folder, score, done):
    [found], _ = score(tiny_copy.path, "--pairs", "pairs", "--json", "--save")
    section = minimal_pairs(RunSummary(tiny_copy.path)).markup
    assert "mean of 2 files at step 12" in section and f"{found['accuracy']:.3f}" in section and "By field" in section
    done("verify", tiny_copy.path)
    damaged = '{"score": 0.5, "files": {"<b>": 0.5, "x": "y"}, "groups": {"g": 7}, "steps": "no"}'
    tiny_copy.pairs_file.write_text(damaged)
    summary = RunSummary(tiny_copy.path)
    assert "&lt;b&gt;" in minimal_pairs(summary).markup
    assert "pairs.json that can't be read" in " ".join(summary.problems)
    tiny_copy.pairs_file.write_text("[]")
    summary = RunSummary(tiny_copy.path)
    assert not minimal_pairs(summary) and "pairs.json can't be read" in summary.problems[-1]
