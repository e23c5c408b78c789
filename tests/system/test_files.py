import os

import pytest

from bert_jax.system.files import FileSum, replacing, write_json, write_text


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError):
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_json_is_written_whole(tmp_path):
    write_json(tmp_path / "a.json", {"ü": 1})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n  "ü": 1\n}\n'


def test_sums_see_a_flipped_bit(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bytes(5_000_000))
    before = FileSum.of(path)
    data = bytearray(path.read_bytes())
    data[4_900_000] ^= 1
    path.write_bytes(data)
    assert FileSum.of(path).size == before.size == 5_000_000
    assert FileSum.of(path).crc32 != before.crc32
