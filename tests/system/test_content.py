"""Contents decide whether something is still the same, whatever names, sizes and times say."""

import os
import time
from pathlib import Path

import pytest
from damages import flip_a_bit

from bert_jax.system import content
from bert_jax.system.content import content_hash, settings_hash
from bert_jax.system.errors import UsageError


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Every file is a large one, and known ones are kept in a folder of the test; the list of files that were read."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(content, "_READ_ALWAYS_BYTES", 0)
    monkeypatch.setattr(content, "_SETTLED_NS", 0)
    read, digest = [], content._digest
    monkeypatch.setattr(content, "_digest", lambda path: read.append(path.name) or digest(path))
    return read


def keeping_times(change, path: Path) -> None:
    """Changes a file, and sets its times back."""
    before = path.stat()
    time.sleep(0.02)  # the clock of a file system counts in steps of some milliseconds
    change(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.mark.parametrize("file", ["one.txt", "folder/deep/three.txt"])
def test_one_byte_in_the_middle_of_any_file_is_another_content(tmp_path, opened, file):
    folder = tmp_path / "text"
    (folder / "folder" / "deep").mkdir(parents=True)
    for name in ("one.txt", "folder/two.txt", "folder/deep/three.txt"):
        (folder / name).write_bytes(os.urandom(100_000))
    before = content_hash(folder)
    opened.clear()
    assert content_hash(folder) == before and not opened  # known
    keeping_times(flip_a_bit, folder / file)
    assert content_hash(folder) != before and len(opened) == 3
    assert content_hash(folder / "folder") != content_hash(folder)


def test_a_file_written_again_renamed_or_gone(tmp_path, opened):
    path = tmp_path / "a.txt"
    path.write_text("the same")
    before = content_hash(path)
    path.write_text("the same")
    os.utime(path, (1, 1))
    assert content_hash(path) == before and len(opened) == 2
    other = path.rename(tmp_path / "b.txt")
    assert content_hash(other) != before
    assert content_hash(path) == content_hash(tmp_path / "absent") == content_hash(tmp_path / "absent" / "too")


def test_what_changed_a_moment_ago_is_read_again(tmp_path, opened, monkeypatch):
    monkeypatch.setattr(content, "_SETTLED_NS", 3_000_000_000)  # its times may be those of the next change, too
    path = tmp_path / "a.txt"
    path.write_text("text")
    assert content_hash(path) == content_hash(path) and len(opened) == 2
    monkeypatch.setattr(content.time, "time_ns", lambda now=time.time_ns: now() + 4_000_000_000)
    assert content_hash(path) == content_hash(path) and len(opened) == 3


def test_what_is_known_is_sealed_and_not_needed(tmp_path, opened, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("text")
    before = content_hash(path)
    (known,) = (tmp_path / "cache" / "bert_jax" / "contents").iterdir()
    for damage in (lambda: flip_a_bit(known), lambda: known.write_text(""), known.unlink):
        damage()
        opened.clear()
        assert content_hash(path) == before and opened
        assert content_hash(path) == before and len(opened) == 1
    known.unlink()
    known.mkdir()
    assert content_hash(path) == before
    for cache in (path, "/proc/none"):  # where no folder can be made
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        assert content_hash(path) == before


def test_values_count_beside_places(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    assert len({content_hash(*parts) for parts in ((), (1,), (tmp_path,), (1, tmp_path), (1, tmp_path, tmp_path))}) == 5
    assert content_hash([("good", 1)]) == "ebbef8444e0aa78a"  # as runs of fine-tuning have it in config.json
    assert content_hash("\ud800") != content_hash("\ud801")


def test_pipes_are_no_content_and_unreadable_files_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert content_hash(tmp_path / "pipe") == content_hash(tmp_path / "absent")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "a.txt").write_text("text")
    assert content_hash(tmp_path)
    if os.geteuid():
        (tmp_path / "a.txt").chmod(0)
        with pytest.raises(UsageError, match=r"a\.txt can't be read \(Permission denied\); make it readable"):
            content_hash(tmp_path)


def test_settings_in_another_order_are_the_same():
    assert settings_hash({"a": 1, "b": Path("c")}) == settings_hash({"b": "c", "a": 1}) != settings_hash({"a": 1})
