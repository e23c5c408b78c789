"""Reads the rows of a task from a file of any supported format, or from a TFDS dataset."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from bert_jax.config.task import FileFormat
from bert_jax.records import limits
from bert_jax.records.compressed_files import check_expansion, opened, suffix
from bert_jax.records.conll_files import conll_records, conllu_records
from bert_jax.records.decoded_lines import decoded_lines
from bert_jax.records.jsonl_files import jsonl_records
from bert_jax.records.record import Record
from bert_jax.records.row_format import BY_SUFFIX, RowFormat
from bert_jax.records.squad_files import squad_records
from bert_jax.records.table_files import csv_records, text_records, tsv_records
from bert_jax.records.tfds_dataset import TFDS_PLACE, tfds_records
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import Setting, UsageError


class _Reader(NamedTuple):
    read: Callable[[Place, Iterator[str], Counter[str], RowFormat], Iterator[Record]]
    """Yields the rows of a file: its path, its lines, the counter of repairs, the settings."""
    suffixes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Which of `columns` and `separator` the format has. The others name their own columns."""
    line_bytes: int = limits.RECORD_BYTES
    """Longest line that is read."""


def _jsonl_records(path: Place, lines: Iterator[str], repairs: Counter[str], form: RowFormat) -> Iterator[Record]:
    return jsonl_records(path, lines, repairs, mend=True)


_READERS: dict[FileFormat, _Reader] = {
    "csv": _Reader(csv_records, (".csv",), ("columns", "separator")),
    "tsv": _Reader(tsv_records, (".tsv", ".txt"), ("columns", "separator")),
    "jsonl": _Reader(_jsonl_records, (".jsonl", ".ndjson")),
    "squad": _Reader(squad_records, (".json",), line_bytes=limits.SQUAD_BYTES),
    "conll": _Reader(conll_records, (".conll", ".bio", ".bmes"), ("columns",)),
    "conllu": _Reader(conllu_records, (".conllu",)),
    "text": _Reader(text_records, (), ("columns",)),
}
_BY_SUFFIX = {end: name for name, reader in _READERS.items() for end in reader.suffixes}
_RECORD_BYTES = 200
"""Memory that a Record takes without its values, in bytes: the tuple and the place."""


def task_records(source: str, repairs: Counter[str], form: RowFormat = BY_SUFFIX) -> Iterator[Record]:
    """Yields the rows of `source`, which is a file or `tfds:NAME/CONFIG:SPLIT`. Only SQuAD's JSON is read whole.

    `repairs` counts what was repaired. Raises UsageError with file and line for rows that can't be read.
    """
    kind, _, place = source.partition(":")
    if kind == "tfds":
        if not (split := TFDS_PLACE.fullmatch(place)) or split[3]:
            raise UsageError(f"{source!r} names no set; expected one like tfds:glue/cola:train")
        return tfds_records(split[1], split[2])
    path, format = place_of(source), form.format or format_of(source)
    if format is None:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; give one file of rows, named .csv, .tsv or .jsonl")
        if suffix(source) == ".ann":
            raise UsageError(
                f"{path} has BRAT's annotations, whose text is in another file; give both as JSON lines, "
                '{"text": ..., "spans": [{"start": 0, "end": 4, "label": "PER"}]}'
            )
        raise UsageError(
            f"{path}: its name doesn't tell how it is written; name it .csv, .tsv or .jsonl, or set "
            f"{Setting('task.format')} to one of {', '.join(_READERS)}"
        )
    reader = _READERS[format]
    if form.columns and "columns" not in reader.settings:
        raise UsageError(
            f"{Setting('task.columns')} names the columns of {path}, and a file of format {format} names its own; "
            "leave it out"
        )
    if form.separator and "separator" not in reader.settings:
        raise UsageError(
            f"{Setting('task.separator')}={form.separator!r} is what separates the columns of a csv or tsv file, "
            f"and {path} is of format {format}; leave it out"
        )
    return reader.read(path, decoded_lines(path, repairs, reader.line_bytes), repairs, form)


def held_records(source: str, repairs: Counter[str], form: RowFormat = BY_SUFFIX) -> list[Record]:
    """All rows of `source` in memory.

    Raises UsageError for rows that can't be read, and if the rows take implausibly much memory for the file's size.
    """
    records: list[Record] = []
    held, compressed = 0, None
    for record in task_records(source, repairs, form):
        records.append(record)
        held += _RECORD_BYTES + _memory(record.values)
        if held > limits.FREE_BYTES:
            compressed = _compressed_bytes(source) if compressed is None else compressed
            check_expansion(source, f"its first {len(records):,} rows take", held, compressed)
    return records


def _memory(value: Any) -> int:
    """The memory in bytes that a JSON value takes, without the keys of objects, which the rows share."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sys.getsizeof(value) + sum([sys.getsizeof(part) if type(part) is str else _memory(part) for part in parts])


def _compressed_bytes(source: str) -> int:
    """Size in bytes of the file `source`; unlimited for a pipe and for a TFDS dataset, which is trusted."""
    path = place_of(source)
    if source.startswith("tfds:") or not path.is_file():
        return sys.maxsize
    with opened(path) as raw:
        return raw.seek(0, os.SEEK_END)


def has_columns(source: str) -> bool:
    """Whether `source` has rows with columns, by its name. A .txt file may have them, but counts as not."""
    return source.startswith("tfds:") or suffix(source) in _BY_SUFFIX.keys() - {".txt"}


def format_of(source: str) -> FileFormat | None:
    """The format of a file by its suffix, ignoring .gz and .zst; None if the suffix is unknown."""
    return _BY_SUFFIX.get(suffix(source))


def takes_columns(format: FileFormat | None) -> bool:
    """Whether the columns of a file of this format can be named by task.columns."""
    return format is not None and "columns" in _READERS[format].settings
