import os
import shutil
from pathlib import Path

import pytest

from bert_jax.run.checkpoint_choice import best_of
from bert_jax.run.checkpoint_manifest import checkpoint_damage, complete, incomplete, is_sound, make_complete


@pytest.fixture
def checkpoint(tmp_path):
    """A finished one, of one file."""
    path = tmp_path / "checkpoints" / "00000010"
    path.mkdir(parents=True)
    (path / "numbers").write_bytes(bytes(100))
    make_complete(path, (), 10, {"loss": 1.0}, None)
    return path


def forbidden(*_, **__):
    raise PermissionError("permission denied")


def test_a_checkpoint_and_its_name_are_on_disk_before_its_manifest(tmp_path, monkeypatch):
    path = tmp_path / "00000010"
    (path / "params").mkdir(parents=True)
    (path / "params" / "numbers").write_bytes(bytes(100))
    synced, fsync = [], os.fsync

    def recorded(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, (path / "manifest.json").exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    make_complete(path, (), 10, None, None)
    before = {number for number, sealed in synced if not sealed}
    assert {each.stat().st_ino for each in (tmp_path, path, path / "params", path / "params" / "numbers")} <= before


def test_what_was_begun_and_not_finished_is_told_apart(checkpoint):
    begun = checkpoint.with_name("00000020")
    shutil.copytree(checkpoint, begun, ignore=shutil.ignore_patterns("manifest.json"))
    shutil.copytree(checkpoint, checkpoint.with_name("00000010.bak"))  # by hand
    assert complete(checkpoint.parent) == [checkpoint] and incomplete(checkpoint.parent) == {begun}


def test_what_cannot_be_looked_at_is_not_taken_for_unfinished(checkpoint, monkeypatch):
    """It would be deleted."""
    stat = Path.stat
    seen = lambda path, **given: (forbidden if path.name == "manifest.json" else stat)(path, **given)
    monkeypatch.setattr(Path, "stat", seen)
    with pytest.raises(PermissionError):
        incomplete(checkpoint.parent)


def test_a_manifest_that_a_disk_cannot_read_is_damage(checkpoint):
    (checkpoint / "manifest.json").unlink()
    (checkpoint / "manifest.json").mkdir()  # any OSError
    assert complete(checkpoint.parent) == [checkpoint]
    assert checkpoint_damage(checkpoint) == "manifest.json is not as it was written"
    for judged in (lambda: best_of([checkpoint]), lambda: is_sound(checkpoint)):  # by which others are deleted
        with pytest.raises(OSError):
            judged()
