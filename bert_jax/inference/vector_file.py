"""Reads vectors of texts from .npz files, in bounded memory and without unpickling; which model wrote them."""

import contextlib
import hashlib
import math
import warnings
import zipfile
import zlib
from collections.abc import Iterator

import jax
import numpy as np
from jaxtyping import Float

from bert_jax.model.bert import Parameters
from bert_jax.records.compressed_files import opened
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, first_line, listed
from bert_jax.system.json_file import Shape, as_shape, parse_object
from bert_jax.system.progress import say
from bert_jax.text.tokenizer import Tokenizer

_MEMBER = "vectors.npy"
_OF_TOKENS = {"pieces.npy", "offsets.npy"}
"""Members that `features` writes beside the vectors of tokens."""
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""Compression methods that numpy writes. Other methods may take memory without limit."""
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError, OSError)
"""Exceptions of zipfile and numpy for files that are no .npz, damaged, cut short or encrypted."""
SAMPLED_NUMBERS = 4096
"""About how many numbers of each parameter earlier releases hash."""


class Origin(Shape):
    """What made the vectors of a file."""

    model: str
    """Hash of some numbers of each parameter, by which earlier releases identify the model."""
    vectors: str
    """What was computed of each text, in words."""
    prompt: str = ""
    """What was put before each text."""
    model_content: str = ""
    """Content hash of the model. Empty in files of earlier releases."""

    @property
    def as_bytes(self) -> bytes:
        """The origin in JSON, which a .npz file has as its comment and a Parquet file in its metadata."""
        return self.model_dump_json().encode()


def model_content(params: Parameters, tokenizer: Tokenizer, most: int | None = None) -> str:
    """Content hash of an encoder's parameters and pieces, equal for a run and its exports. `most`: about how many
    numbers of each parameter count, as in files of earlier releases."""
    encoder = {name: part for name, part in params["bert"].items() if name != "pooler"}
    digest = hashlib.blake2b("\0".join(tokenizer.vocabulary.pieces).encode(errors="replace"), digest_size=8)
    for path, leaf in jax.tree.leaves_with_path(encoder):
        numbers = np.asarray(leaf, np.float32).reshape(-1)
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.shape}".encode())
        digest.update(numbers[:: max(len(numbers) // most, 1)].tobytes() if most else numbers.data)
    return digest.hexdigest()


def origin_in(archive: zipfile.ZipFile) -> Origin | None:
    """The origin of the vectors in a .npz file; None if it doesn't say."""
    try:
        return as_shape(parse_object(archive.comment), Origin)
    except ValueError:
        return None


def check_origin(name: str, written: Origin | None, here: Origin) -> None:
    """Compares the origin of the vectors in a file called `name` with what is computed here.

    A line says if the file has none, or if another prompt was put before its texts. Raises UsageError for the vectors
    of another model.
    """
    if written is None:
        say(f"{name} doesn't say which model wrote it; its vectors are taken for this model's")
        return
    theirs, ours = (each.model_content if written.model_content else each.model for each in (written, here))
    if theirs != ours:
        raise UsageError(
            f"{name} has vectors of another model ({theirs}, and this one is {ours}), which can't be "
            "compared; write them anew by bert-jax features with this run"
        )
    elif written.vectors != here.vectors:
        raise UsageError(
            f"{name} has {written.vectors}, and queries are compared by {here.vectors}; write the vectors anew by "
            "bert-jax features without --layers, --join and --pool"
        )
    elif written.prompt != here.prompt:
        say(
            f"{name} was written with {written.prompt!r} before each text, and this model puts {here.prompt!r} before "
            "the texts that are searched; write it anew by bert-jax features --role passage"
        )


class VectorFile:
    """The array `vectors` of a .npz file as `bert-jax features` writes it with one vector of each text."""

    def __init__(self, path: Place):
        """Reads the shape. Raises UsageError if there is no such array, or if the file is damaged."""
        self._path = path
        self.origin: Origin | None = None
        """What made the vectors; None if the file doesn't say."""
        with self._array() as (_, shape, _):
            self.rows, self.width = shape

    def blocks(self, rows_in_block: int) -> Iterator[Float[np.ndarray, "N W"]]:
        """Yields the vectors in order, in float32 and in blocks of `rows_in_block`; the last one may be smaller. Raises
        UsageError if the file is damaged; its checksum is known after the last block."""
        with self._array() as (file, (rows, width), dtype):
            for begin in range(0, rows, rows_in_block):
                size = min(rows_in_block, rows - begin) * width * dtype.itemsize
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
