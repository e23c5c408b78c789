"""A run on packed rows: what it measures, that it goes on bit for bit, and what it refuses."""

import re
import shutil

import pytest
from stages import parameters

from bert_jax.cli.main import run as command
from bert_jax.pretraining.evaluation import evaluate_run
from bert_jax.pretraining.inspection import seen_sequences
from bert_jax.run.metrics import read_metrics
from bert_jax.run.recorded_config import write_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles
from bert_jax.system import progress
from bert_jax.training import loop

pytestmark = pytest.mark.long


def test_it_measures_sequences_real_tokens_and_fill(packed_run, packed_config):
    lines = [line for line in read_metrics(packed_run.path / "metrics.jsonl") if line["split"] == "train"]
    fills = [line["fill"] for line in lines]
    assert max(fills) <= 1 and sum(fills) / len(fills) > 0.9  # a chunk's last rows may be less than full
    for line in lines:  # 8 rows a step, of more than one sequence
        rows_per_second = line["tokens_per_second"] / (128 * line["fill"])
        assert line["sequences_per_second"] > 1.2 * rows_per_second
    assert evaluate_run(packed_run).held_out_sequences


def test_it_goes_on_bit_for_bit(packed_run, packed_config, resumed, monkeypatch, capsys):
    """And tells how many sequences a row holds, at the start and in the progress line."""
    monkeypatch.setattr(progress, "PLAIN_FIRST_S", 0.0)
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", 0.0)
    monkeypatch.setattr(loop, "_NOTE_EVERY_S", 0.0)
    assert parameters(resumed(packed_config, 5, packed_run).path) == parameters(packed_run.path)
    said = " ".join(capsys.readouterr().err.split())
    start = re.search(r"packed rows of 128: (\d\.\d) sequences a row, (\d+)% filled; a batch of 8 rows has (\d+)", said)
    assert float(start[1]) > 1.2 and int(start[2]) > 90 and int(start[3]) == pytest.approx(8 * float(start[1]), abs=1)
    in_progress = re.search(rf"rate .*, {start[1]} sequences a row, (\d+)% filled", said)
    assert 50 < int(in_progress[1]) <= 100


def test_inspect_shows_each_sequence_of_a_row(packed_run):
    seen = seen_sequences(packed_run, 1, rows=8)
    numbers = {}
    for sequence in seen:
        numbers.setdefault(sequence.record, []).append(sequence.number)
        assert sequence.pieces[0].piece == "[CLS]" and sequence.pieces[-1].piece == "[SEP]"
        assert [piece.position for piece in sequence.pieces] == list(range(len(sequence.pieces)))
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())
    assert max(map(len, numbers.values())) > 1


def test_other_text_is_measured_as_by_a_run_that_is_not_packed(packed_run, corpus, tmp_path, monkeypatch):
    shutil.copytree(packed_run.path, tmp_path / "run", ignore=shutil.ignore_patterns("data*"))
    apart = RunDirectory(tmp_path / "run")
    config = RunFiles(apart.path).config
    write_config(apart.config_file, config.replace(data=config.data.replace(packed=False)))
    monkeypatch.setattr(RunFiles, "refuse_foreign", lambda *_: None)  # its checkpoints are of a packed run
    results = [evaluate_run(run, f"text:{corpus}").content for run in (packed_run, apart)]
    assert results[0] == results[1] and results[0]["held_out_sequences"] > 100


def test_the_command_shows_a_row_a_line(packed_run, capsys):
    assert command(["inspect", str(packed_run.path), "--json", "--rows", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 3
