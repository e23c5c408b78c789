"""The main job, whole."""

import contextlib
import json
import signal

import jax
import pytest
from conftest import prepared_copy, stories
from safetensors.numpy import load_file
from stages import parameters, stopped_at

from bert_jax.cli.main import run as command
from bert_jax.cli.results_tables import print_results
from bert_jax.config.training import Phase
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.instances.shards import InstanceSource
from bert_jax.pretraining import pretrain as pretrain_module
from bert_jax.pretraining.evaluation import HeldOut, evaluate_run
from bert_jax.pretraining.inspection import training_step
from bert_jax.pretraining.pretrain import _harm_without_loss, pretrain
from bert_jax.run.checkpoint_manifest import Manifest, checkpoint_path, complete, delete_checkpoint
from bert_jax.run.metrics import read_metrics
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.errors import Interrupted, RunError, UsageError
from bert_jax.system.journal import read_journal
from bert_jax.training import ending, loop

PHASE = Phase(steps=12, length=32, batch_size=8)
"""That of `tiny_config`."""
TRAIN_FIELDS = {
    "step", "split", "loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy",
    "learning_rate", "grad_norm", "sequences_per_second", "tokens_per_second", "fill", "mfu", "skipped",
    "skipped_records",
}  # fmt: skip


def without_speed(lines):
    return [{name: value for name, value in line.items() if not name.endswith("_per_second")} for line in lines]


def test_a_run_leaves_what_the_contract_names(tiny_run, tiny_config):
    names = {path.name for path in tiny_run.path.iterdir()}
    assert {"config.json", "tokenizer", "data", "checkpoints", "metrics.jsonl", "results.json"} <= names
    assert [int(path.name) for path in complete(tiny_run.checkpoints)][-1] == 12
    lines = read_metrics(tiny_run.metrics_file)
    train = [line for line in lines if line["split"] == "train"]
    assert [line["step"] for line in train] == [3, 6, 9, 12] and all(set(line) == TRAIN_FIELDS for line in train)
    evaluations = [line for line in lines if line["split"] == "eval"]
    assert [line["step"] for line in evaluations] == [6, 12]
    assert train[-1]["loss"] == pytest.approx(train[-1]["mlm_loss"] + train[-1]["nsp_loss"], rel=1e-3)
    assert train[0]["loss"] > train[-1]["loss"]
    results = json.loads(tiny_run.results_file.read_text())
    assert results["score"] == results["mlm_accuracy"] == evaluations[-1]["mlm_accuracy"]
    assert results["loss"] == pytest.approx(results["mlm_loss"] + results["nsp_loss"])


def test_a_finished_run_says_so_and_does_nothing(tiny_run, tiny_config, tiny_copy, monkeypatch, capsys):
    monkeypatch.setattr(pretrain_module, "prepare_data", None)
    again = pretrain(tiny_config, tiny_copy)
    assert again.content == json.loads(tiny_run.results_file.read_text())
    assert "is finished: 12 steps" in capsys.readouterr().err.replace("\n", "")


@pytest.mark.long
def test_a_run_stopped_again_and_again_goes_on_bit_for_bit(tiny_run, tiny_config, tmp_path):
    run, begun = prepared_copy(tiny_run, tmp_path), 0
    expected = [("begun", "12 steps")]
    for step in (2, 5, 11):
        with stopped_at(step, begun):
            pretrain(tiny_config, run)
        assert int(complete(run.checkpoints)[-1].name) == step
        expected += [("stopped", f"after step {step}, with a checkpoint"), ("resumed", f"going on from step {step}")]
        begun = step
    pretrain(tiny_config, run)
    assert parameters(run.path) == parameters(tiny_run.path)
    ours, theirs = (read_metrics(some.metrics_file) for some in (run, tiny_run))
    assert without_speed(ours) == without_speed(theirs)
    noted = [line for line in read_journal(run.path / "events.jsonl") if line.event != "environment"]
    assert [(line.event, line.message) for line in noted] == [*expected, ("finished", "step 12")]


def test_a_step_for_which_no_memory_is_left_is_said_in_a_line(tiny_config, untrained, monkeypatch):
    def full(*arguments):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 26697931256 bytes.\nand more")

    monkeypatch.setattr(loop.jax, "block_until_ready", full)
    with pytest.raises(RunError) as failure:
        pretrain(tiny_config, untrained)
    assert str(failure.value) == (
        "no memory is left for compiling step 1 of 12 (Training) (Out of memory allocating 26697931256 bytes); give a "
        "smaller batch, or save memory by --execution.remat full and --execution.accumulation N"
    )
    events = [json.loads(line) for line in (untrained.path / "events.jsonl").read_text().splitlines()]
    assert events[-1]["event"] == "failed" and "RESOURCE_EXHAUSTED" in events[-1]["message"]


@pytest.mark.long
def test_phases_follow_one_another(tiny_config, untrained):
    phases = (Phase(steps=4, length=16, batch_size=8), Phase(steps=4, length=32, batch_size=4))
    config = tiny_config.replace(phases=phases)
    results = pretrain(config, untrained).content
    assert results["steps"] == 8
    assert [int(path.name) for path in complete(untrained.checkpoints)] == [4, 8]  # each phase ends with one
    assert {path.name for path in (untrained.path / "data").iterdir()} == {"length-16", "length-32"}
    first, then = training_step(untrained, 4).batch, training_step(untrained, 5)
    second = then.batch
    assert first.tokens.ids.shape == (8, 16) and second.tokens.ids.shape == (4, 32)
    assert second.ordinal[:, 0].tolist() == [0, 1, 2, 3]
    found = InstanceSource(PreparedData.unchecked(untrained.data(32)), "train").read(then.records)
    assert found.ids.tolist() == second.tokens.ids[second.tokens.sequence > 0].tolist()
    with pytest.raises(UsageError, match="step 9 is none of the run's 8"):
        training_step(untrained, 9)


def test_data_of_another_kind_is_refused_for_a_run_under_way(tiny_config, tiny_copy):
    tiny_copy.results_file.unlink()
    vocab = tiny_copy.tokenizer_directory / "vocab.txt"
    pieces = vocab.read_text().split("\n")
    vocab.write_text("\n".join([*pieces[:-3], *reversed(pieces[-3:-1]), ""]))
    with pytest.raises(RunError, match="tokenizer/vocab.txt is not as it was written; put a good copy in its place"):
        pretrain(tiny_config, tiny_copy)
    tiny_copy.manifest.path.unlink()  # without it, no checksum of the tokenizer is known
    with pytest.raises(UsageError, match="prepared from other settings or another tokenizer"):
        pretrain(tiny_config, tiny_copy)


@pytest.mark.long
def test_without_held_out_documents_it_trains_and_says_so(tiny_config, tmp_path, capsys):
    (tmp_path / "few.txt").write_text(stories(8))
    data = {"source": f"text:{tmp_path / 'few.txt'}", "held_out": 0.0}
    config = tiny_config.change(vocabulary={"size": 120}, data=data).replace(phases=(PHASE.replace(steps=2),))
    results = pretrain(config, RunDirectory(tmp_path / "run")).content
    assert results["steps"] == 2 and "baseline" not in results
    assert "no held-out documents" in capsys.readouterr().err
    assert Manifest.at(complete(tmp_path / "run" / "checkpoints")[-1]).evaluation is None


def test_a_stop_whose_checkpoint_fails_is_a_failure(tiny_config, untrained, monkeypatch):
    monkeypatch.setattr(ending.StopSignals, "requested", True)
    monkeypatch.setattr(Manifest, "of", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(RunError, match="checkpoint 1 could not be written"):
        pretrain(tiny_config, untrained)


@contextlib.contextmanager
def stopped_in_evaluation(step: int):
    """Within the block, an evaluation gets a SIGTERM at its begin, after which the training ends at `step`."""
    evaluate = HeldOut.evaluate

    def stopped(*given):
        signal.raise_signal(signal.SIGTERM)
        return evaluate(*given)

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Interrupted, match=f"stopped at step {step} of"):
        patched.setattr(HeldOut, "evaluate", stopped)
        yield


def test_a_stop_while_it_is_evaluated_is_not_put_off_and_the_last_evaluation_gives_the_results(
    tiny_run, tiny_config, untrained, monkeypatch
):
    """As measuring the last checkpoint does, where results.json is gone."""
    with stopped_in_evaluation(6):
        pretrain(tiny_config, untrained)
    assert [line["split"] for line in read_metrics(untrained.metrics_file)] == ["train", "train"]
    evaluate, calls = HeldOut.evaluate, []
    monkeypatch.setattr(HeldOut, "evaluate", lambda self, *given: calls.append(1) or evaluate(self, *given))
    results = pretrain(tiny_config, untrained).content
    assert len(calls) == 2  # at steps 6 and 12
    ours, theirs = (read_metrics(some.metrics_file) for some in (untrained, tiny_run))
    assert without_speed(ours) == without_speed(theirs)
    untrained.results_file.unlink()
    assert pretrain(tiny_config, untrained).content == results and len(calls) == 3


@pytest.mark.long
def test_a_stop_while_the_last_step_is_evaluated_late_leaves_the_run_unfinished(tiny_config, untrained):
    config = tiny_config.replace(phases=(tiny_config.phases[0].replace(steps=2),))
    for _ in range(2):  # at the step, and late
        with stopped_in_evaluation(2):
            pretrain(config, untrained)
    pretrain(config, untrained)
    late = read_metrics(untrained.metrics_file)[-1]
    assert late["split"] == "eval"
    assert Manifest.at(checkpoint_path(untrained.checkpoints, 2)).evaluation["loss"] == late["loss"]


@pytest.mark.long
def test_a_finished_run_takes_more_steps_and_another_phase(tiny_run, tiny_config, tiny_copy, capsys):
    more = tiny_config.replace(phases=(PHASE.replace(steps=14), PHASE.replace(steps=1, length=16)))
    assert pretrain(more, tiny_copy).steps == 15
    said = capsys.readouterr().err
    words = "--phases.0.steps is 12 there and 14 now", "from step 12 on", "of a run planned"
    assert all(word in said for word in words)
    before, rates = (
        {line["step"]: line["learning_rate"] for line in read_metrics(run.metrics_file) if line["split"] == "train"}
        for run in (tiny_run, tiny_copy)
    )
    assert {step: rates[step] for step in before} == before
    # The mean of steps 12 to 14, counted from 0. The second step, numbered 1, has the peak.
    assert rates[15] == pytest.approx(tiny_config.optimizer.peak_learning_rate * (1 - 12 / 14), rel=1e-5)
    assert (tiny_copy.data(16) / "prepared.json").exists()


@pytest.mark.parametrize("change", [{"steps": 11}, {"steps": 20, "length": 16}])
def test_steps_that_were_taken_cannot_be_planned_otherwise(tiny_config, tiny_copy, change):
    with pytest.raises(UsageError, match="is another run: --phases.0"):
        pretrain(tiny_config.replace(phases=(PHASE.replace(**change),)), tiny_copy)


@pytest.mark.long
def test_a_trace_of_some_steps_is_written(tiny_config, untrained, capsys):
    traced = tiny_config.replace(profile_steps="2:3")
    pretrain(traced, untrained)
    assert list(untrained.profile.rglob("*.xplane.pb"))
    assert "trace of steps 2 to 3" in capsys.readouterr().err
    delete_checkpoint(checkpoint_path(untrained.checkpoints, 12))
    pretrain(traced, untrained)
    assert "profile_steps=2:3 are done already: no trace is written" in capsys.readouterr().err


@pytest.mark.long
def test_a_run_without_pairs_measures_masked_words_alone(tiny_config, tmp_path, capsys):
    config = tiny_config.change(objective={"pair": "none"}).replace(phases=(PHASE.replace(steps=4),))
    run = RunDirectory(tmp_path)
    measured = pretrain(config, run)
    results = measured.content
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert not [name for values in (results, results["baseline"], *lines) for name in values if "nsp" in name]
    assert results["loss"] == results["mlm_loss"]
    assert evaluate_run(run).metrics["mlm_loss"] == results["mlm_loss"]
    seen = training_step(run, 1)
    batch, targets = seen.batch, seen.targets
    assert not batch.tokens.segment.any() and not targets.masked.tokens.segment.any()
    print_results(measured, phases=1)
    assert command(["inspect", str(tmp_path), "--rows", "2"]) == 0
    shown = capsys.readouterr().out
    assert "MLM accuracy" in shown and "NSP" not in shown and "second segment" not in shown
    assert command(["export", str(tmp_path), str(tmp_path / "exported")]) == 0
    assert "exported a BertForMaskedLM" in capsys.readouterr().err.replace("\n", " ")
    exported = load_file(tmp_path / "exported" / "model.safetensors")
    assert not [name for name in exported if "pooler" in name or "seq_relationship" in name]  # which nothing trained


def test_losses_of_other_held_out_sequences_are_no_harm():
    start = {"loss": 1.0, "mean_cosine": 0.5}
    assert _harm_without_loss(start, {"loss": 9.0, "mean_cosine": 0.6}, 1.0) is None
    assert "collapsed" in _harm_without_loss(start, {"loss": 0.5, "mean_cosine": 0.995}, 0.1)


def test_results_of_fewer_steps_are_not_those_of_the_run(tiny_config, tiny_copy):
    stale = json.loads(tiny_copy.results_file.read_text()) | {"steps": 11}  # as a kill leaves it after steps were added
    tiny_copy.results_file.write_text(json.dumps(stale))
    assert pretrain(tiny_config, tiny_copy).steps == json.loads(tiny_copy.results_file.read_text())["steps"] == 12
