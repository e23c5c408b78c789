"""Files of a prepared data set that are checked when they are read, and the error for a damaged one."""

import io
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer

from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError
from bert_jax.system.files import FileSum, replacing, write_json
from bert_jax.system.json_file import read_bytes, read_object

_KEY = "crc32"
_MOST_BYTES = 1 << 30
"""Largest file that is read. The paragraph hashes of a chunk take at most 32 MB."""
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '(?P<type>[<>|]\w+)', 'fortran_order': False, 'shape': \((?P<length>\d{1,12}),\), \} *\n"
)


def damage_error(path: Place, error: Exception | str) -> RunError:
    """Builds the error to raise if the file at `path` can't be used, with `error` as the reason."""
    return RunError(
        f"{path} is damaged ({first_line(error)}); delete {path.parent} and give the same command again to prepare it "
        "anew"
    )


def first_line(error: Exception | str) -> str:
    """The first line of a library's message, or the name of its exception if there is no message."""
    return str(error).partition("\n")[0] or type(error).__name__


def write_checked(path: Place, value: dict[str, Any]) -> None:
    """Writes `value` and its CRC-32 to `path` as one JSON object, atomically."""
    write_json(path, value | {_KEY: _crc32(value)})


def read_checked(path: Place) -> dict[str, Any]:
    """Reads an object that `write_checked` wrote.

    Raises OSError if the file can't be read, and ValueError if it is damaged.
    """
    value = read_object(path)
    if value.pop(_KEY, None) != _crc32(value):
        raise ValueError("its checksum is missing or another")
    return value


def _crc32(value: dict[str, Any]) -> int:
    """CRC-32 of the fields, independent of their order."""
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


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
