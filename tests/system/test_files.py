import os

import pytest

from bert_jax.system.files import (
    FileSum,
    check_written,
    open_lock,
    remove_temporary,
    replacing,
    temporary_path,
    write_json,
    write_text,
)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    write_json(path, {"ü": 1})
    assert path.read_text(encoding="utf-8") == '{\n  "ü": 1\n}\n'
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError):
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_sums_see_a_flipped_bit(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bytes(5_000_000))
    before = FileSum.of(path)
    data = bytearray(path.read_bytes())
    data[4_900_000] ^= 1
    path.write_bytes(data)
    assert FileSum.of(path).size == before.size == 5_000_000
    assert FileSum.of(path).crc32 != before.crc32


def test_a_link_under_a_temporary_name_is_not_followed(tmp_path):
    victim, name = tmp_path / "victim", tmp_path / "config.json"
    victim.write_text("mine")
    (tmp_path / ".config.json.tmp").symlink_to(victim)
    write_text(name, "new")
    check_written(name, "input")
    assert victim.read_text() == "mine" and name.read_text() == "new"


def test_a_lock_is_not_opened_through_a_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "link").symlink_to(victim)
    with pytest.raises(OSError):
        open_lock(tmp_path / "link")
    assert victim.read_text() == "mine"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError):  # and doesn't wait for a reader
        open_lock(tmp_path / "pipe")


def test_what_killed_writers_left_is_deleted(tmp_path):
    left = temporary_path(tmp_path / "config.json")
    left.write_text("half")
    (tmp_path / ".mine.tmp").write_text("kept")
    remove_temporary(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".mine.tmp"]
