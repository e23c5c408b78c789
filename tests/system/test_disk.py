import contextlib
import errno
import os
import subprocess
from unittest.mock import Mock

import pytest
from conftest import command

from bert_jax.cli.main import run
from bert_jax.system.errors import RunError, disk_explained, disk_failure, failure_reason
from bert_jax.system.files import write_text

REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "quota",
    errno.EFBIG: "ulimit -f",
    errno.EROFS: "for writing",
    errno.EPERM: "lsattr",
    errno.EACCES: "permission",
    errno.EIO: "dmesg",
    errno.ENAMETOOLONG: "shorter path",
    errno.EMFILE: "ulimit -n",
    errno.ESTALE: "available again",
    errno.ENOENT: "deleted or moved",
}


@pytest.mark.parametrize("number", REMEDIES)
@pytest.mark.parametrize("kind", [OSError, lambda number, words: RuntimeError(f"UNKNOWN: {words} [OS error {number}]")])
def test_what_a_disk_does_is_one_line_with_its_remedy(tmp_path, number, kind):
    with pytest.raises(RunError) as raised:
        with disk_explained(tmp_path / "a.txt"):
            raise kind(number, os.strerror(number))
    line = str(raised.value)
    assert str(tmp_path / "a.txt") in line and os.strerror(number) in line and REMEDIES[number] in line
    assert line.endswith("and give the same command again") and "\n" not in line


@pytest.mark.parametrize("error", [ValueError("no number"), OSError("no errno"), OSError(errno.EINVAL, "odd")])
def test_other_errors_stay_what_they_are(tmp_path, error):
    with pytest.raises(type(error)) as raised:
        with disk_explained(tmp_path):
            raise error
    assert raised.value is error and disk_failure(error) is None


def test_a_reason_is_the_systems_words_or_the_first_line():
    assert failure_reason(RuntimeError("a story: No space left on device [in a.cc:12]")) == "No space left on device"
    assert failure_reason(ValueError("one\ntwo")) == "one" and failure_reason(ValueError()) == "ValueError"


def test_a_disk_is_no_traceback_wherever_it_fails(monkeypatch, capsys):
    error = OSError(errno.EROFS, os.strerror(errno.EROFS), "/mnt/a.txt")
    monkeypatch.setattr("bert_jax.cli.params.Params.execute", Mock(side_effect=error))
    assert run(["params", "demo"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("bert-jax: /mnt/a.txt can't be read or written (Read-only file system); mount that file")
    assert said.count("\n") == 1


@contextlib.contextmanager
def immutable(folder):
    """In the folder nothing can be made, changed or deleted: by root neither."""
    if subprocess.run(["chattr", "+i", folder], stderr=-3).returncode:
        pytest.skip("only root may do that, on some file systems")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", folder], check=True)


def test_an_immutable_folder_is_one_line(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    with (
        immutable(tmp_path),
        pytest.raises(RunError, match=r"a.txt can't be written .Operation not permitted.; lift what forbids it"),
    ):
        write_text(tmp_path / "a.txt", "new")


@contextlib.contextmanager
def read_only(folder):
    """The folder is one of a read-only file system."""
    if subprocess.run(["mount", "--bind", folder, folder], stderr=-3).returncode:
        pytest.skip("only root may mount")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_data_that_cannot_be_prepared_there_is_one_line(config_file, tmp_path):
    """By worker processes, whose errors come with tracebacks of their own."""
    folder = tmp_path / "run" / "data" / "length-32" / "chunks"
    folder.mkdir(parents=True)
    with read_only(folder):
        process = command("prepare", config_file, "--workdir", tmp_path / "run", "--preparation.processes", 2)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert "Traceback" not in said and said.splitlines()[-1].startswith(f"bert-jax: {folder}/00000"), said
