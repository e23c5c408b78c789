"""Numbers in the files of a prepared data set, and the error for a damaged file."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Integer
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from bert_jax.system import json_file
from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError, first_line
from bert_jax.system.files import replacing

PARAGRAPHS, PIECE_COUNTS = "paragraphs", "piece_counts"
"""Names of the arrays in the files."""
_MOST_BYTES = 1 << 30
"""Largest file that is read. The paragraph hashes of a chunk take at most 32 MB."""


def damage_error(path: Place, error: Exception | str) -> RunError:
    """Builds the error to raise if the file at `path` can't be used, with `error` as the reason."""
    return RunError(
        f"{path} is damaged ({first_line(error)}); delete {path.parent} and give the same command again to prepare it "
        "anew"
    )


def read_bytes(path: Place) -> bytes:
    """Reads a whole file. Raises OSError if it can't be read, ValueError if it is too large to be one of ours."""
    return json_file.read_bytes(path, _MOST_BYTES)


def write_numbers(path: Path, arrays: Mapping[str, Integer[np.ndarray, " _"]]) -> None:
    """Writes named arrays atomically as a safetensors file."""
    with replacing(path) as temporary:
        safetensors.save_file(dict(arrays), temporary)


def read_numbers(content: bytes, name: str, kind: type[np.integer]) -> Integer[np.ndarray, " n"]:
    """The array `name` of type `kind` in a safetensors file with this content. Raises ValueError for anything else."""
    try:
        numbers = safetensors.load(content)[name]
    except (SafetensorError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"it holds no {name} ({first_line(error)})") from None
    if numbers.dtype != kind or numbers.ndim != 1:
        raise ValueError(f"{name} has type {numbers.dtype} and shape {numbers.shape}, not a row of {kind.__name__}")
    return numbers
