"""Reads texts from files, and writes their features to .npz, .parquet or .jsonl files."""

import contextlib
import json
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from bert_jax.corpora.decoded_lines import decoded_lines
from bert_jax.corpora.task_record import Record
from bert_jax.finetuning.columns import text
from bert_jax.inference.batches import Text
from bert_jax.inference.features import Feature
from bert_jax.rows.task_files import format_of, has_columns, task_records
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import UsageError, install_extra
from bert_jax.system.files import check_written, replacing

_GROUP_BYTES = 1 << 24
"""Size of a row group's vectors in a Parquet file, in bytes. One row group is in memory at a time."""
_COPY_BYTES = 1 << 20


def check_output(path: Place, read: str = "") -> None:
    """Raises UsageError if features can't be written to `path`.

    The suffix may be unknown, pyarrow may be missing, `path` may be the input file `read`, or `check_written` refuses
    it.
    """
    if path.suffix not in _WRITERS:
        raise UsageError(f"{path}: features are written to {', '.join(_WRITERS)}; name it so")
    if path.suffix == ".parquet":
        _pyarrow()
    check_written(path, read)


def write_features(path: Place, found: Iterable[Feature], pooled: bool) -> None:
    """Writes the features to `path` in the format of its suffix; atomic, replaces an existing file, bounded memory.

    A .npz file has the arrays `vectors`, the vectors of all tokens of all texts, `pieces`, the token of each, and
    `offsets`: text i has the tokens from `offsets[i]` to `offsets[i + 1]` - 1. If `pooled`, it has only `vectors`, one
    per text.

    .parquet and .jsonl files have a row per text with `text`, `text_pair` for pairs, and `pieces` and `vectors`, or if
    `pooled`, `vector`.

    Raises UsageError if `check_output` refuses the path, or if there is no text.
    """
    check_output(path)
    found = iter(found)
    first = next(found, None)
    if first is None:
        raise UsageError(f"there is no text to write the features of to {path}; give some")
    with replacing(path) as temporary:
        _WRITERS[path.suffix](temporary, first, chain([first], found), pooled)


def _write_jsonl(path: Path, _: Feature, found: Iterable[Feature], pooled: bool) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for feature in found:
            row: dict[str, Any] = _texts(feature)
            if not pooled:
                row["pieces"] = feature.pieces
            row[_column(pooled)] = _shortest(feature.vectors)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _shortest(vectors: Float[np.ndarray, "..."]) -> list:
    """Converts to the shortest decimal numbers that are read back as the same float32 or float16."""
    return vectors.astype(str).astype(float).tolist()


def _write_parquet(path: Path, _: Feature, found: Iterable[Feature], pooled: bool) -> None:
    arrow = _pyarrow()
    with contextlib.ExitStack() as stack:
        writer = None
        for group in _groups(found):
            table = arrow.table(_columns(arrow, group, pooled))
            # Dictionary encoding only for pieces: vectors don't repeat, so their dictionary would be useless.
            writer = writer or stack.enter_context(
                arrow.parquet.ParquetWriter(path, table.schema, use_dictionary=["pieces.list.element"])
            )
            writer.write_table(table, row_group_size=len(group))


def _groups(found: Iterable[Feature]) -> Iterator[list[Feature]]:
    """Yields the features in groups of at least _GROUP_BYTES bytes of vectors; the last group may be smaller."""
    group, size = [], 0
    for one in found:
        group.append(one)
        size += one.vectors.nbytes
        if size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _columns(arrow: Any, group: list[Feature], pooled: bool) -> dict[str, Any]:
    columns = {name: arrow.array([_texts(one)[name] for one in group]) for name in _texts(group[0])}
    if not pooled:
        columns["pieces"] = arrow.array([one.pieces for one in group])
    vectors = np.stack if pooled else np.concatenate
    array = vectors([one.vectors for one in group])
    column = arrow.array(array.ravel())
    for size in array.shape[:0:-1]:
        column = arrow.FixedSizeListArray.from_arrays(column, size)
    if not pooled:
        offsets = np.cumsum([0, *(len(one.vectors) for one in group)], dtype=np.int32)
        column = arrow.ListArray.from_arrays(arrow.array(offsets), column)
    return {**columns, _column(pooled): column}


def _write_npz(path: Path, first: Feature, found: Iterable[Feature], pooled: bool) -> None:
    shape = first.vectors.shape[0 if pooled else 1 :]
    with contextlib.ExitStack() as stack:
        vectors = stack.enter_context(_Growing(path.parent, first.vectors.dtype, shape))
        offsets = stack.enter_context(_Growing(path.parent, np.int64))
        pieces = stack.enter_context(_Growing(path.parent, np.int32))
        numbers: dict[str, int] = {}
        offsets.extend([0])
        for one in found:
            vectors.extend(one.vectors[None] if pooled else one.vectors)
            if not pooled:
                offsets.extend([vectors.length])
                pieces.extend([numbers.setdefault(piece, len(numbers)) for piece in one.pieces])
        archive = stack.enter_context(zipfile.ZipFile(path, "w"))
        vectors.copy_to(archive, "vectors")
        if not pooled:
            offsets.copy_to(archive, "offsets")
            pieces.copy_to(archive, "pieces", np.array(list(numbers)))


class _Growing:
    """An array of growing length in an unnamed temporary file, which disappears with the process."""

    def __init__(self, folder: Path, dtype: Any, shape: tuple[int, ...] = ()):
        self.length, self._dtype, self._shape = 0, np.dtype(dtype), shape
        self._file = tempfile.TemporaryFile(dir=folder)

    def __enter__(self) -> "_Growing":
        return self

    def __exit__(self, *_) -> None:
        self._file.close()

    def extend(self, items: Shaped[np.ndarray, "N ..."] | list[int]) -> None:
        """Appends `items` to the array."""
        self._file.write(np.ascontiguousarray(items, self._dtype).data)
        self.length += len(items)

    def copy_to(self, archive: zipfile.ZipFile, name: str, table: Shaped[np.ndarray, " K"] | None = None) -> None:
        """Writes the array to `archive` as `name`; with `table`, each number is replaced by the entry at its index."""
        dtype = self._dtype if table is None else table.dtype
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        self._file.seek(0)
        # ZipInfo has a fixed date, 1980, so that the same features give the same bytes.
        with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, {**header, "shape": (self.length, *self._shape)})
            while block := self._file.read(_COPY_BYTES):
                member.write(block if table is None else table[np.frombuffer(block, self._dtype)].data)


def _texts(one: Feature) -> dict[str, str]:
    """The text columns of a row: `text`, and `text_pair` for a pair."""
    return {"text": one.text} if isinstance(one.text, str) else dict(zip(("text", "text_pair"), one.text))


def _column(pooled: bool) -> str:
    return "vector" if pooled else "vectors"


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            f"Parquet files are written by pyarrow, which is not installed; {install_extra('parquet')}, or name "
            "the file .npz or .jsonl"
        ) from None
    return pyarrow


_WRITERS: dict[str, Callable[[Path, Feature, Iterable[Feature], bool], None]] = {
    ".npz": _write_npz,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}
"""The function that writes a file, by the file's suffix."""


def texts_of(source: str, columns: tuple[str, ...], repairs: Counter[str]) -> Iterator[Text]:
    """Yields the texts of `source`: its lines, or one or two `columns` of its rows.

    Raises UsageError, before the first text, if `source` doesn't have that form.
    """
    if len(columns) > 2:
        raise UsageError(f"--texts {' '.join(columns)} are {len(columns)} columns; give one, or a pair's two")
    if format_of(source) in ("conll", "conllu"):
        raise UsageError(f"{source} has words and no texts; give a text a line, or a .csv, .tsv or .jsonl")
    if columns:
        if source == "-":
            raise UsageError("standard input holds a text a line and has no columns; leave --texts out")
        return (_of_record(record, columns) for record in task_records(source, repairs))
    if has_columns(source):
        raise UsageError(f"{source} has columns; name those of the texts by --texts, one or a pair's two")
    path = place_of("/dev/stdin" if source == "-" else source)
    return (line.rstrip("\r\n") for line in decoded_lines(path, repairs))


def _of_record(record: Record, columns: tuple[str, ...]) -> Text:
    found = tuple(text(record, column) for column in columns)
    return found if len(found) == 2 else found[0]
