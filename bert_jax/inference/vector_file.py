"""Reads vectors of texts from .npz files, in bounded memory and without unpickling."""

import contextlib
import math
import warnings
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from bert_jax.inference.origin import Origin, origin_in
from bert_jax.records.compressed_files import opened
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, first_line, listed

_MEMBER = "vectors.npy"
_OF_TOKENS = {"pieces.npy", "offsets.npy"}
"""Members that `features` writes beside the vectors of tokens."""
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""Compression methods that numpy writes. Other methods may take memory without limit."""
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError, OSError)
"""Exceptions of zipfile and numpy for files that are no .npz, damaged, cut short or encrypted."""


class VectorFile:
    """The array `vectors` of a .npz file as `bert-jax features` writes it with one vector of each text."""

    def __init__(self, path: Place):
        """Reads the shape. Raises UsageError if there is no such array, or if the file is damaged."""
        self._path = path
        self.origin: Origin | None = None
        """What made the vectors; None if the file doesn't say."""
        with self._array() as (_, shape, _):
            self.rows, self.width = shape

    def blocks(self, each: int) -> Iterator[Float[np.ndarray, "N W"]]:
        """Yields the vectors in order, in float32 and in blocks of `each` rows; the last one may be smaller.

        Raises UsageError if the file is damaged; its checksum is known after the last block.
        """
        with self._array() as (file, (rows, width), dtype):
            for begin in range(0, rows, each):
                size = min(each, rows - begin) * width * dtype.itemsize
                content = file.read(size)
                if len(content) < size:
                    raise EOFError(f"it ends within row {begin + len(content) // (width * dtype.itemsize) + 1:,}")
                with np.errstate(over="ignore"):  # infinity is refused where it is used
                    block = np.frombuffer(content, dtype).reshape(-1, width).astype(np.float32, copy=False)
                yield block

    @contextlib.contextmanager
    def _array(self) -> Iterator[tuple[zipfile.ZipExtFile, tuple[int, int], np.dtype]]:
        """Opens the array at its first number, and yields it with its shape and type."""
        try:
            with opened(self._path) as raw, zipfile.ZipFile(raw) as archive:
                self._check(archive)
                self.origin = origin_in(archive)
                with archive.open(_MEMBER) as file:
                    assert isinstance(file, zipfile.ZipExtFile)
                    yield file, *self._header(file, archive.getinfo(_MEMBER).file_size)
        except _DAMAGE as error:
            raise UsageError(
                f"{self._path} is no .npz file, or damaged ({first_line(error)}); write it again by bert-jax features"
            ) from None

    def _check(self, archive: zipfile.ZipFile) -> None:
        members = {info.filename: info for info in archive.infolist()}
        if _MEMBER not in members:
            arrays = listed(name.removesuffix(".npy") for name in members)
            raise UsageError(f"{self._path} has no array 'vectors' but {arrays}; write it by bert-jax features")
        if _OF_TOKENS & members.keys():
            raise UsageError(
                f"{self._path} has a vector of each token; write one of each text, by bert-jax features without "
                "--layers, --join and --pool or, of a model that was not trained for them, with --layers -1 --pool mean"
            )
        if members[_MEMBER].compress_type not in _METHODS:
            raise UsageError(
                f"{self._path} has a compression method that numpy doesn't write; write it by bert-jax features"
            )

    def _header(self, file: zipfile.ZipExtFile, size: int) -> tuple[tuple[int, int], np.dtype]:
        """Shape and type of the array in `file`, whose `size` in bytes is that of header and array."""
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"the array has the format {version[0]}.{version[1]}")
        shape, columns_first, dtype = _parsed(file, version)
        if dtype.hasobject:
            raise UsageError(f"{self._path} has pickled objects, which are never loaded; give an array of numbers")
        if dtype.kind != "f" or dtype.itemsize > 8:
            raise UsageError(f"{self._path} has an array of {dtype}; vectors are of float32 or float16")
        if len(shape) != 2 or shape[1] < 1 or shape[0] < 0 or columns_first:
            order = ", column by column" if columns_first else ""
            raise UsageError(
                f"{self._path} has an array of the shape {shape}{order}; expected a row of numbers for each text"
            )
        if file.tell() + math.prod(shape) * dtype.itemsize != size:
            raise ValueError(f"{size:,} bytes aren't those of the shape {shape}")
        return shape, dtype


def _parsed(file: zipfile.ZipExtFile, version: tuple[int, int]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type in the header of an array. Raises ValueError if it is damaged.

    numpy parses it as Python's literals, by functions that raise almost any exception for hostile text.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _HEADERS[version](file)
    except Exception as error:  # also MemoryError and RecursionError
        raise ValueError("its header is damaged") from error


_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
"""The functions that read the header of an array, by its version; those of vectors have one of these two."""
