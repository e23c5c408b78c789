"""Sources by their names: KIND:PLACE of a corpus, or a file or set of a task's rows."""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.config.data import FORMATS
from bert_jax.records import limits
from bert_jax.records.compressed_files import check_expansion, opened, suffix
from bert_jax.records.decoded_lines import InputFile, Pass
from bert_jax.records.file_source import FileSource
from bert_jax.records.formats import format_of
from bert_jax.records.hf_dataset import HF_PLACE, HfSource
from bert_jax.records.python_docs import PythonDocs
from bert_jax.records.record import BY_SUFFIX, Record, RowFormat
from bert_jax.records.source import Source
from bert_jax.system.bucket import Place, place_of, scheme_of
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.files import matching_files

_FIELD = "text"
"""Default field of a file of records, if none is named after #."""
RECORD_SUFFIXES = {end: name for name in ("jsonl", "parquet") for end in FORMATS[name].suffixes}
"""Suffixes of files with a document in each record."""
_TABLES = (".csv", ".tsv")
"""Suffixes of tables. They are refused unless written text:FILE."""
_RECORD_BYTES = 200
"""Memory that a Record takes without its values, in bytes: the tuple and the place."""
_TFDS_PLACE = re.compile(r"([\w/.-]+(?::[\d*]+[.][\d*]+[.][\d*]+)?):([^#]+)(?:#(.+))?")
"""NAME/CONFIG with an optional version (`:1.0.0`), SPLIT in TFDS' syntax (`train[:1%]`), and an optional FEATURE."""


class _Kind(NamedTuple):
    """A kind of source, KIND:PLACE."""

    open: Callable[..., Source]
    """Opens a source. Its arguments are the groups of `place`."""
    place: re.Pattern[str]
    """Regular expression that PLACE must match."""
    example: str


def _tfds_text(name: str, split: str, feature: str | None) -> Source:
    from bert_jax.records.tfds_dataset import TfdsSource  # imports TFDS, which takes half a second

    return TfdsSource.of_text(name, split, feature)


_FILES_AND_FIELD = re.compile("(.+)#([^#]+)", re.DOTALL)
"""A path or pattern of files, and a field."""
_KINDS = {
    "text": _Kind(partial(FileSource.matching, "text"), re.compile("(.+)", re.DOTALL), "text:corpus/*.txt.gz"),
    "jsonl": _Kind(partial(FileSource.matching, "jsonl"), _FILES_AND_FIELD, "jsonl:corpus/*.jsonl.zst#text"),
    "parquet": _Kind(partial(FileSource.matching, "parquet"), _FILES_AND_FIELD, "parquet:corpus/*.parquet#text"),
    "tfds": _Kind(_tfds_text, _TFDS_PLACE, "tfds:imdb_reviews/plain_text:train"),
    "hf": _Kind(HfSource, HF_PLACE, "hf:OWNER/SET:train#text"),
}


def open_source(source: str) -> Source:
    """Opens a source of text, KIND:PLACE.

    Raises UsageError if it has an invalid name, is missing, or its first record lacks the field of the text.
    """
    if source == "python-docs":
        return PythonDocs()
    name, _, place = source.partition(":")
    kind = _KINDS[name]
    if groups := kind.place.fullmatch(place):
        return kind.open(*groups.groups())
    if kind.place is _FILES_AND_FIELD and (path := place.rstrip("#")) and path[0] != "#":
        raise UsageError(
            f"{Setting('data.source')}={source!r} lacks #FIELD, the field that holds the text; write it like "
            f"{name}:{path}#{_FIELD}"
        )
    raise UsageError(f"{Setting('data.source')}={source!r} names no corpus; expected one like {kind.example}")


def names_source(text: str) -> bool:
    """Whether `text` is a source, KIND:PLACE, and not the path or pattern of files."""
    return text == "python-docs" or text.partition(":")[0] in _KINDS


def resolved_source(text: str) -> str:
    """Resolves a user's `text` to KIND:PLACE: a source stays as it is, a path or pattern of files gets its kind.

    The suffix of a file decides the kind: .jsonl and .parquet files hold records, and #FIELD may follow. All others
    hold plain text. Raises UsageError if no file matches.
    """
    if names_source(text):
        return text
    files, _, field = text.rpartition("#")
    if not files or matching_files(text):
        files, field = text, ""
    if not scheme_of(files) and place_of(files).is_dir():
        raise UsageError(f"{text!r} is a folder; name its files by a pattern like {Path(files) / '*.txt'}")
    if not matching_files(files):
        examples = " or ".join([*(kind.example for kind in _KINDS.values()), "python-docs"])
        raise UsageError(f"no file matches {text!r}; expected a path or pattern, or {examples}")
    end = suffix(files)
    if end in _TABLES:
        raise UsageError(
            f"{text!r} is a table and not read as text; write its column of text as plain text, JSON lines or Parquet"
        )
    if end in RECORD_SUFFIXES:
        return f"{RECORD_SUFFIXES[end]}:{files}#{field or _FIELD}"
    if _begins_with_record(next(iter(matching_files(files)))):
        if end != ".json":
            raise UsageError(f"{text!r} has JSON on its lines; name the field of the text: jsonl:{files}#{_FIELD}")
        return f"jsonl:{files}#{field or _FIELD}"
    if end == ".json":
        raise UsageError(f"{text!r} has no JSON object on each line; write it so: jq -c '.[]' OLD > NEW.jsonl")
    return f"text:{text}"


def _begins_with_record(path: Place) -> bool:
    """Whether the first line of a file is a JSON object. Raises UsageError for a file that holds no text."""
    with opened(path) as raw:
        _, line = next(InputFile(path, raw, Pass()).parts(), (1, b""))
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def open_rows(source: str, row_format: RowFormat = BY_SUFFIX) -> Source:
    """Opens the rows of a task: a file, or `tfds:NAME/CONFIG:SPLIT`.

    Raises UsageError if the format isn't known or doesn't have the settings of `row_format`. A file is opened only when
    its rows are read, so it may be a pipe.
    """
    kind, _, place = source.partition(":")
    if kind == "tfds":
        from bert_jax.records.tfds_dataset import TfdsSource

        if not (split := _TFDS_PLACE.fullmatch(place)) or split[3]:
            raise UsageError(f"{source!r} names no set; expected one like tfds:glue/cola:train")
        return TfdsSource(split[1], split[2])
    path, format = place_of(source), row_format.format or format_of(source)
    if format is None:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; give one file of rows, named .csv, .tsv, .jsonl or .parquet")
        if suffix(source) == ".ann":
            raise UsageError(
                f"{path} has BRAT's annotations, whose text is in another file; give both as JSON lines, "
                '{"text": ..., "spans": [{"start": 0, "end": 4, "label": "PER"}]}'
            )
        raise UsageError(
            f"{path}: its name doesn't tell how it is written; name it .csv, .tsv, .jsonl or .parquet, or set "
            f"{Setting('task.format')} to one of {', '.join(FORMATS)}"
        )
    if row_format.columns and "columns" not in FORMATS[format].settings:
        raise UsageError(
            f"{Setting('task.columns')} names the columns of {path}, and a file of format {format} names its own; "
            "leave it out"
        )
    if row_format.separator and "separator" not in FORMATS[format].settings:
        raise UsageError(
            f"{Setting('task.separator')}={row_format.separator!r} is what separates the columns of a csv or tsv file, "
            f"and {path} is of format {format}; leave it out"
        )
    return FileSource(format, row_format, {path: 0})


def task_records(source: str, repairs: Counter[str], row_format: RowFormat = BY_SUFFIX) -> Iterator[Record]:
    """Yields the rows of `source`, which `open_rows` opens. Only SQuAD's JSON is read whole.

    `repairs` counts what was repaired. Raises UsageError with file and line for rows that can't be read.
    """
    return open_rows(source, row_format).records(Pass(repairs, mends=True))


def held_records(source: str, repairs: Counter[str], row_format: RowFormat = BY_SUFFIX) -> list[Record]:
    """All rows of `source` in memory.

    Raises UsageError for rows that can't be read, and if the rows take implausibly much memory for the file's size.
    """
    records: list[Record] = []
    held, compressed = 0, None
    for record in task_records(source, repairs, row_format):
        records.append(record)
        held += _RECORD_BYTES + _memory(record.values)
        if held > limits.FREE_BYTES:
            compressed = _compressed_bytes(source) if compressed is None else compressed
            check_expansion(source, f"its first {len(records):,} rows take", held, compressed)
    return records


def _memory(value: Any) -> int:
    """The memory in bytes of a JSON value, without the keys of objects, which the rows share."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sys.getsizeof(value) + sum([sys.getsizeof(part) if type(part) is str else _memory(part) for part in parts])


def _compressed_bytes(source: str) -> int:
    """Size in bytes of the file `source`. It is unlimited for a pipe, and for a TFDS dataset, which is trusted."""
    if source.startswith("tfds:") or not place_of(source).is_file():
        return sys.maxsize
    with opened(place_of(source)) as raw:
        return raw.seek(0, os.SEEK_END)
