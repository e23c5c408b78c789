"""Damaged and hostile files of a run, each of them read as a command reads it: the end is one line, or a good read."""

import shutil

import jax
import numpy as np
import pytest
from damages import attack
from small_states import shapes_of, state_at

from bert_jax.config.run import RunConfig
from bert_jax.pretraining.vocabulary import _is_current
from bert_jax.run.checkpoint import Checkpoints
from bert_jax.run.checkpoint_choice import chosen_checkpoint
from bert_jax.run.checkpoint_manifest import Manifest, checkpoint_damage, complete
from bert_jax.run.metrics import MetricsLog, read_metrics
from bert_jax.run.results import Results
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles
from bert_jax.run.saved_state import load_parameters, saved_shapes
from bert_jax.run.verification import verify
from bert_jax.system.errors import RunError


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> RunDirectory:
    """A run of a config.json, a tokenizer's marker, measurements and one small checkpoint."""
    run = RunDirectory(tmp_path_factory.mktemp("small"))
    run.open(RunConfig())
    run.tokenizer_directory.mkdir()
    run.manifest.write_json(run.tokenizer_directory / "origin.json", {"vocabulary": {"size": 8}, "read": "0123"})
    log = MetricsLog(run.path, 0)
    for step in (2, 4):
        log.write(step, "train", {"loss": 1.5, "mfu": None})
    checkpoints = Checkpoints(run.checkpoints, (run.config_file, run.tokenizer_directory), keep=2)
    checkpoints.save(4, state_at(5, 3), {"loss": 1.5})
    checkpoints.close()
    log.close()
    run.write_results(Results(steps=4, score=0.5))
    assert checkpoints.failure is None and not any(verdict.damage for verdict in verify(run))
    return run


@pytest.fixture
def count(slow) -> int:
    """Damaged versions of each file."""
    return 3_000 if slow else 60


CHECKPOINT = "checkpoints/00000004"
READS = {
    "config.json": lambda run: (RunFiles(run.path).config, verify(run)),
    "manifest.json": lambda run: (verify(run), RunFiles(run.path).config, checkpoint_damage(chosen(run.path))),
    f"{CHECKPOINT}/manifest.json": lambda run: (verify(run), run.results(4), chosen(run.path)),
    "results.json": lambda run: (run.results(4), verify(run)),
    "metrics.jsonl": lambda run: (read_metrics(run.metrics_file), verify(run)),
    "metrics.jsonl, training on": lambda run: MetricsLog(run.path, 4).close(),
    "tokenizer/origin.json": lambda run: (
        _is_current({"read": None}, run.tokenizer_directory / "origin.json"),
        verify(run),
    ),
}
"""How commands read each file of a run."""


def chosen(path):
    return chosen_checkpoint(RunFiles(path)).path


@pytest.mark.parametrize("name", READS)
def test_a_damaged_file_of_a_run_is_read_or_refused_in_one_line(small, count, name):
    attack(lambda: READS[name](small), small.path / name.partition(",")[0], count)


def test_a_damaged_file_that_no_manifest_of_a_run_lists_is_read_or_refused_in_one_line(small, count, tmp_path):
    file = shutil.copy(small.config_file, tmp_path / "config.json")
    attack(lambda: RunFiles(tmp_path).config, file, count)
    path = shutil.copytree(small.path / CHECKPOINT, tmp_path / "00000004")
    attack(lambda: chosen(path), path / "manifest.json", count)


def test_what_orbax_reads(small, count, capfd):
    """Whatever the manifests say: as if they had been made of the damaged files."""
    [path] = complete(small.checkpoints)
    shapes = shapes_of(state_at(5, 3))
    load_parameters(path, shapes.params)
    data = sorted(path.glob("d/*"))
    assert data
    for file in (path / "_METADATA", path / "_CHECKPOINT_METADATA", path / "_sharding", path / "manifest.ocdbt", *data):
        attack(lambda: (saved_shapes(path), load_parameters(path, shapes.params)), file, count // 2)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ["_METADATA", "manifest.ocdbt", "_sharding", "_CHECKPOINT_METADATA"])
def test_a_checkpoint_that_orbax_cannot_read_ends_a_restart_in_a_line(small, name, tmp_path):
    """It is not set aside: its files are as they were written, and so might be those of all others."""
    shutil.copytree(small.path, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    [path] = complete(run.checkpoints)
    (path / name).write_bytes(b"[" * 5_000)
    of = Manifest.of(path, 4, None, None)
    of.seal(path)
    checkpoints = Checkpoints(run.checkpoints, (), keep=2)
    with pytest.raises(RunError, match="00000004 can't be read, though its files have their checksums") as refusal:
        checkpoints.restore(shapes_of(state_at(5, 3)))
    assert "\n" not in str(refusal.value) and complete(run.checkpoints) == [path]
    checkpoints.close()


def test_stored_shapes_that_are_others_are_refused(small):
    [path] = complete(small.checkpoints)
    assert {leaf.shape for leaf in jax.tree.leaves(saved_shapes(path))} == {(20, 3), (3,)}
    checkpoints = Checkpoints(small.checkpoints, (), keep=2)
    for other in (state_at(5, 2), state_at(5, 4)):
        with pytest.raises(RunError, match="can't be read"):
            load_parameters(path, shapes_of(other).params)
        with pytest.raises(RunError, match="can't be read"):
            checkpoints.restore(shapes_of(other))
    checkpoints.close()
    loaded = load_parameters(path, shapes_of(state_at(5, 3)).params)
    assert np.array_equal(loaded["task"]["dense"]["bias"], np.full(3, 0.5, np.float32))
