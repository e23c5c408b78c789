"""Reads files of records by their format."""

from collections.abc import Callable, Iterable

from bert_jax.config.data import FORMATS, FileFormat
from bert_jax.records.compressed_files import suffix
from bert_jax.records.conll_files import conll_records, conllu_records
from bert_jax.records.decoded_lines import InputFile
from bert_jax.records.record import Record, RowFormat
from bert_jax.records.record_files import jsonl_records, parquet_records, squad_records
from bert_jax.records.table_files import csv_records, text_records, tsv_records

READERS: dict[str, Callable[[InputFile, RowFormat], Iterable[Record]]] = {
    "csv": csv_records,
    "tsv": tsv_records,
    "jsonl": jsonl_records,
    "conll": conll_records,
    "conllu": conllu_records,
    "squad": squad_records,
    "text": text_records,
    "parquet": parquet_records,
}
"""For each format, the function that yields the records of a file."""
_BY_SUFFIX = {end: name for name in FORMATS for end in FORMATS[name].suffixes}


def format_of(source: str) -> FileFormat | None:
    """The format of a file of rows by its suffix, ignoring .gz and .zst; None if the suffix is unknown."""
    return _BY_SUFFIX.get(suffix(source))


def has_columns(source: str) -> bool:
    """Whether `source` has rows with columns, judged by its name. A .txt file may have columns, but doesn't count."""
    return source.startswith("tfds:") or suffix(source) in _BY_SUFFIX.keys() - {".txt"}


def takes_columns(format: FileFormat | None) -> bool:
    """Whether task.columns can name the columns of a file of this format."""
    return format is not None and "columns" in FORMATS[format].settings
