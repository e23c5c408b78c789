"""Reads texts from files, and writes their features to .npz, .parquet or .jsonl files."""

import contextlib
import json
import math
import shutil
import tempfile
import zipfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from bert_jax.finetuning.columns import text
from bert_jax.inference.batches import Text
from bert_jax.inference.features import Feature
from bert_jax.inference.vector_file import Origin
from bert_jax.records.decoded_lines import decoded_lines
from bert_jax.records.formats import format_of, has_columns
from bert_jax.records.record import Record, row_id
from bert_jax.records.sources import task_records
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import UsageError, install_extra, listed
from bert_jax.system.files import check_written, replacing

_GROUP_BYTES = 1 << 24
"""Size of a row group's vectors in a Parquet file, in bytes. One row group is in memory at a time."""
_COPY_BYTES = 1 << 20


def check_output(path: Place, read: str = "") -> None:
    """Raises UsageError if features can't be written to `path`: its suffix is unknown, pyarrow is missing, it is the
    input file `read`, or `check_written` refuses it."""
    if path.suffix not in _WRITERS:
        raise UsageError(f"{path}: features are written to {', '.join(_WRITERS)}; name it so")
    if path.suffix == ".parquet":
        _pyarrow()
    check_written(path, read)


def write_features(path: Place, features: Iterable[Feature], pooled: bool, origin: Origin) -> None:
    """Writes the features to `path` in the format of its suffix, in bounded memory. An existing file is replaced, but
    only once the new file is complete.

    `origin` is written with the features: as the comment of a .npz file, as `bert_jax` in the metadata of a Parquet
    file, and its `model` in each JSON line.

    A .npz file has three arrays: `vectors`, a row for each token of all texts; `pieces`, the token of each row; and
    `offsets`: text i has the rows from `offsets[i]` to `offsets[i + 1]` - 1. If `pooled`, it has only `vectors`, a row
    for each text.

    .parquet and .jsonl files have a row for each text with `text`, `text_pair` for pairs, and `pieces` and `vectors`
    or, if `pooled`, `vector`.

    Raises UsageError if `check_output` refuses the path, or if there is no text.
    """
    check_output(path)
    features = iter(features)
    first = next(features, None)
    if first is None:
        raise UsageError(f"there is no text to write the features of to {path}; give some")
    with replacing(path) as temporary:
        _WRITERS[path.suffix](temporary, first, chain([first], features), pooled, origin)


def _write_jsonl(path: Path, _: Feature, features: Iterable[Feature], pooled: bool, origin: Origin) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for feature in features:
            row: dict[str, Any] = _texts(feature)
            if not pooled:
                row["pieces"] = feature.pieces
            # The shortest decimal numbers that are read back as the same float32 or float16.
            row["vector" if pooled else "vectors"] = feature.vectors.astype(str).astype(float).tolist()
            row["model"] = origin.model
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write_parquet(path: Path, _: Feature, features: Iterable[Feature], pooled: bool, origin: Origin) -> None:
    arrow = _pyarrow()
    with contextlib.ExitStack() as stack:
        writer = None
        for group in _groups(features):
            table = arrow.table(_columns(arrow, group, pooled), metadata={"bert_jax": origin.as_bytes})
            # Dictionary encoding only for pieces: vectors don't repeat, so their dictionary would be useless.
            writer = writer or stack.enter_context(
                arrow.parquet.ParquetWriter(path, table.schema, use_dictionary=["pieces.list.element"])
            )
            writer.write_table(table, row_group_size=len(group))


def _groups(features: Iterable[Feature]) -> Iterator[list[Feature]]:
    """Yields the features in groups of at least _GROUP_BYTES bytes of vectors; the last group may be smaller."""
    group, size = [], 0
    for feature in features:
        group.append(feature)
        size += feature.vectors.nbytes
        if size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _columns(arrow: Any, group: list[Feature], pooled: bool) -> dict[str, Any]:
    columns = {name: arrow.array([_texts(feature)[name] for feature in group]) for name in _texts(group[0])}
    if not pooled:
        columns["pieces"] = arrow.array([feature.pieces for feature in group])
    vectors = np.stack if pooled else np.concatenate
    numbers = vectors([feature.vectors for feature in group])
    column = arrow.array(numbers.ravel())
    for size in numbers.shape[:0:-1]:
        column = arrow.FixedSizeListArray.from_arrays(column, size)
    if not pooled:
        offsets = np.cumsum([0, *(len(feature.vectors) for feature in group)], dtype=np.int32)
        column = arrow.ListArray.from_arrays(arrow.array(offsets), column)
    return {**columns, "vector" if pooled else "vectors": column}


def _write_npz(path: Path, first: Feature, features: Iterable[Feature], pooled: bool, origin: Origin) -> None:
    """Collects each array in an unnamed temporary file, since its length is known at the end only."""
    with contextlib.ExitStack() as stack:
        vectors, offsets, numbers, pieces = (
            stack.enter_context(tempfile.TemporaryFile(dir=path.parent)) for _ in range(4)
        )
        end, table = np.int64(0), dict[str, int]()
        offsets.write(end.tobytes())
        for feature in features:
            vectors.write(np.ascontiguousarray(feature.vectors).data)
            if not pooled:
                end += len(feature.pieces)
                offsets.write(end.tobytes())
                numbers.write(
                    np.array([table.setdefault(piece, len(table)) for piece in feature.pieces], np.int32).data
                )
        archive = stack.enter_context(zipfile.ZipFile(path, "w"))
        archive.comment = origin.as_bytes
        _add_array(archive, "vectors", vectors, first.vectors.dtype, first.vectors.shape[0 if pooled else 1 :])
        if not pooled:
            _add_array(archive, "offsets", offsets, np.dtype(np.int64))
            names = np.array(list(table))
            numbers.seek(0)
            while block := numbers.read(_COPY_BYTES):
                pieces.write(names[np.frombuffer(block, np.int32)].data)
            _add_array(archive, "pieces", pieces, names.dtype)


def _add_array(
    archive: zipfile.ZipFile, name: str, file: IO[bytes], dtype: np.dtype, row: tuple[int, ...] = ()
) -> None:
    """Adds the array in `file`, whose rows have the shape `row`, to a .npz archive."""
    length = file.tell() // (dtype.itemsize * math.prod(row))
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length, *row)}
    file.seek(0)
    # ZipInfo has a fixed date, 1980, so that the same features give the same bytes.
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        shutil.copyfileobj(file, member, _COPY_BYTES)


def _texts(feature: Feature) -> dict[str, str]:
    """The text columns of a row: `text`, and `text_pair` for a pair."""
    texts = (feature.text,) if isinstance(feature.text, str) else feature.text
    return dict(zip(("text", "text_pair"), texts, strict=False))


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            f"Parquet files are written by pyarrow, which is not installed; {install_extra('parquet')}, or name "
            "the file .npz or .jsonl"
        ) from None
    return pyarrow


_WRITERS: dict[str, Callable[[Path, Feature, Iterable[Feature], bool, Origin], None]] = {
    ".npz": _write_npz,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}
"""The function that writes a file, by the file's suffix."""


def name_of(source: str) -> str:
    """The name of a source of texts in messages."""
    return "standard input" if source == "-" else source


def read_texts(
    source: str, columns: tuple[str, ...], repairs: Counter[str], ids: deque[str] | None = None
) -> Iterator[Text]:
    """Yields the texts of `source`: its lines, or one or two `columns` of its rows.

    Before each text of a row, the row's `row_id` is appended to `ids`. Raises UsageError, before the first text, if
    `source` doesn't have that form.
    """
    if len(columns) > 2:
        raise UsageError(f"--texts {' '.join(columns)} are {len(columns)} columns; give one, or a pair's two")
    if format_of(source) in ("conll", "conllu"):
        raise UsageError(f"{source} has words and no texts; give a text a line, or a .csv, .tsv, .jsonl or .parquet")
    if columns:
        if source == "-":
            raise UsageError("standard input holds a text a line and has no columns; leave --texts out")
        remedy = "name columns that are there by --texts"

        def row_text(record: Record) -> Text:
            if ids is not None:
                ids.append(row_id(record.values))
            texts = [text(record, column, remedy) for column in columns]
            return texts[0] if len(texts) == 1 else (texts[0], texts[1])

        return map(row_text, task_records(source, repairs))
    if has_columns(source):
        first = next(iter(task_records(source, Counter())), Record(source, {}))
        raise UsageError(
            f"{source} has the columns {listed(first.columns or first.values)}; name that of the texts by --texts"
        )
    path = place_of("/dev/stdin" if source == "-" else source)
    return (line.rstrip("\r\n") for line in decoded_lines(path, repairs))
