"""The rows of a task, whatever their file is written as."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from bert_jax.data.conll_files import conll_records, conllu_records
from bert_jax.data.decoded_lines import decoded_lines
from bert_jax.data.squad_files import squad_records
from bert_jax.data.table_files import csv_records, jsonl_records, tsv_records
from bert_jax.data.task_record import Record
from bert_jax.data.tfds_dataset import tfds_place, tfds_records
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import UsageError

_FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "squad",
    ".conll": "conll",
    ".bio": "conll",
    ".bmes": "conll",
    ".conllu": "conllu",
}
_WITH_COLUMNS = {"csv": csv_records, "tsv": tsv_records, "conll": conll_records}
_WITHOUT = {"jsonl": jsonl_records, "conllu": conllu_records, "squad": squad_records}
_COUNTING = ("csv", "tsv", "jsonl")
"""Empty lines are left out of these, and counted."""


def task_records(
    source: str, repairs: Counter[str], format: str | None = None, columns: Sequence[str] | None = None
) -> Iterator[Record]:
    """The rows of `source`, a file or `tfds:NAME/CONFIG:SPLIT`, one after the other; SQuAD's JSON is read whole.

    `format` and `columns` as in TaskConfig; `repairs` counts what was mended. Raises UsageError with file and line for
    what can't be.
    """
    kind, _, place = source.partition(":")
    if kind == "tfds":
        if not (parts := tfds_place(place)) or parts[2]:
            raise UsageError(f"{source!r} names no set; expected one like tfds:glue/cola:train")
        return tfds_records(*parts[:2])
    path = place_of(source)
    format = format or format_of(source)
    if format is None:
        raise UsageError(
            f"{path}: its name doesn't tell how it is written; name it .csv, .tsv or .jsonl, or set "
            "task.format (of predict --format) to one of "
            f"{', '.join(dict.fromkeys(_FORMATS.values()))}"
        )
    if columns and format in _WITHOUT:
        raise UsageError(
            f"task.columns (of predict --columns) names the columns of {path}, and a file of format {format} names its "
            "own"
        )
    lines, counted = decoded_lines(path, repairs), [repairs] if format in _COUNTING else []
    if format in _WITH_COLUMNS:
        return _WITH_COLUMNS[format](path, lines, columns, *counted)
    return _WITHOUT[format](path, lines, *counted)


def has_columns(source: str) -> bool:
    """Whether `source` is written as rows of columns, as far as its name tells; a .txt may be either and counts not."""
    return source.startswith("tfds:") or suffix(source) in _FORMATS.keys() - {".txt"}


def format_of(source: str) -> str | None:
    """What a file is written as, by the end of its name, before .gz or .zst; None where that doesn't tell."""
    return _FORMATS.get(suffix(source))


def takes_columns(format: str | None) -> bool:
    """Whether the columns of such a file may be named by a setting."""
    return format in _WITH_COLUMNS


def suffix(source: str) -> str:
    """The end of a file's name, before .gz or .zst."""
    return next((end for end in reversed(PurePath(source).suffixes) if end not in (".gz", ".zst")), "")
