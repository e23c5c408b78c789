"""One-dimensional integer arrays as .npy files, read with strict checks of the header."""

import io
import re
from pathlib import Path

import numpy as np
from jaxtyping import Integer

from bert_jax.system.bucket import Place
from bert_jax.system.files import FileSum, replacing
from bert_jax.system.json_file import read_bytes

_MOST_BYTES = 1 << 30
"""Largest file that is read. The paragraph hashes of a chunk take at most 32 MB."""
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '(?P<type>[<>|]\w+)', 'fortran_order': False, 'shape': \((?P<length>\d{1,12}),\), \} *\n"
)


def write_numbers(path: Path, numbers: Integer[np.ndarray, " n"]) -> FileSum:
    """Writes the array atomically as a .npy file, which `numpy.load` reads, too. Returns the file's checksum."""
    with replacing(path) as temporary:
        with open(temporary, "wb") as file:
            np.save(file, numbers, allow_pickle=False)
        return FileSum.of(temporary)


def read_numbers(path: Place, kind: type[np.integer]) -> Integer[np.ndarray, " n"]:
    """Reads an array of type `kind` that `write_numbers` wrote.

    Takes as much memory as the file is large, whatever its header says. Raises OSError if the file can't be read, and
    ValueError if it contains anything else.
    """
    content = read_bytes(path, _MOST_BYTES)
    stream = io.BytesIO(content)
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it is no NumPy file of version 1.0")
    header = _HEADER.fullmatch(stream.read(int.from_bytes(stream.read(2), "little")))
    if not header:
        raise ValueError("its header is not that of one row of numbers")
    expected = np.dtype(kind)
    if header["type"].decode() != expected.str:
        raise ValueError(f"it holds numbers of type {header['type'].decode()[:20]} and should hold {expected.str}")
    size, body = int(header["length"]) * expected.itemsize, len(content) - stream.tell()
    if size != body:
        raise ValueError(f"it should hold {size:,} bytes of numbers and has {body:,}")
    return np.frombuffer(content, expected, offset=stream.tell())
