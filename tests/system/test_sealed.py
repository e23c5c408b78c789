import errno
import json
import os

import pytest
from damages import attack

from bert_jax.system import sealed
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.files import FileSum
from bert_jax.system.sealed import Sealed, file_damage, first_damaged


class Record(Sealed):
    """A record with one field of its own."""

    step: int


@pytest.fixture
def directory(tmp_path):
    """A directory of two files, and the record that seals it."""
    for name in ("numbers", "words"):
        (tmp_path / name).write_bytes(name.encode() * 20)
    Record(files={name: FileSum.of(tmp_path / name) for name in ("numbers", "words")}, step=10).write(tmp_path / "seal")
    return tmp_path


def rewritten(path, **fields):
    """Gives the record other fields and the checksum that belongs to them."""
    value = json.loads(path.read_text()) | fields
    del value["sum"]
    path.write_text(json.dumps(value | {"sum": sealed._checksum(value)}))


def test_a_record_comes_back_with_its_files(directory):
    found = Record.read(directory / "seal")
    assert found.step == 10 and found.files["words"] == FileSum.of(directory / "words")
    assert first_damaged(directory, found.files) is None


@pytest.mark.parametrize(
    "damage, reason, reason_by_size",
    [
        (lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]), "its checksum is another", None),
        (lambda path: path.write_bytes(b"x"), "its size is 1 and should be 100 bytes", "its size is 1"),
        (lambda path: path.unlink(), "it is gone", "its size is 0"),
        (lambda path: (path.unlink(), path.mkdir()), os.strerror(errno.EISDIR), "its size is 0"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "not a regular file", "its size is 0"),
    ],
)
def test_a_changed_file_is_found(directory, damage, reason, reason_by_size):
    files = Record.read(directory / "seal").files
    damage(directory / "words")
    assert first_damaged(directory, files) == "words"
    assert file_damage(directory / "words", files["words"]).startswith(reason)
    by_size = file_damage(directory / "words", files["words"], contents=False)
    assert by_size is None if reason_by_size is None else by_size.startswith(reason_by_size)


def test_a_file_that_a_disk_cannot_read_is_damaged_and_a_bucket_out_of_reach_is_not(directory, monkeypatch):
    files = Record.read(directory / "seal").files

    def unreadable(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(FileSum, "of", unreadable)
    assert first_damaged(directory, files) == "numbers"
    monkeypatch.setattr(sealed, "in_bucket", lambda path: True)
    with pytest.raises(RunError, match="numbers can't be read now .*; give the same command again"):
        first_damaged(directory, files)


def test_another_digit_in_a_record_is_damage(directory):
    path, content = directory / "seal", (directory / "seal").read_text()
    for place, character in enumerate(content):
        if character.isdigit():
            path.write_text(content[:place] + str((int(character) + 1) % 10) + content[place + 1 :])
            with pytest.raises(ValueError, match="its checksum is missing or another"):
                Record.read(path)
    path.write_text(content[:-1])
    with pytest.raises(ValueError, match="not the spaces between them"):
        Record.read(path)


def test_a_record_of_another_release_is_refused(directory):
    rewritten(directory / "seal", format=2, step="of another shape")
    with pytest.raises(UsageError, match="seal has format 2 and this release of bert_jax reads format 1; use the rele"):
        Record.read(directory / "seal")


@pytest.mark.parametrize("version", [0, -1, "3", 2.0, True, None, [3]])
def test_a_record_without_a_version_is_damaged(directory, version):
    rewritten(directory / "seal", format=version)
    with pytest.raises(ValueError, match="its format is .* and should be a number from 1"):
        Record.read(directory / "seal")


@pytest.mark.parametrize("name", ["/dev/zero", "../other/config.json", "a\0b"])
def test_a_record_of_files_outside_its_directory_is_damaged(directory, name):
    rewritten(directory / "seal", files={name: [1, 1]})
    with pytest.raises(ValueError, match="which is outside its directory"):
        Record.read(directory / "seal")


def test_any_damage_to_a_record_is_a_value_error(directory, slow):
    def read():
        try:
            assert Record.read(directory / "seal").step == 10
        except ValueError as error:
            raise RunError(str(error)) from None

    attack(read, directory / "seal", count=3_000 if slow else 100)
