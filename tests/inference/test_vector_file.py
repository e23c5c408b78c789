import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from bert_jax.inference.vector_file import VectorFile
from bert_jax.system.errors import UsageError

VECTORS = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)


def read(path, each=8) -> np.ndarray:
    blocks = list(VectorFile(path).blocks(each))
    assert all(block.dtype == np.float32 and len(block) == each for block in blocks[:-1])
    return np.concatenate(blocks)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<f8"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("each", [1, 8, 100])
def test_vectors_are_read_in_blocks(tmp_path, dtype, save, each):
    save(tmp_path / "v.npz", vectors=VECTORS.astype(dtype))
    file = VectorFile(tmp_path / "v.npz")
    assert (file.rows, file.width) == (20, 6)
    np.testing.assert_array_equal(read(tmp_path / "v.npz", each), VECTORS.astype(dtype).astype(np.float32))


def test_memory_does_not_grow_with_the_file(tmp_path):
    np.savez(tmp_path / "v.npz", vectors=np.ones((200_000, 32), np.float32))
    tracemalloc.start()
    for block in VectorFile(tmp_path / "v.npz").blocks(2048):
        assert block.shape[1] == 32
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6  # the file has 25.6 MB


def test_a_file_without_rows_has_no_blocks(tmp_path):
    np.savez(tmp_path / "v.npz", vectors=VECTORS[:0])
    assert VectorFile(tmp_path / "v.npz").rows == 0 and not list(VectorFile(tmp_path / "v.npz").blocks(8))


class Exploding:
    """An object that ends the test if it is unpickled."""

    def __reduce__(self):
        return pytest.fail, ("it was unpickled",)


OTHERS = {
    "a vector of each token; write one of each text": {"vectors": VECTORS, "pieces": ["a"] * 20, "offsets": [0, 20]},
    "no array 'vectors' but 'a', 'b'; write it by bert-jax features": {"a": VECTORS, "b": VECTORS},
    "an array of int64; vectors are of float32 or float16": {"vectors": np.ones((3, 6), np.int64)},
    "the shape (6,); expected a row of numbers": {"vectors": VECTORS[0]},
    "the shape (4, 5, 6); expected a row of numbers": {"vectors": np.ones((4, 5, 6), np.float32)},
    "the shape (20, 0); expected a row of numbers": {"vectors": VECTORS[:, :0]},
    "the shape (20, 6), column by column": {"vectors": np.asfortranarray(VECTORS)},
    "pickled objects, which are never loaded": {"vectors": np.array([[Exploding()]], dtype=object)},
}


@pytest.mark.parametrize("words", OTHERS)
def test_arrays_of_another_kind_are_refused(tmp_path, words):
    np.savez(tmp_path / "v.npz", **OTHERS[words])
    with pytest.raises(UsageError) as refusal:
        VectorFile(tmp_path / "v.npz")
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def with_header(path, shape) -> bytes:
    with zipfile.ZipFile(path, "w") as archive, archive.open("vectors.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": shape})
        member.write(VECTORS.tobytes())
    return path.read_bytes()


def whole(path, save=np.savez) -> bytes:
    save(path, vectors=VECTORS)
    return path.read_bytes()


def flipped(content) -> bytes:
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGES = {
    "cut": lambda path: whole(path)[:300],
    "a bit of a number": lambda path: flipped(whole(path)),
    "a bit of a packed number": lambda path: flipped(whole(path, np.savez_compressed)),
    "no zip": lambda path: b"The old cat.\n",
    "empty": lambda path: b"",
    "more rows in the header": lambda path: with_header(path, (10**15, 6)),
    "fewer rows in the header": lambda path: with_header(path, (19, 6)),
    "code in the header": lambda path: whole(path).replace(b"'shape': (20, 6)", b"'shape': exit(5)"),
    "another version": lambda path: whole(path).replace(b"NUMPY\x01", b"NUMPY\x07"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_refused_in_one_line(tmp_path, damage):
    path = tmp_path / "v.npz"
    path.write_bytes(DAMAGES[damage](path))
    with pytest.raises(UsageError) as refusal:
        read(path)
    assert "is no .npz file, or damaged" in str(refusal.value) and "\n" not in str(refusal.value)


HEADERS = [
    "{[1]: 2}",
    "((",
    "'''",
    "{'descr': (), 'fortran_order': False, 'shape': (20, 6)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (20, 6), 'more': 1}",
    "-" * 5000 + "1",
    "(" * 3000 + ")" * 3000,
    "",
]


def write_header(path, header: str, version: int) -> None:
    size = struct.pack("<H" if version == 1 else "<I", len(header))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vectors.npy", b"\x93NUMPY" + bytes([version, 0]) + size + header.encode() + VECTORS.tobytes())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_hostile_headers_are_refused_in_one_line(tmp_path, header, version):
    write_header(tmp_path / "v.npz", header, version)
    with pytest.raises(UsageError) as refusal:
        VectorFile(tmp_path / "v.npz")
    assert "damaged" in str(refusal.value) and "\n" not in str(refusal.value)


def test_headers_of_python_2_are_read_without_a_warning(tmp_path, recwarn):
    write_header(tmp_path / "v.npz", "{'descr': '<f4', 'fortran_order': False, 'shape': (20L, 6L)}", 1)
    np.testing.assert_array_equal(read(tmp_path / "v.npz"), VECTORS)
    assert not recwarn.list


def test_negative_sizes_and_other_packings_are_refused(tmp_path):
    with_header(tmp_path / "v.npz", (-20, -6))
    with pytest.raises(UsageError, match="expected a row of numbers for each text"):
        VectorFile(tmp_path / "v.npz")
    with zipfile.ZipFile(tmp_path / "v.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("vectors.npy", b"x" * 100)
    with pytest.raises(UsageError, match="has a compression method that numpy doesn't write"):
        VectorFile(tmp_path / "v.npz")


def test_what_cannot_be_opened_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "absent.npz"):
        with pytest.raises(UsageError, match="can't be read"):
            VectorFile(path)
