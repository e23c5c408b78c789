"""Any saved step of a run, and the mean of its last ones, in place of the newest."""

import json
import shutil

import jax
import numpy as np
import pytest
from conftest import prepared_copy
from safetensors.numpy import load_file

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.config.operation import CheckpointConfig
from bert_jax.config.training import Phase, TrainingConfig
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run import checkpoint_choice, trained_model
from bert_jax.run.checkpoint_manifest import Manifest, checkpoint_path, delete_checkpoint
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.saved_state import mean_of
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.errors import RunError, UsageError


@pytest.fixture(scope="module")
def kept_run(tiny_config, tiny_run, tmp_path_factory):
    """Of two phases of 6 steps, with every second step saved: 2, 4, ... 12. Not to be changed."""
    run = prepared_copy(tiny_run, tmp_path_factory.mktemp("kept"))
    phase = tiny_config.phases[0].replace(steps=6)
    pretrain(tiny_config.replace(phases=(phase, phase), checkpoints=CheckpointConfig(every=2, keep=9)), run)
    return run


@pytest.fixture
def run(kept_run, tmp_path):
    """A copy of `kept_run` that may be changed."""
    return RunDirectory(shutil.copytree(kept_run.path, tmp_path / "run"))


def params_at(run, step):
    return jax.device_get(bert_jax.load(checkpoint_path(run.checkpoints, step)).params)


def mean_at(run, *steps):
    """The mean of saved parameters, computed in float64."""
    trees = [params_at(run, step) for step in steps]
    return jax.tree.map(lambda *leaves: np.mean(np.stack(leaves).astype(np.float64), axis=0), *trees)


def largest_difference(first, second):
    return max(jax.tree.leaves(jax.tree.map(lambda one, other: np.abs(one - other).max(), first, second)))


def said(capsys):
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.long
def test_an_average_is_the_mean_of_saved_steps_of_one_phase_in_float32_and_says_how_to_keep_more(kept_run, capsys):
    bert = bert_jax.load(kept_run.path, average=5)
    assert bert.steps == (8, 10, 12)
    assert {leaf.dtype for leaf in jax.tree.leaves(bert.params)} == {np.dtype(np.float32)}
    expected = mean_at(kept_run, 8, 10, 12)
    assert largest_difference(jax.device_get(bert.params), expected) < 1e-6
    assert largest_difference(params_at(kept_run, 12), expected) > 1e-4, "the steps differ too little to tell"
    line = said(capsys)
    assert f"{kept_run.path} keeps 3 saved steps of this phase, not 5: the mean" in line
    assert "at steps 8, 10, 12 is used; train with --checkpoints.keep 5 to keep more" in line
    bert = bert_jax.load(kept_run.path, step=6, average=2)
    assert bert.steps == (4, 6)
    assert largest_difference(jax.device_get(bert.params), mean_at(kept_run, 4, 6)) < 1e-6
    line = said(capsys)
    assert f"{kept_run.path}: the mean of the parameters saved at steps 4, 6 is used" in line and "WARNING" not in line


def test_the_last_step_of_a_phase_belongs_to_it():
    phases = [Phase(steps=steps, length=32, batch_size=8) for steps in (6, 4)]
    config = TrainingConfig(phases=phases)
    assert [config.phase_of(step) for step in (0, 1, 6, 7, 10, 11)] == [0, 0, 0, 1, 1, 1]


@pytest.mark.long
def test_a_saved_step_is_that_of_its_checkpoint_and_by_default_the_newest(kept_run):
    assert TrainedModel.open(kept_run.path).provenance.steps == (12,)
    bert = bert_jax.load(kept_run.path, step=4)
    assert bert.steps == (4,)
    assert largest_difference(jax.device_get(bert.params), params_at(kept_run, 4)) == 0
    assert largest_difference(jax.device_get(bert.params), params_at(kept_run, 12)) > 1e-4


@pytest.mark.parametrize("name", ["fill-mask", "features", "predict"])
def test_a_step_that_is_not_saved_is_refused_in_one_line_that_lists_those_that_are(kept_run, tmp_path, name, capsys):
    (tmp_path / "lines.txt").write_text("The cat.\n")
    given = {
        "fill-mask": ["The [MASK]."],
        "features": [str(tmp_path / "lines.txt"), str(tmp_path / "out.npz")],
        "predict": [str(tmp_path / "lines.txt"), str(tmp_path / "out.jsonl")],
    }
    assert command([name, str(kept_run.path), *given[name], "--step", "7"]) == 2
    assert capsys.readouterr().err == (
        f"bert-jax: {kept_run.path} has no saved step 7; its saved steps are 2, 4, 6, 8, 10, 12: give one of them\n"
    )
    assert not list(tmp_path.glob("out*"))


def test_a_step_and_an_average_are_of_a_run(kept_run, tmp_path):
    assert command(["export", str(kept_run.path), str(tmp_path / "exported"), "--average", "2"]) == 0
    for one in (checkpoint_path(kept_run.checkpoints, 8), tmp_path / "exported"):
        for asked in ({"step": 8}, {"average": 2}):
            with pytest.raises(UsageError, match=f"{one} is one model, .* give the run, or leave both out"):
                bert_jax.load(one, **asked)
    with pytest.raises(UsageError, match="an average of 0 saved steps has no parameters; give how many, from 1"):
        bert_jax.load(kept_run.path, average=0)


def test_two_copies_of_the_parameters_are_in_memory_at_most(kept_run, monkeypatch):
    """Counted before and after each checkpoint is read, and when the mean is there."""
    counts, load = [], trained_model.load_parameters
    before = jax.live_arrays()  # kept, so that no new array gets the id of one of them
    known = {id(array) for array in before}

    def count():
        counts.append(sum(array.nbytes for array in jax.live_arrays() if id(array) not in known))

    def counted(path, shapes):
        count()
        found = load(path, shapes)
        count()
        return found

    monkeypatch.setattr(trained_model, "load_parameters", counted)
    bert = bert_jax.load(kept_run.path, average=3)
    count()
    copy = sum(leaf.nbytes for leaf in jax.tree.leaves(bert.params))
    shares = np.array(counts) / copy
    assert shares[[0, 1, -1]] == pytest.approx([0, 1, 1])
    assert shares[2::2] == pytest.approx(1), "more than the sum is there before a part is read"
    assert len(shares) > 2 * (2 * 4) and shares.max() < 1.6


def test_a_mean_of_one_is_that_one_and_of_none_is_refused(kept_run):
    params = bert_jax.load(kept_run.path).params
    assert mean_of([lambda shapes: params], params) is params
    with pytest.raises(ValueError, match="no parameters were given"):
        mean_of([], params)


def test_a_damaged_checkpoint_is_left_out_of_an_average_and_named(run, capsys):
    (checkpoint_path(run.checkpoints, 10) / "config.json").write_text("{}")
    assert bert_jax.load(run.path, average=2).steps == (8, 12)
    assert "00000010 is damaged (config.json is not as it was written)" in said(capsys)
    with pytest.raises(RunError, match="00000010 is damaged: config.json is not as it was written"):
        bert_jax.load(run.path, step=10)


@pytest.mark.parametrize("name", ["saved_shapes", "load_parameters"])
def test_where_a_training_deletes_one_of_an_average_the_others_are_averaged(run, name, monkeypatch):
    function, oldest = getattr(trained_model, name), checkpoint_path(run.checkpoints, 8)

    def deleting(path, *given):
        if path == oldest:
            delete_checkpoint(path)
        return function(path, *given)

    monkeypatch.setattr(trained_model, name, deleting)
    bert = bert_jax.load(run.path, average=3)
    assert bert.steps == (10, 12)
    assert largest_difference(jax.device_get(bert.params), mean_at(run, 10, 12)) < 1e-6


def test_one_of_other_shapes_is_refused(run, monkeypatch):
    shapes = trained_model.saved_shapes
    changed = lambda tree: jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*leaf.shape, 1), leaf.dtype), tree)
    monkeypatch.setattr(
        trained_model, "saved_shapes", lambda path: changed(shapes(path)) if path.name == "00000010" else shapes(path)
    )
    with pytest.raises(UsageError, match="00000010: its parameters aren't those of its config.json"):
        bert_jax.load(run.path, average=2)


def test_of_a_task_an_average_ends_with_the_newest_and_not_with_the_best(run, monkeypatch):
    best = checkpoint_path(run.checkpoints, 8)
    monkeypatch.setattr(checkpoint_choice, "best_first", lambda manifests, criterion: [best])
    assert bert_jax.load(run.path).steps == (8,)
    assert bert_jax.load(run.path, average=1).steps == (12,)
    assert bert_jax.load(run.path, average=2).steps == (10, 12)


@pytest.mark.long
def test_an_evaluated_step_has_the_measurements_of_its_checkpoint_and_an_average_its_own(kept_run, capsys):
    assert command(["evaluate", str(kept_run.path), "--step", "6", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    then, last = (Manifest.at(checkpoint_path(kept_run.checkpoints, step)).evaluation for step in (6, 12))
    assert results["steps"] == 6 and "averaged_steps" not in results
    assert results["mlm_loss"] == pytest.approx(then["mlm_loss"], rel=1e-6)
    assert then["mlm_loss"] != pytest.approx(last["mlm_loss"], rel=1e-3)
    assert command(["evaluate", str(kept_run.path), "--average", "2", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["averaged_steps"] == [10, 12] and results["steps"] == 12
    assert results["mlm_loss"] != pytest.approx(last["mlm_loss"], rel=1e-6)
    assert command(["evaluate", str(kept_run.path), "--average", "2"]) == 0
    assert "Mean of steps 10, 12, " in " ".join(capsys.readouterr().out.split())


def test_an_exported_average_has_the_mean_and_a_card_that_says_so(kept_run, tmp_path):
    average, newest = tmp_path / "average", tmp_path / "newest"
    assert command(["export", str(kept_run.path), str(average), "--average", "2"]) == 0
    assert command(["export", str(kept_run.path), str(newest)]) == 0
    name = "bert.embeddings.position_embeddings.weight"
    expected = mean_at(kept_run, 10, 12)["bert"]["embeddings"]["position"]
    assert np.abs(load_file(average / "model.safetensors")[name] - expected).max() < 1e-6
    assert np.abs(load_file(newest / "model.safetensors")[name] - expected).max() > 1e-5
    card = (average / "README.md").read_text()
    assert "- the parameters are the mean of those at steps 10, 12 of 12\n" in card
    assert "## Results" not in card and "## Results" in (newest / "README.md").read_text()


def test_an_exported_step_has_the_card_of_that_step(kept_run, tmp_path):
    assert command(["export", str(kept_run.path), str(tmp_path / "exported"), "--step", "8"]) == 0
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "- 6 steps of 8 sequences" in card and "- 2 steps of 8 sequences" in card
    assert "- this is the checkpoint at step 8 of 12\n" in card and "## Results" not in card
