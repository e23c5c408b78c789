import contextlib
import json
import os
import threading
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from damages import flip_a_bit
from small_states import equal, save, shapes_of, state_at, steps_in

from bert_jax.run import checkpoint
from bert_jax.run.checkpoint import Checkpoints
from bert_jax.run.checkpoint_choice import chosen_checkpoint
from bert_jax.run.checkpoint_manifest import Manifest, checkpoint_damage, complete
from bert_jax.run.measurement import Mean
from bert_jax.run.run_files import RunFiles
from bert_jax.run.run_manifest import RunManifest
from bert_jax.run.saved_state import load_parameters
from bert_jax.system import sealed
from bert_jax.system.errors import RunError, UsageError

SHAPES = shapes_of(state_at(0))


def largest_file(directory):
    return max((path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def test_the_newest_state_comes_back_bit_for_bit_and_a_checkpoint_can_be_used_by_itself(checkpoints, tmp_path):
    assert checkpoints.restore(SHAPES) is None
    save(checkpoints, 10, 20)
    assert equal(checkpoints.restore(SHAPES), state_at(20))
    directory = tmp_path / "checkpoints" / "00000010"
    assert (directory / "config.json").read_text() == "{}" and (directory / "tokenizer" / "vocab.txt").exists()
    assert equal(load_parameters(directory, SHAPES.params), state_at(10).params)
    manifest = json.loads((directory / "manifest.json").read_text())
    on_disk = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
    assert set(manifest["files"]) == on_disk - {"manifest.json"} and manifest["step"] == 10


def test_the_newest_and_the_best_are_kept(checkpoints, tmp_path):
    save(checkpoints, 1, 2, 3, 4, 5, losses={1: 5.0, 2: 3.0, 3: 4.0, 4: 3.5, 5: 3.6})
    assert steps_in(tmp_path) == [2, 4, 5]


def test_those_that_are_kept_for_good_are_never_deleted(tmp_path, carried):
    """Not by a process either that is not told to keep them."""
    for kept, steps in (({4, 8, 12}, range(2, 14, 2)), (set(), range(14, 20, 2))):
        made = Checkpoints(tmp_path / "checkpoints", carried, keep=2, is_kept=kept.__contains__)
        save(made, *steps)
        made.close()
    assert steps_in(tmp_path) == [4, 8, 12, 16, 18]


def test_a_mark_may_be_set_and_removed_by_hand(tmp_path, carried):
    with contextlib.closing(Checkpoints(tmp_path / "checkpoints", carried, keep=2, is_kept={4}.__contains__)) as made:
        save(made, 4, 6)
        four, six = complete(tmp_path / "checkpoints")
        (four / "kept_for_good").unlink()
        (six / "kept_for_good").touch()
        assert checkpoint_damage(four) is checkpoint_damage(six) is None
        save(made, 8, 10)
    assert steps_in(tmp_path) == [6, 8, 10]


@pytest.mark.parametrize("damage", [os.unlink, flip_a_bit, lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_a_damaged_checkpoint_is_never_used(checkpoints, tmp_path, damage, capsys):
    save(checkpoints, 10, 20)
    ten, twenty = complete(tmp_path / "checkpoints")
    assert chosen_checkpoint(RunFiles(tmp_path)).path == twenty
    damage(largest_file(twenty))
    with pytest.raises(RunError, match="00000020 is damaged: .* not as it was written"):
        chosen_checkpoint(RunFiles(twenty))
    assert chosen_checkpoint(RunFiles(tmp_path)).path == chosen_checkpoint(RunFiles(ten)).path == ten
    assert "00000020 is damaged" in capsys.readouterr().err.replace("\n", "")
    damage(largest_file(ten))
    with pytest.raises(RunError, match="holds damaged checkpoints only"):
        chosen_checkpoint(RunFiles(tmp_path))


def test_an_unfinished_checkpoint_is_none(checkpoints, tmp_path):
    save(checkpoints, 10, 20)
    (tmp_path / "checkpoints" / "00000020" / "manifest.json").unlink()
    assert equal(checkpoints.restore(SHAPES), state_at(10))
    with pytest.raises(UsageError, match="no finished checkpoint"):
        chosen_checkpoint(RunFiles(tmp_path / "checkpoints" / "00000020"))
    save(checkpoints, 20)  # the same step again
    assert equal(checkpoints.restore(SHAPES), state_at(20))
    RunManifest(tmp_path).forget(tmp_path / "checkpoints" / "00000020")  # a deletion that was killed half-way
    (tmp_path / "checkpoints" / "00000020" / "manifest.json").unlink()
    Checkpoints(tmp_path / "checkpoints", (), keep=2).close()  # as the next start does
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["00000010"]


def test_a_save_that_succeeds_makes_up_for_one_that_failed_on_every_host(checkpoints, monkeypatch):
    """Not on the first alone: at the end of the run the others would fail for a checkpoint of long ago."""
    save(checkpoints, 10)
    monkeypatch.setattr(checkpoint, "is_first", lambda: False)
    with monkeypatch.context() as broken:
        broken.setattr(checkpoints._checkpointer, "wait_until_finished", Mock(side_effect=OSError("lost contact")))
        save(checkpoints, 20)
    assert "checkpoint 20 could not be written" in checkpoints.failure
    save(checkpoints, 30)
    assert checkpoints.failure is None


@pytest.mark.parametrize("what", ["a write that succeeds", "a write that fails"])
def test_a_process_that_lost_its_run_completes_and_deletes_nothing_more(tmp_path, carried, capsys, monkeypatch, what):
    """The process that took the run over writes in the same directory, which is in a bucket."""
    lost = []

    def check_owner():
        if lost:
            raise RunError("the run was taken over by another process")

    made = Checkpoints(tmp_path / "checkpoints", carried, keep=2, check_owner=check_owner)
    save(made, 10, 20)
    finished = made._checkpointer.wait_until_finished

    def lose_the_run():
        finished()
        if threading.current_thread() is threading.main_thread():  # the writer waits for the save before it, too
            return
        lost.append(True)
        (tmp_path / "checkpoints" / "00000040.orbax-checkpoint-tmp").mkdir()
        if what == "a write that fails":
            raise OSError("lost contact")

    monkeypatch.setattr(made._checkpointer, "wait_until_finished", lose_the_run)
    save(made, 30)
    made.close()
    assert steps_in(tmp_path) == [10, 20] and made.newest == 20
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["00000010", "00000020", "00000030", "00000040.orbax-checkpoint-tmp"]
    assert "was taken over by another process" in made.failure
    assert "the next one is tried" not in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{", "[]", '{"step": 10}'])
def test_a_damaged_manifest_costs_no_other_checkpoint(checkpoints, tmp_path, content):
    save(checkpoints, 10, 20, losses={10: 1.0, 20: 2.0})
    (tmp_path / "checkpoints" / "00000010" / "manifest.json").write_text(content)
    save(checkpoints, 30, losses={30: 3.0})
    assert checkpoints.failure is None and 30 in steps_in(tmp_path)
    (tmp_path / "checkpoints" / "00000030" / "manifest.json").write_text(content)
    assert equal(checkpoints.restore(SHAPES), state_at(20))


def test_a_state_that_is_not_finite_or_written_wrong_is_no_checkpoint(checkpoints, tmp_path, capsys, monkeypatch):
    save(checkpoints, 10, 20)
    state, of = state_at(30), Manifest.of
    checkpoints.save(30, state._replace(params=jax.tree.map(lambda x: x / 0, state.params)), None)
    checkpoints.wait()
    assert "its numbers are not finite" in checkpoints.failure and steps_in(tmp_path) == [10, 20]

    def after_a_flip(directory, *given):  # its checksums are those of the wrong bytes
        flip_a_bit(largest_file(directory))
        return of(directory, *given)

    with monkeypatch.context() as bad_disk:
        bad_disk.setattr(Manifest, "of", after_a_flip)
        save(checkpoints, 30)
    assert "checkpoint 30 could not be written" in checkpoints.failure and "WARNING" in capsys.readouterr().err
    assert steps_in(tmp_path) == [10, 20]
    save(checkpoints, 40)
    assert checkpoints.failure is None and steps_in(tmp_path) == [20, 40]


def test_numbers_that_changed_on_the_way_are_not_trained_on(checkpoints, tmp_path, capsys):
    save(checkpoints, 10, 20)
    path = tmp_path / "checkpoints" / "00000020"
    written = Manifest.at(path)
    written.model_copy(update={"bits": written.bits ^ 1}).seal(path)
    assert equal(checkpoints.restore(SHAPES), state_at(10))
    assert "gave other numbers than were saved" in capsys.readouterr().err.replace("\n", " ")
    assert steps_in(tmp_path) == [10] and (tmp_path / "checkpoints" / "damaged-00000020").is_dir()
    save(checkpoints, 20)
    assert equal(checkpoints.restore(SHAPES), state_at(20))


def test_two_that_were_verified_stay_whatever_happens_to_the_newest(checkpoints, tmp_path, capsys):
    save(checkpoints, 10, 20)
    flip_a_bit(largest_file(tmp_path / "checkpoints" / "00000020"))
    save(checkpoints, 30)
    assert steps_in(tmp_path) == [10, 30]
    assert "00000020 is damaged" in capsys.readouterr().err.replace("\n", "")
    save(checkpoints, 40)
    assert steps_in(tmp_path) == [30, 40]


def test_the_last_before_a_row_of_skipped_steps_stays(checkpoints, tmp_path):
    save(checkpoints, 10, 20)
    for step in (30, 40, 50):
        checkpoints.save(step, state_at(step)._replace(skipped_in_a_row=jnp.asarray(step - 25, jnp.int32)), None)
    checkpoints.wait()
    assert steps_in(tmp_path) == [20, 40, 50]
    assert checkpoints.last_good() == tmp_path / "checkpoints" / "00000020"
    save(checkpoints, 60)
    assert steps_in(tmp_path) == [50, 60] and checkpoints.last_good().name == "00000060"
    flip_a_bit(largest_file(tmp_path / "checkpoints" / "00000060"))
    assert checkpoints.last_good() is None  # 50 was saved after skipped steps


def test_no_process_ends_before_the_last_one_is_whole(checkpoints, tmp_path, monkeypatch):
    """JAX would end the first, which completes it, soon after another has ended."""
    whole = []
    monkeypatch.setattr(checkpoint, "wait_for_all", lambda name: whole.append(steps_in(tmp_path)))
    checkpoints.save(10, state_at(10), None)
    checkpoints.finish()
    assert whole == [[10]]


def test_an_old_one_that_cannot_be_looked_at_is_left_and_said(checkpoints, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(checkpoint, "best_of", Mock(side_effect=RuntimeError("HTTP 503")))  # gcsfs' are no OSErrors
    save(checkpoints, 10, 20, 30)
    assert checkpoints.failure is None and steps_in(tmp_path) == [10, 20, 30]
    assert "could not be deleted: HTTP 503" in capsys.readouterr().err.replace("\n", " ")


def test_nothing_is_saved_into_a_run_that_is_another_process_by_now(tmp_path, carried):
    def taken_over():
        raise RunError("taken over")

    checkpoints = Checkpoints(tmp_path / "checkpoints", carried, 2, taken_over)
    with pytest.raises(RunError, match="taken over"):
        checkpoints.save(10, state_at(10), None)
    checkpoints.close()
    assert not (tmp_path / "checkpoints").exists()


def test_measurements_are_not_in_the_state_and_another_one_makes_no_run_unresumable(checkpoints, tmp_path):
    state = state_at(10)
    window = {"loss": Mean(jnp.float32(1.1), jnp.float32(3)), "poisoned": Mean(jnp.float32(np.nan), jnp.float32(1))}
    checkpoints.save(10, state._replace(window=window), None)
    checkpoints.wait()
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        saved = checkpointer.metadata(tmp_path / "checkpoints" / "00000010").item_metadata.tree
    assert set(saved["training"]) == {"step", "optimizer", "skipped", "skipped_in_a_row", "seed"}
    scalar = SHAPES.window["loss"]
    later = SHAPES._replace(window={"another": scalar, "loss": scalar})
    restored = checkpoints.restore(later)
    assert equal(restored._replace(window=state.window), state)
    assert equal(restored.window, {"another": Mean.zero(), "loss": window["loss"]})


@pytest.mark.parametrize("whose", ["a checkpoint", "the run"])
def test_what_another_release_wrote_is_left_as_it_is(checkpoints, tmp_path, whose):
    save(checkpoints, 10)
    path = tmp_path / ("checkpoints/00000010/manifest.json" if whose == "a checkpoint" else "manifest.json")
    value = json.loads(path.read_text()) | {"format": 7}
    del value["sum"]
    text = json.dumps(value | {"sum": sealed._checksum(value)})
    path.write_text(text)
    with pytest.raises(UsageError, match="has format 7 and this release of bert_jax reads format 1; use the release"):
        checkpoints.restore(SHAPES)
    with pytest.raises(UsageError, match="use the release that wrote it"):
        chosen_checkpoint(RunFiles(tmp_path))
    assert path.read_text() == text and steps_in(tmp_path) == [10]
