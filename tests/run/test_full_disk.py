"""A disk that takes nothing costs the checkpoints of that time, and no training."""

import contextlib
import errno
import os
import resource
import subprocess

import pytest
from small_states import equal, save, shapes_of, state_at, steps_in

from bert_jax.run.checkpoint import Checkpoints
from bert_jax.system import files

SHAPES = shapes_of(state_at(0))


@contextlib.contextmanager
def file_limit(directory):
    """No file of this process grows beyond 1 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def full_disk(directory):
    """Nothing more goes on the disk of `directory`."""
    ballast = directory / "ballast"
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        ballast.unlink()


@contextlib.contextmanager
def read_only(directory):
    """The disk of `directory` has become read-only."""
    subprocess.run(["mount", "-o", "remount,ro", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", directory], check=True)


@contextlib.contextmanager
def input_output_errors(directory):
    """What was written can't be brought to the disk."""
    fsync = files.os.fsync
    files.os.fsync = lambda _: (_ for _ in ()).throw(OSError(errno.EIO, os.strerror(errno.EIO)))
    try:
        yield
    finally:
        files.os.fsync = fsync


@pytest.fixture
def disk(tmp_path):
    """A disk of its own, 1 MB small."""
    (tmp_path / "disk").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path / "disk"], stderr=-3).returncode:
        pytest.skip("only root may mount a disk")
    yield tmp_path / "disk"
    subprocess.run(["umount", tmp_path / "disk"], check=True)


def survives(fault, directory, carried, capsys):
    checkpoints = Checkpoints(directory / "checkpoints", carried, keep=2)
    save(checkpoints, 10, 20)
    with fault(directory):
        save(checkpoints, 30)
        save(checkpoints, 40)
        failure = checkpoints.failure
    assert "checkpoint 40 could not be written" in failure
    assert capsys.readouterr().err.count("WARNING") == 2
    assert steps_in(directory) == [10, 20] and equal(checkpoints.restore(SHAPES), state_at(20))
    save(checkpoints, 50)
    assert checkpoints.failure is None and steps_in(directory) == [20, 50]
    assert sorted(path.name for path in (directory / "checkpoints").iterdir()) == ["00000020", "00000050"]
    assert equal(checkpoints.restore(SHAPES), state_at(50))
    checkpoints.close()


@pytest.mark.parametrize("fault", [file_limit, input_output_errors])
def test_a_disk_that_takes_nothing_ends_no_training(fault, tmp_path, carried, capsys):
    survives(fault, tmp_path, carried, capsys)


@pytest.mark.parametrize("then", [lambda checkpoints: save(checkpoints, 30), Checkpoints.close])
def test_what_a_failed_save_writes_late_does_not_stay(checkpoints, tmp_path, then, capsys):
    """The writer's threads may go on after it has raised, with directories that they make anew."""
    save(checkpoints, 10)
    with file_limit(tmp_path):
        save(checkpoints, 20)
    for name in ("00000020.orbax-checkpoint-tmp", "00000020"):
        late = tmp_path / "checkpoints" / name / "d" / "late"
        late.parent.mkdir(parents=True)
        late.write_text("late")
    then(checkpoints)
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert names - {"00000030"} == {"00000010"} and set(map(int, names)) == set(steps_in(tmp_path))


@pytest.mark.parametrize("fault", [full_disk, read_only])
def test_a_disk_that_takes_nothing_more_ends_no_training(fault, disk, carried, capsys):
    survives(fault, disk, carried, capsys)
