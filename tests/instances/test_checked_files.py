import numpy as np
import pytest
from damages import attack
from safetensors.numpy import save

from bert_jax.instances.checked_files import read_numbers, write_numbers
from bert_jax.system.errors import RunError

NUMBERS = np.arange(300)


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_numbers_come_back(tmp_path, kind):
    for numbers in (NUMBERS.astype(kind), np.zeros(0, kind)):
        write_numbers(tmp_path / "a", {"piece_counts": numbers, "other": NUMBERS})
        assert np.array_equal(read_numbers((tmp_path / "a").read_bytes(), "piece_counts", kind), numbers)


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "holds no piece_counts"),
        (b"\x93NUMPY\x01\x00", "holds no piece_counts"),
        (save({"other": NUMBERS}), "holds no piece_counts"),
        (save({"piece_counts": NUMBERS})[:-1], "holds no piece_counts"),
        (save({"piece_counts": NUMBERS.astype(float)}), "has type float64"),
        (save({"piece_counts": NUMBERS.reshape(3, 100)}), "not a row of int64"),
    ],
)
def test_whatever_else_a_file_holds_is_refused(content, words):
    with pytest.raises(ValueError, match=words):
        read_numbers(content, "piece_counts", np.int64)


def test_any_damage_is_a_value_error(tmp_path, slow):
    path = tmp_path / "a"
    write_numbers(path, {"piece_counts": NUMBERS})

    def read():
        try:
            assert read_numbers(path.read_bytes(), "piece_counts", np.int64).dtype == np.int64
        except ValueError as error:
            raise RunError(str(error)) from None

    attack(read, path, count=10_000 if slow else 200)
