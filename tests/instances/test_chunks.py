import errno
import os

import numpy as np
import pytest
from damages import attack
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from bert_jax.instances.chunks import cut_chunks, damaged_set, read_numbers, write_numbers
from bert_jax.system.errors import RunError

DOCUMENTS = st.lists(st.lists(st.text("ab é", min_size=1, max_size=30), min_size=1, max_size=6), max_size=30)


@given(DOCUMENTS, st.integers(20, 200))
def test_chunks_hold_all_documents_in_order_and_are_not_too_large(documents, limit):
    chunks = list(cut_chunks([(0, documents)], limit))
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert [document for chunk in chunks for document in chunk.documents] == documents
    longest = max((len("\n".join(document).encode()) for document in documents), default=0)
    for chunk in chunks:
        assert limit <= chunk.size < 1.5 * limit + longest + 2 or len(chunks) == 1 or chunk is chunks[-1]


def test_the_checksum_is_that_of_the_text():
    of = lambda *documents: list(cut_chunks([(0, documents)], 100))[0].crc32
    assert of(["a", "b"]) == of(["a", "b"])
    assert len({of(["a", "b"]), of(["a", "c"]), of(["a"], ["b"]), of(["a b"])}) == 4


@given(st.lists(DOCUMENTS, max_size=4), st.integers(20, 200))
def test_no_chunk_spans_two_portions_and_each_is_cut_as_if_it_were_alone(portions, limit):
    chunks = list(cut_chunks(enumerate(portions), limit))
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    for number, documents in enumerate(portions):
        own = [chunk for chunk in chunks if chunk.source == number]
        assert [chunk.documents for chunk in own] == [chunk.documents for chunk in cut_chunks([(0, documents)], limit)]


NUMBERS = np.arange(300)


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_numbers_come_back(tmp_path, kind):
    for numbers in (NUMBERS.astype(kind), np.zeros(0, kind)):
        write_numbers(tmp_path / "a", {"piece_counts": numbers, "other": NUMBERS})
        assert np.array_equal(read_numbers((tmp_path / "a").read_bytes(), "piece_counts", kind), numbers)


def test_numbers_have_the_mode_that_the_umask_gives(tmp_path):
    before = os.umask(0o027)
    try:
        write_numbers(tmp_path / "a", {"piece_counts": NUMBERS})
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_missing_permission_is_no_damage(tmp_path):
    for error in (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"):
        assert "give yourself the permission" in str(damaged_set(tmp_path / "a", error))
    assert "is damaged" in str(damaged_set(tmp_path / "a", "its checksum is another"))


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
