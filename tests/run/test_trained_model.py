"""Models read beside a training that deletes checkpoints."""

import json
import shutil
from unittest.mock import Mock

import jax
import orbax.checkpoint as ocp
import pytest
import tensorstore

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.config.run import RunConfig
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run import checkpoint_choice, checkpoint_manifest, run_directory, run_files, trained_model
from bert_jax.run.checkpoint_choice import CheckpointGone
from bert_jax.run.checkpoint_manifest import Manifest, complete, delete_checkpoint, write_evaluation
from bert_jax.run.recorded_config import write_config
from bert_jax.run.results import Results
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.errors import RunError, UsageError

PLACES = [
    (checkpoint_choice, "open_checkpoint"),
    (checkpoint_choice, "manifests_of"),
    (run_files, "read_bytes"),
    (trained_model, "saved_shapes"),
    (trained_model, "load_parameters"),
]


def deleting(run, function, when):
    """`function`, with the newest checkpoint deleted before or after its first call."""
    newest = complete(run.checkpoints)[-1:]

    def called(*given, **named):
        if newest and when == "before":
            delete_checkpoint(newest.pop())
        found = function(*given, **named)
        if newest:
            delete_checkpoint(newest.pop())
        return found

    return called


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("module, name", PLACES)
def test_where_a_training_deletes_what_is_read_another_is(run, module, name, when, monkeypatch, capsys):
    monkeypatch.setattr(module, name, deleting(run, getattr(module, name), when))
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    trained, params = TrainedModel.load(run.path, lambda shapes: jax.tree.map(lambda _: device, shapes))
    read_already = (name, when) == ("load_parameters", "after")
    assert trained.step == (12 if read_already else 8)
    assert jax.tree.structure(params) == jax.tree.structure(trained.shapes)
    assert "WARNING" not in capsys.readouterr().err


def test_a_copied_checkpoint_may_have_any_name(run, tmp_path):
    copy = shutil.copytree(run.checkpoints / "00000012", tmp_path / "my model, 50%20#?")
    assert TrainedModel.open(copy).step == 12
    assert command(["export", str(copy), str(tmp_path / "exported")]) == 0


@pytest.mark.parametrize("name", ["evaluate", "verify", "inspect"])
@pytest.mark.long(first=1)
def test_commands_beside_a_training_end_well(run, name, monkeypatch, capsys):
    of = checkpoint_manifest.FileSum.of
    monkeypatch.setattr(checkpoint_manifest.FileSum, "of", deleting(run, of, "before"))
    assert command([name, str(run.path)]) == 0
    assert "damaged" not in capsys.readouterr().err


def test_a_model_to_start_from_may_be_deleted_between_looking_and_reading(run):
    mesh = make_mesh(RunConfig().mesh)
    started = TrainedModel.open(run.path)
    delete_checkpoint(complete(run.checkpoints)[-1])
    with pytest.raises(CheckpointGone, match="was deleted while it was read"):
        started.read(jax.tree.map(lambda _: None, started.shapes))
    found, params = started.with_parameters(mesh)
    assert (started.step, found.step) == (12, 8) and params["bert"]


def test_a_run_whose_checkpoints_go_again_and_again_ends_in_a_line(run, monkeypatch):
    monkeypatch.setattr(trained_model, "saved_shapes", Mock(side_effect=CheckpointGone(run.path)))
    with pytest.raises(RunError, match="was deleted while it was read; give the same command again"):
        bert_jax.load(run.path)


@pytest.mark.parametrize("name", ["config.json", "tokenizer/vocab.txt"])
def test_a_file_of_the_run_changed_by_hand_is_said_and_not_used(run, tiny_config, name, capsys):
    pieces = TrainedModel.open(run.path).tokenizer.vocabulary.pieces
    (run.path / name).write_bytes((run.path / name).read_bytes().replace(b"2", b"3"))
    assert TrainedModel.open(run.path).tokenizer.vocabulary.pieces == pieces
    said = " ".join(capsys.readouterr().err.split())
    assert f"{name} is not as it was written; the copy in 00000012 is used" in said
    for arguments in (["evaluate"], ["inspect"]):
        assert command([*arguments, str(run.path)]) == 1
        assert f"{name} is not as it was written; put a good copy" in " ".join(capsys.readouterr().err.split())


def test_a_run_without_checkpoints_is_no_checkpoint(run):
    shutil.rmtree(run.checkpoints)
    with pytest.raises(UsageError, match="is a run without its checkpoints: .*/00000012 isn't there; give a copy"):
        TrainedModel.open(run.path)
    run.manifest.forget(run.checkpoints)
    with pytest.raises(UsageError, match="holds no finished checkpoint"):
        TrainedModel.open(run.path)


def test_the_folder_of_a_suite_is_refused_with_its_runs(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "suite/runs/small/sst2-0")
    shutil.copytree(run.path, tmp_path / "suite/runs/large")
    with pytest.raises(UsageError, match="there are the runs 'runs/large', 'runs/small/sst2-0' in it"):
        TrainedModel.open(tmp_path / "suite")


def test_a_checkpoint_that_would_take_far_more_memory_than_it_has_bytes_is_refused(run, monkeypatch):
    monkeypatch.setattr(trained_model, "_MOST_COMPRESSED", 0.01)
    with pytest.raises(RunError, match="its parameters would take .* of memory, more than 0.01 times as many"):
        TrainedModel.open(run.path)


def test_an_array_whose_chunks_are_larger_than_it_is_refused(run, monkeypatch):
    """A chunk of 131 kB took 4 GB."""
    checkpoint = complete(run.checkpoints)[-1]
    store = tensorstore.KvStore.open({"driver": "ocdbt", "base": f"file://{checkpoint}/"}).result()
    name = "params.bert.embeddings.norm.bias/.zarray"
    array = json.loads(store[name]) | {"chunks": [1 << 30]}
    store[name] = json.dumps(array).encode()
    kept = checkpoint_manifest.Manifest.at(checkpoint)
    checkpoint_manifest.Manifest.of(checkpoint, kept.step, kept.evaluation, None).seal(checkpoint)
    monkeypatch.setattr(ocp.Checkpointer, "restore", None)
    with pytest.raises(RunError, match=r"norm.bias/.zarray' says chunks of \[1073741824\] for a shape of \[32\]"):
        bert_jax.load(run.path)


@pytest.fixture
def scored(run):
    """Checkpoints of steps 4, 8 and 12 with scores, of which that of 4 is the best and that of 8 the next."""
    four = shutil.copytree(run.checkpoints / "00000008", run.checkpoints / "00000004")
    Manifest.at(four).model_copy(update={"step": 4}).seal(four)
    for step, score in ((4, 0.9), (8, 0.8), (12, 0.7)):
        write_evaluation(run.checkpoints / f"{step:08d}", {"score": score})
    return run


@pytest.mark.parametrize("damaged", ["config.json", "manifest.json"])
def test_after_a_damaged_best_checkpoint_the_next_best_is_used_and_said(scored, damaged, capsys):
    best = scored.checkpoints / "00000004"
    assert TrainedModel.open(scored.path).step == 4
    (best / damaged).write_text("{")
    assert TrainedModel.open(scored.path).step == 8
    assert f"{best} is damaged ({damaged} is not as it was written)" in capsys.readouterr().err.replace("\n", "")
    (scored.checkpoints / "00000008" / "manifest.json").unlink()
    assert TrainedModel.open(scored.path).step == 12
    said = " ".join(capsys.readouterr().err.split())
    assert f"00000008 was finished and its manifest.json is gone; {scored.checkpoints}/00000012 is used" in said


def test_a_copy_of_the_best_checkpoint_under_another_step_hides_nothing(scored):
    shutil.copytree(scored.checkpoints / "00000004", scored.checkpoints / "00000002")
    assert TrainedModel.open(scored.path).step == 4
    assert checkpoint_choice.best_of(complete(scored.checkpoints)).name == "00000004"


def test_results_of_a_checkpoint_that_is_damaged_by_now_are_measured_anew(scored, capsys):
    scored.write_results(Results(steps=12, best_step=4))
    assert scored.results(12)
    (scored.checkpoints / "00000004" / "config.json").write_text("{}")
    assert scored.results(12) is None
    said = " ".join(capsys.readouterr().err.split())
    assert "is about step 4, whose checkpoint is damaged (config.json is not as it was written)" in said


@pytest.mark.parametrize(
    "results, wanted, read",
    [
        (Results(steps=8), 12, []),
        (Results(steps=12, best_step=4), 16, []),
        (Results(steps=12, best_step=12), 12, [12]),
        (Results(steps=12, best_step=4), 12, [12, 4]),
    ],
)
def test_to_see_if_a_run_is_finished_no_checkpoint_is_read_twice_or_in_vain(scored, monkeypatch, results, wanted, read):
    scored.write_results(results)
    looked, steps = run_directory.checkpoint_damage, []
    monkeypatch.setattr(run_directory, "checkpoint_damage", lambda path: steps.append(int(path.name)) or looked(path))
    assert scored.results(wanted) == (results if read else None) and steps == read


@pytest.mark.parametrize("change, listed", [("seed", True), ("tokenizer", False)])
@pytest.mark.long(first=1)
def test_a_checkpoint_of_another_run_is_not_used(run, tiny_config, tmp_path, change, listed, capsys):
    other = shutil.copytree(run.path, tmp_path / "other")
    newest = other / "checkpoints" / "00000012"
    if change == "seed":
        write_config(newest / "config.json", tiny_config.replace(seed=1))
    else:
        pieces = (newest / "tokenizer" / "vocab.txt").read_text().splitlines()
        (newest / "tokenizer" / "vocab.txt").write_text("\n".join([*pieces[:-2], pieces[-1], pieces[-2]]))
    before = Manifest.at(run.checkpoints / "00000012")
    (newest / "manifest.json").unlink()
    Manifest.of(newest, 12, None, None).model_copy(update={"bits": before.bits}).seal(newest)
    run.manifest.forget(run.checkpoints / "00000012")
    shutil.rmtree(run.checkpoints / "00000012")
    placed = shutil.copytree(newest, run.checkpoints / "00000012")
    if listed:
        run.manifest.note(placed / "manifest.json")
    reason = f"it is of another run, {'in which seed is 1 and not 0' if change == 'seed' else 'which has another'}"
    with pytest.raises(RunError, match=reason):
        TrainedModel.open(run.path)
    (run.path / "results.json").unlink()
    assert pretrain(tiny_config, run).steps == 12
    said = " ".join(capsys.readouterr().err.split())
    assert reason in said and "going on from step 8" in said
