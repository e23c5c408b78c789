"""The table of the formats of files that records are read from."""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, get_args

from bert_jax.config.task import FileFormat
from bert_jax.records.compressed_files import suffix
from bert_jax.records.conll_files import conll_records, conllu_records
from bert_jax.records.decoded_lines import InputFile
from bert_jax.records.record import Record, RowFormat
from bert_jax.records.record_files import jsonl_records, parquet_records, squad_records
from bert_jax.records.table_files import csv_records, text_records, tsv_records

BLANK_LINE, LINE_END = re.compile(rb"\n[ \t\r]*\n|\n(?=<doc )"), re.compile(rb"\n")
"""The end of a document in a text file, and of a record in JSON lines."""


class Format(NamedTuple):
    """A format of files, plain or compressed."""

    read: Callable[[InputFile, RowFormat], Iterable[Record]]
    """Yields the records of a file."""
    suffixes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Those of the settings `task.columns` and `task.separator` that apply to the format. Other formats name their own
    columns."""
    separator: re.Pattern[bytes] | None = None
    """The end of a document; None if reading from the middle of a file can't find an end."""


FORMATS: dict[str, Format] = {
    "text": Format(text_records, settings=("columns",), separator=BLANK_LINE),
    "jsonl": Format(jsonl_records, (".jsonl", ".ndjson"), separator=LINE_END),
    "parquet": Format(parquet_records, (".parquet",)),
    "csv": Format(csv_records, (".csv",), ("columns", "separator")),
    "tsv": Format(tsv_records, (".tsv", ".txt"), ("columns", "separator")),
    "conll": Format(conll_records, (".conll", ".bio", ".bmes"), ("columns",)),
    "conllu": Format(conllu_records, (".conllu",)),
    "squad": Format(squad_records, (".json",)),
}
ROW_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
"""The formats of a task's rows."""
_BY_SUFFIX = {end: name for name in ROW_FORMATS for end in FORMATS[name].suffixes}


def format_of(source: str) -> FileFormat | None:
    """The format of a file of rows by its suffix, ignoring .gz and .zst; None if the suffix is unknown."""
    return _BY_SUFFIX.get(suffix(source))


def has_columns(source: str) -> bool:
    """Whether `source` has rows with columns, judged by its name. A .txt file may have columns, but doesn't count."""
    return source.startswith("tfds:") or suffix(source) in _BY_SUFFIX.keys() - {".txt"}


def takes_columns(format: FileFormat | None) -> bool:
    """Whether task.columns can name the columns of a file of this format."""
    return format is not None and "columns" in FORMATS[format].settings
