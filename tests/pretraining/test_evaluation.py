"""What a run is measured by: held-out documents, other text, and the baseline."""

import json

import numpy as np
import pytest
from conftest import stories

from bert_jax.cli.main import run as command
from bert_jax.config.training import Phase
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.pretraining import dataset
from bert_jax.pretraining.evaluation import evaluate_run
from bert_jax.run.recorded_config import write_config
from bert_jax.run.run_files import RunFiles


def test_the_baseline_is_that_of_frequencies(tiny_run):
    results = json.loads(tiny_run.results_file.read_text())
    prepared = PreparedData.open(tiny_run.data(32))
    counts = prepared.piece_counts
    assert 0.03 < results["baseline"]["mlm_accuracy"] < 0.4
    entropy = -(counts[counts > 0] / counts.sum() * np.log(counts[counts > 0] / counts.sum())).sum()
    assert results["baseline"]["mlm_loss"] == pytest.approx(entropy, rel=0.1)
    assert results["baseline"]["nsp_accuracy"] >= 0.5
    assert results["beats_baseline"] == (results["mlm_loss"] < results["baseline"]["mlm_loss"])


@pytest.mark.long
def test_evaluating_the_run_again_gives_the_same_and_changes_nothing(tiny_run):
    before = {path: path.stat().st_mtime_ns for path in tiny_run.path.rglob("*")}
    again = evaluate_run(tiny_run).content
    assert again["mlm_loss"] != evaluate_run(tiny_run, dtype="bfloat16").metrics["mlm_loss"]
    expected = json.loads(tiny_run.results_file.read_text())
    assert again == {name: value for name, value in expected.items() if not name.startswith("skipped")}
    assert before == {path: path.stat().st_mtime_ns for path in tiny_run.path.rglob("*")}


@pytest.mark.long
def test_other_units_of_masking_are_measured_and_named(tiny_run, capsys):
    expected = json.loads(tiny_run.results_file.read_text())
    measured = evaluate_run(tiny_run, units=("word",)).content
    assert measured["measured_on"] == expected["measured_on"] | {"units": ["word"]}
    assert measured["mlm_loss"] != expected["mlm_loss"] and measured["baseline"] != expected["baseline"]
    assert command(["evaluate", str(tiny_run.path), "--units", "word"]) == 0
    assert "masked by word" in capsys.readouterr().out
    assert command(["evaluate", str(tiny_run.path), "--units", "phrase"]) == 2
    assert "--objective.units=phrase: no phrases are marked" in capsys.readouterr().err


@pytest.mark.long
def test_other_text_is_measured_whole_and_the_run_stays_as_it_is(tiny_run, corpus, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in tiny_run.path.rglob("*")}
    (tmp_path / "new.txt").write_text(stories(30, first=700))
    measured = evaluate_run(tiny_run, f"text:{tmp_path / 'new.txt'}").content
    records = [json.dumps({"body": text}) for text in stories(30, first=700).split("\n\n")]
    (tmp_path / "new.jsonl").write_text("\n".join(records))
    assert measured == evaluate_run(tiny_run, f"jsonl:{tmp_path / 'new.jsonl'}#body").content
    expected = json.loads(tiny_run.results_file.read_text())
    assert set(expected) - set(measured) == {"skipped_steps", "skipped_records"} and measured["steps"] == 12
    assert measured["unknown_share"] == 0 and "unknown_share" not in expected
    assert measured["held_out_sequences"] > 1.5 * expected["held_out_sequences"]  # 30 documents to some 12 of 120
    assert measured["mlm_loss"] == pytest.approx(expected["mlm_loss"], rel=0.1)
    assert before == {path: path.stat().st_mtime_ns for path in tiny_run.path.rglob("*")}
    # The model has seen this text, but with other masks and pairs.
    assert evaluate_run(tiny_run, f"text:{corpus}").held_out_sequences > 3 * measured["held_out_sequences"]


def test_text_that_the_vocabulary_cannot_read_is_warned_of(tiny_run, tmp_path, capsys):
    (tmp_path / "zh.txt").write_text("雪下了。山林云雾。\n\n" * 10 + stories(2, first=900))
    measured = evaluate_run(tiny_run, str(tmp_path / "zh.txt"), "Chinese").content
    assert 0.05 < measured["unknown_share"] < 1
    said = capsys.readouterr().err
    assert f"WARNING: {measured['unknown_share']:.1%} of the pieces of this text are unknown to the vocabulary" in said


def test_all_of_other_text_is_measured_whatever_is_used_of_held_out_documents(tiny_copy, tmp_path):
    """Nor does it matter that a phase names languages that the text is not in."""
    config = RunFiles(tiny_copy.path).config
    phases = tuple(phase.replace(languages=("en",)) for phase in config.phases)
    write_config(tiny_copy.config_file, config.change(evaluation={"max_sequences": 8}).replace(phases=phases))
    (tmp_path / "new.txt").write_text(stories(30, first=700))
    assert evaluate_run(tiny_copy).held_out_sequences == 8
    assert evaluate_run(tiny_copy, f"text:{tmp_path / 'new.txt'}", "German").held_out_sequences > 30


def test_a_run_is_measured_by_the_sequences_of_the_phase_that_it_has_reached(tiny_run, tiny_copy):
    config = RunFiles(tiny_copy.path).config
    phases = (*config.phases, Phase(steps=5, length=16, batch_size=8))
    write_config(tiny_copy.config_file, config.replace(phases=phases))
    assert evaluate_run(tiny_copy).measured_on == evaluate_run(tiny_run).measured_on


def test_other_text_is_measured_once_whatever_the_dupe_factor(tiny_run, tiny_config, tmp_path):
    source = f"text:{tmp_path / 'new.txt'}"
    (tmp_path / "new.txt").write_text(stories(30, first=700))
    configs = {"once": tiny_config, "often": tiny_config.change(data={"dupe_factor": 3})}
    prepared = [
        dataset.prepare_other(config, tiny_run, 32, source, None, tmp_path / name) for name, config in configs.items()
    ]
    assert prepared[0].train.instances == prepared[1].train.instances
