"""Reads the rows of a task from a file of any supported format, or from a TFDS dataset."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from bert_jax.config.task import FileFormat
from bert_jax.corpora.compressed_files import FREE_BYTES, check_held, opened
from bert_jax.corpora.task_record import Record
from bert_jax.corpora.tfds_dataset import tfds_place, tfds_records, tfds_size
from bert_jax.rows.conll_files import conll_records, conllu_records
from bert_jax.rows.line_files import jsonl_records, text_records
from bert_jax.rows.squad_files import squad_records
from bert_jax.rows.table_files import csv_records, tsv_records
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import UsageError

_FORMATS: dict[str, FileFormat] = {".csv": "csv", ".tsv": "tsv", ".txt": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_FORMATS |= {".json": "squad", ".conll": "conll", ".bio": "conll", ".bmes": "conll", ".conllu": "conllu"}
"""The format of a file by its suffix."""
_SEPARATED = {"csv": csv_records, "tsv": tsv_records}
"""Readers of formats whose columns can be named by task.columns and separated by task.separator."""
_WITH_COLUMNS = {"conll": conll_records, "text": text_records}
"""Readers of other formats whose columns can be named."""
_SELF_DESCRIBING = {"jsonl": jsonl_records, "conllu": conllu_records, "squad": squad_records}
"""Readers of formats that name their own columns."""
_RECORD_BYTES = 200
"""Memory that a Record takes without its values, in bytes: the tuple and the place."""


def task_records(
    source: str,
    repairs: Counter[str],
    format: str | None = None,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
) -> Iterator[Record]:
    """Yields the rows of `source`, which is a file or `tfds:NAME/CONFIG:SPLIT`. Only SQuAD's JSON is read whole.

    `format`, `columns` and `separator` are the settings of TaskConfig: by default the suffix of the file and its first
    line decide. `repairs` counts what was repaired. Raises UsageError with file and line for rows that can't be read.
    """
    kind, _, place = source.partition(":")
    if kind == "tfds":
        if not (parts := tfds_place(place)) or parts[2]:
            raise UsageError(f"{source!r} names no set; expected one like tfds:glue/cola:train")
        return tfds_records(*parts[:2])
    path, format = place_of(source), format or format_of(source)
    if format is None:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; give one file of rows, named .csv, .tsv or .jsonl")
        raise UsageError(
            f"{path}: its name doesn't tell how it is written; name it .csv, .tsv or .jsonl, or set task.format to one "
            f"of {', '.join(dict.fromkeys(_FORMATS.values()))}, text"
        )
    if columns and not takes_columns(format):
        raise UsageError(
            f"task.columns names the columns of {path}, and a file of format {format} names its own; leave it out"
        )
    if format in _SEPARATED:
        return _SEPARATED[format](path, columns, separator, repairs)
    if separator:
        raise UsageError(
            f"task.separator={separator!r} is what separates the columns of a csv or tsv file, and {path} is of format "
            f"{format}; leave it out"
        )
    if format in _WITH_COLUMNS:
        return _WITH_COLUMNS[format](path, columns, repairs)
    return _SELF_DESCRIBING[format](path, repairs)


def held_records(source: str, repairs: Counter[str], *written: Any) -> list[Record]:
    """All rows of `source` in memory; `written` is its format, columns and separator, as in `task_records`.

    Raises UsageError for rows that can't be read, and if the rows take implausibly much memory for the file's size.
    """
    records, held, compressed = [], 0, None
    for record in task_records(source, repairs, *written):
        records.append(record)
        held += _RECORD_BYTES + _memory(record.values)
        if held > FREE_BYTES:
            compressed = _compressed_bytes(source) if compressed is None else compressed
            check_held(source, len(records), held, compressed)
    return records


def _memory(value: Any) -> int:
    """The memory in bytes that a JSON value takes, without the keys of objects, which the rows share."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sys.getsizeof(value) + sum([sys.getsizeof(part) if type(part) is str else _memory(part) for part in parts])


def _compressed_bytes(source: str) -> int:
    """Size in bytes of the files that contain the rows of `source`; unlimited for a pipe, as it isn't compressed."""
    if source.startswith("tfds:") and (parts := tfds_place(source.removeprefix("tfds:"))):
        return tfds_size(*parts[:2])
    path = place_of(source)
    if not path.is_file():
        return sys.maxsize
    with opened(path) as raw:
        return raw.seek(0, os.SEEK_END)


def has_columns(source: str) -> bool:
    """Whether the name of `source` says that it has rows with columns. A .txt file may have them, but counts as not."""
    return source.startswith("tfds:") or suffix(source) in _FORMATS.keys() - {".txt"}


def format_of(source: str) -> FileFormat | None:
    """The format of a file by its suffix, ignoring .gz and .zst; None if the suffix is unknown."""
    return _FORMATS.get(suffix(source))


def takes_columns(format: str | None) -> bool:
    """Whether the columns of a file of this format can be named by task.columns."""
    return format in _SEPARATED or format in _WITH_COLUMNS


def suffix(source: str) -> str:
    """The suffix of a file's name, ignoring .gz and .zst; empty if there is none."""
    return next((end for end in reversed(PurePath(source).suffixes) if end not in (".gz", ".zst")), "")
