"""Reads tensors of safetensors files."""

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ml_dtypes import bfloat16
from safetensors import SafetensorError, safe_open

from bert_jax.interchange.model_path import INDEX, WEIGHTS
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.files import open_regular
from bert_jax.system.json_file import Shape, read_foreign_shape
from bert_jax.system.progress import say

_MOST_HEADER_BYTES = 10_000_000
"""Largest header that is read, in bytes. The header describes every tensor; for BERT-large it has 50 kB."""
_TYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": bfloat16, "BOOL": "?"} | {
    f"{sign.upper()}{8 * size}": f"{sign}{size}" for sign in "iu" for size in (1, 2, 4, 8)
}
"""Types of safetensors and of numpy. A BERT uses floating-point numbers; a later check refuses the others by name."""


class _Index(Shape):
    """The contents of model.safetensors.index.json: the file that holds each tensor."""

    weight_map: dict[str, str]


class Tensor(NamedTuple):
    """One tensor in a file, which is read on demand."""

    source: str
    """Name of the tensor in the file."""
    shape: tuple[int, ...]
    read: Callable[..., np.ndarray]
    """Reads the rows from `begin` to `end` (exclusive); without these arguments, all of it."""

    def rows(self, begin: int, end: int) -> "Tensor":
        """The rows from `begin` to `end` (exclusive)."""
        return Tensor(
            self.source, (end - begin, *self.shape[1:]), lambda *rows: self.read(begin, end)[slice(*rows or (None,))]
        )

    @property
    def transposed(self) -> "Tensor":
        """The transposed tensor."""
        return Tensor(self.source, self.shape[::-1], lambda *rows: self.read().T[slice(*rows or (None,))])

    def part(self, number: int, count: int) -> "Tensor":
        """Part number `number` of a tensor that holds `count` tensors of equal size one below the other. If the rows
        don't divide evenly, the last part has the remaining rows, and a later check refuses its shape."""
        if count == 1:
            return self
        rows = self.shape[0] if self.shape else 0
        end = rows if number == count - 1 else (number + 1) * (rows // count)
        part = self.rows(number * (rows // count), end)
        return part._replace(source=f"{self.source} (part {number + 1} of {count})")


def read_safetensors(directory: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors of model.safetensors or, where that is absent, of the files in its index, by their names there; reads
    only headers. transformers chooses in this order, too.

    Also returns the names of tensors in these files that the index doesn't list. Raises UsageError if a header is
    damaged or doesn't match its file, if the index names a file outside `directory`, or if a file lacks a tensor that
    the index lists.
    """
    if not (directory / INDEX).is_file():
        return tensors_of(directory / WEIGHTS), []
    if (directory / WEIGHTS).is_file():
        say(f"{directory / INDEX} isn't read: {WEIGHTS} is beside it, which transformers reads too")
        return tensors_of(directory / WEIGHTS), []
    places = read_foreign_shape(directory / INDEX, _Index).weight_map
    inside: dict[str, Tensor] = {}
    for file in sorted(set(places.values())):
        if Path(file).name != file or not file.endswith(".safetensors") or not file.isprintable():
            raise UsageError(
                f"{directory / INDEX} names {quoted(file)}, which is no safetensors file in its folder; fetch it again"
            )
        of_file = tensors_of(directory / file)
        # Of several copies of a tensor, the index names the one that counts.
        inside |= {name: tensor for name, tensor in of_file.items() if places.get(name, file) == file}
        if missing := [name for name, place in places.items() if place == file and name not in of_file]:
            raise UsageError(f"{directory / file} lacks {missing[0]}, which {INDEX} says is there; fetch both again")
    listed = {name: inside[name] for name in places}
    return listed, sorted(inside.keys() - listed.keys())


def tensors_of(path: Path) -> dict[str, Tensor]:
    """The tensors of one safetensors file, by their names in it. The library checks that the header describes each byte
    of the file exactly once. Raises UsageError if the file is damaged."""
    try:
        file = open_regular(path)  # read, not mapped: the pages of a mapped file count as memory of this process
        size = int.from_bytes(file.read(8), "little")
        if size > _MOST_HEADER_BYTES:
            raise UsageError(f"{path} says that its header has {size:,} bytes; a BERT's has less than 100,000")
        safe_open(path, "numpy")
        described, begin = json.loads(file.read(size)), 8 + size
        described.pop("__metadata__", None)
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror or error}); give a folder that has it") from None
    except SafetensorError as error:
        raise UsageError(f"{path} is no good safetensors file ({quoted(str(error))}); fetch it again") from None
    if unprintable := [name for name in described if not name.isprintable()]:
        raise UsageError(f"{path} has a tensor named {quoted(unprintable[0])}, which is no name; fetch it again")

    def read(name: str, *rows: int) -> np.ndarray:
        dtype, shape, (offset, _) = (described[name][key] for key in ("dtype", "shape", "data_offsets"))
        if dtype not in _TYPES:
            raise UsageError(f"{name} holds {dtype} numbers, which aren't read here; convert the model to float32")
        first = 0
        if rows:
            first, end, _ = slice(*rows).indices(shape[0])
            shape = [end - first, *shape[1:]]
        array = np.empty(shape, _TYPES[dtype])
        file.seek(begin + offset + first * math.prod(shape[1:]) * array.itemsize)
        if file.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:
            raise UsageError(f"{path} ends within {name}; fetch it again")
        return array

    return {name: Tensor(name, tuple(one["shape"]), partial(read, name)) for name, one in described.items()}
