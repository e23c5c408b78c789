"""Rows with named columns: csv, tsv and JSON lines."""

import csv
from collections.abc import Iterable, Iterator, Sequence

from bert_jax.data.jsonl_files import kind_of, parsed
from bert_jax.data.task_record import Record
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError

_Row = tuple[int, list[str]]
"""The number of a row's first line, and its fields."""


def csv_records(path: Place, lines: Iterable[str], columns: Sequence[str] | None) -> Iterator[Record]:
    """Rows with commas, of which a field may be quoted and then hold commas, line feeds and doubled quotes."""
    return _named(path, _csv_rows(path, lines), columns)


def tsv_records(path: Place, lines: Iterable[str], columns: Sequence[str] | None) -> Iterator[Record]:
    """Rows with tabs; quotes are ordinary characters, as in GLUE's files."""
    rows = ((number, line.rstrip("\r\n").split("\t")) for number, line in enumerate(lines, 1) if line.strip())
    return _named(path, rows, columns)


def jsonl_records(path: Place, lines: Iterable[str]) -> Iterator[Record]:
    """A JSON object a line."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            place = f"{path}, line {number}"
            value = parsed(line, place)
            if not isinstance(value, dict):
                raise UsageError(f"{place} is {kind_of(value)}; a row is an object with a value for each column")
            yield Record(place, value)


def _csv_rows(path: Place, lines: Iterable[str]) -> Iterator[_Row]:
    reader, begin = csv.reader(lines, strict=True), 1
    try:
        for fields in reader:
            if fields:
                yield begin, fields
            begin = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(
            f"{path}, line {begin}: a row begins here that is not CSV ({error}); mend its quotes, or set task.format"
        ) from None


def _named(path: Place, rows: Iterable[_Row], columns: Sequence[str] | None) -> Iterator[Record]:
    """`rows` with the names in the first of them, or `columns`. Raises UsageError for a row with more fields."""
    names = list(columns) if columns else None
    for number, fields in rows:
        if names is None:
            names = fields
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise UsageError(f"{path}, line {number} names the column {twice!r} twice; rename one")
            continue
        if len(fields) > len(names):
            raise UsageError(
                f"{path}, line {number} has {len(fields)} columns and {len(names)} are named; mend it, or name all "
                "by task.columns"
            )
        yield Record(f"{path}, line {number}", dict(zip(names, fields)))
