import io

import numpy as np
import pytest
from damages import attack

from bert_jax.instances.checked_files import read_numbers, write_numbers
from bert_jax.system.errors import RunError
from bert_jax.system.files import FileSum

NUMBERS = np.arange(300)


def test_numbers_come_back_and_numpy_reads_them(tmp_path):
    for kind in (np.int64, np.uint64):
        for numbers in (NUMBERS.astype(kind), np.zeros(0, kind)):
            assert write_numbers(tmp_path / "a.npy", numbers) == FileSum.of(tmp_path / "a.npy")
            assert np.array_equal(read_numbers(tmp_path / "a.npy", kind), numbers)
            assert np.array_equal(np.load(tmp_path / "a.npy"), numbers)


def saved(value, **settings):
    file = io.BytesIO()
    np.save(file, value, **settings)
    return file.getvalue()


def header(shape):
    """A file that says it has this shape, and has nothing."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": shape})
    return file.getvalue()


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "no NumPy file"),
        (b"PK\x03\x04", "no NumPy file"),
        (header((1 << 60,)), "no one row|one row of numbers"),
        (header((10**11,)), "should hold 800,000,000,000 bytes"),
        (header((1 << 20, 1 << 20)), "one row of numbers"),
        (saved(NUMBERS)[:-1], "should hold 2,400 bytes of numbers and has 2,399"),
        (saved(np.array(["a", "b"])), "type <U1"),
        (saved(NUMBERS.astype(float)), "type <f8"),
        (saved(np.array([{}]), allow_pickle=True), r"type \|O"),
    ],
)
def test_whatever_else_a_file_holds_is_refused_before_memory_is_taken(tmp_path, content, words):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        read_numbers(tmp_path / "a.npy", np.int64)


def test_any_damage_is_a_value_error(tmp_path, slow):
    path = tmp_path / "a.npy"
    write_numbers(path, NUMBERS)

    def read():
        try:
            assert read_numbers(path, np.int64).dtype == np.int64
        except ValueError as error:
            raise RunError(str(error)) from None

    attack(read, path, count=10_000 if slow else 200)
