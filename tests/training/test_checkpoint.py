import json
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.system.errors import RunError, UsageError
from bert_jax.training.checkpoint import Checkpoints, Manifest, checkpoint_of, complete, load_parameters
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.sharding import abstract
from bert_jax.training.step import initial_state

DEVICE = jax.sharding.SingleDeviceSharding(jax.devices()[0])


def state_at(step):
    params = {"dense": {"kernel": jnp.arange(600.0).reshape(20, 30) + step, "bias": jnp.full(3, step / 10)}}
    state = initial_state(params, make_optimizer(OptimizerConfig()), ("loss",))
    return state._replace(step=jnp.asarray(step, jnp.int32))


SHAPES = abstract(state_at(0), jax.tree.map(lambda _: DEVICE, state_at(0)))


@pytest.fixture
def carried(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "vocab.txt").write_text("[PAD]\n")
    return tmp_path / "config.json", tmp_path / "tokenizer"


@pytest.fixture
def checkpoints(tmp_path, carried):
    made = Checkpoints(tmp_path / "checkpoints", carried, keep=2)
    yield made
    made.close()


def save(checkpoints, *steps, losses=None):
    for step in steps:
        checkpoints.save(step, state_at(step), {"loss": losses[step]} if losses else None)
    checkpoints.wait()


def equal(first, second):
    return all(
        np.array_equal(one, other) for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    )


def steps_in(tmp_path):
    return [int(path.name) for path in complete(tmp_path / "checkpoints")]


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def largest_file(directory):
    return max((path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def test_the_newest_state_comes_back_bit_for_bit(checkpoints):
    assert checkpoints.restore(SHAPES) is None
    save(checkpoints, 10, 20)
    assert equal(checkpoints.restore(SHAPES), state_at(20))


def test_a_checkpoint_can_be_used_by_itself(checkpoints, tmp_path):
    save(checkpoints, 10)
    directory = tmp_path / "checkpoints" / "00000010"
    assert (directory / "config.json").read_text() == "{}" and (directory / "tokenizer" / "vocab.txt").exists()
    assert equal(load_parameters(directory, SHAPES.params), state_at(10).params)
    manifest = json.loads((directory / "manifest.json").read_text())
    on_disk = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
    assert set(manifest["files"]) == on_disk - {"manifest.json"} and manifest["step"] == 10


def test_the_newest_and_the_best_are_kept(checkpoints, tmp_path):
    save(checkpoints, 1, 2, 3, 4, 5, losses={1: 5.0, 2: 3.0, 3: 4.0, 4: 3.5, 5: 3.6})
    assert steps_in(tmp_path) == [2, 4, 5]


def test_a_damaged_checkpoint_is_reported_set_aside_and_the_one_before_used(checkpoints, tmp_path, capsys):
    save(checkpoints, 10, 20)
    flip_a_bit(largest_file(tmp_path / "checkpoints" / "00000020"))
    assert equal(checkpoints.restore(SHAPES), state_at(10))
    assert "00000020 is damaged" in capsys.readouterr().err.replace("\n", "")
    assert steps_in(tmp_path) == [10] and (tmp_path / "checkpoints" / "damaged-00000020").is_dir()
    save(checkpoints, 20)
    assert equal(checkpoints.restore(SHAPES), state_at(20))


@pytest.mark.parametrize("damage", [os.unlink, flip_a_bit, lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_a_damaged_checkpoint_is_never_used(checkpoints, tmp_path, damage, capsys):
    save(checkpoints, 10, 20)
    ten, twenty = complete(tmp_path / "checkpoints")
    assert checkpoint_of(tmp_path) == twenty
    damage(largest_file(twenty))
    with pytest.raises(RunError, match="00000020 is damaged: .* not as it was written"):
        checkpoint_of(twenty)
    assert checkpoint_of(tmp_path) == checkpoint_of(ten) == ten
    assert "00000020 is damaged" in capsys.readouterr().err.replace("\n", "")
    damage(largest_file(ten))
    with pytest.raises(RunError, match="holds damaged checkpoints only"):
        checkpoint_of(tmp_path)


def test_an_unfinished_checkpoint_is_none(checkpoints, tmp_path):
    save(checkpoints, 10, 20)
    (tmp_path / "checkpoints" / "00000020" / "manifest.json").unlink()
    assert equal(checkpoints.restore(SHAPES), state_at(10))
    with pytest.raises(UsageError, match="no finished checkpoint"):
        checkpoint_of(tmp_path / "checkpoints" / "00000020")
    save(checkpoints, 20)  # the same step again
    assert equal(checkpoints.restore(SHAPES), state_at(20))
    (tmp_path / "checkpoints" / "00000020" / "manifest.json").unlink()
    Checkpoints(tmp_path / "checkpoints", (), keep=2).close()  # as the next start does
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["00000010"]


def test_a_save_that_fails_is_reported_and_the_next_one_tried(checkpoints, tmp_path, capsys, monkeypatch):
    save(checkpoints, 10)
    with monkeypatch.context() as broken:
        broken.setattr(Manifest, "of", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        save(checkpoints, 20)
    assert "checkpoint 20 could not be written" in checkpoints.failure
    assert "No space left" in capsys.readouterr().err
    assert steps_in(tmp_path) == [10] and not (tmp_path / "checkpoints" / "00000020").exists()
    save(checkpoints, 30)
    assert checkpoints.failure is None and steps_in(tmp_path) == [10, 30]


@pytest.mark.parametrize("content", ["{", "[]", '{"step": 10}'])
def test_a_damaged_manifest_costs_no_other_checkpoint(checkpoints, tmp_path, content):
    save(checkpoints, 10, 20, losses={10: 1.0, 20: 2.0})
    (tmp_path / "checkpoints" / "00000010" / "manifest.json").write_text(content)
    save(checkpoints, 30, losses={30: 3.0})
    assert checkpoints.failure is None and 30 in steps_in(tmp_path)
    (tmp_path / "checkpoints" / "00000030" / "manifest.json").write_text(content)
    assert equal(checkpoints.restore(SHAPES), state_at(20))


def test_a_copy_made_by_hand_is_no_checkpoint(checkpoints, tmp_path):
    save(checkpoints, 10)
    shutil.copytree(tmp_path / "checkpoints" / "00000010", tmp_path / "checkpoints" / "00000010.bak")
    assert steps_in(tmp_path) == [10]
