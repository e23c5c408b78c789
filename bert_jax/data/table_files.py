"""Rows with named columns: csv, tsv and JSON lines."""

import csv
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from bert_jax.data.jsonl_files import MAX_RECORD_BYTES, kind_of, parsed
from bert_jax.data.task_record import Record, check_names
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError

_Row = tuple[int, list[str]]
"""The number of a row's first line, and its fields; an empty line has none."""
_EMPTY = "empty lines left out"
_HEADER = "line of column names left out"


def csv_records(
    path: Place, lines: Iterable[str], columns: Sequence[str] | None, repairs: Counter[str]
) -> Iterator[Record]:
    """Rows with commas, of which a field may be quoted and then hold commas, line feeds and doubled quotes.

    In a file of one column an empty line is an empty text, unless it is at the file's end. In others it is left out,
    which `repairs` counts.
    """
    return _named(path, _csv_rows(path, lines), columns, repairs)


def tsv_records(
    path: Place, lines: Iterable[str], columns: Sequence[str] | None, repairs: Counter[str]
) -> Iterator[Record]:
    """Rows with tabs; quotes are ordinary characters, as in GLUE's files. Empty lines as in csv_records."""
    return _named(path, _tsv_rows(lines), columns, repairs)


def jsonl_records(path: Place, lines: Iterable[str], repairs: Counter[str]) -> Iterator[Record]:
    """A JSON object a line. Empty lines are left out, which `repairs` counts unless they are at the file's end."""
    rows = ((number, [line] if line.strip() else []) for number, line in enumerate(lines, 1))
    for number, (line,) in _without_empty(rows, False, repairs):
        place = f"{path}, line {number}"
        value = parsed(line, place)
        if not isinstance(value, dict):
            raise UsageError(f"{place} is {kind_of(value)}; a row is an object with a value for each column")
        yield Record(place, value)


def _tsv_rows(lines: Iterable[str]) -> Iterator[_Row]:
    for number, line in enumerate(lines, 1):
        yield number, line.rstrip("\r\n").split("\t") if line.strip() or "\t" in line else []


def _csv_rows(path: Place, lines: Iterable[str]) -> Iterator[_Row]:
    csv.field_size_limit(MAX_RECORD_BYTES)  # the module's own is 131,072 characters
    reader, begin = csv.reader(lines, strict=True), 1
    try:
        for fields in reader:
            yield begin, fields
            begin = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(
            f"{path}, line {begin}: a row begins here that is not CSV ({error}); mend its quotes, or set task.format "
            "(of predict and evaluate --format)"
        ) from None


def _named(path: Place, rows: Iterator[_Row], columns: Sequence[str] | None, repairs: Counter[str]) -> Iterator[Record]:
    """`rows` with the names in the first of them, or `columns`; a line of these is no row then either.

    Raises UsageError for a row with more fields, for a name that stands twice, or where the first row names columns
    otherwise.
    """
    if columns:
        names, place = list(columns), "task.columns"
    else:
        number, names = next((row for row in rows if row[1]), (1, []))
        place = f"{path}, line {number}"
    check_names(names, place)
    rows, all_names = _without_empty(rows, len(names) == 1, repairs), tuple(names)
    begin = list(itertools.islice(rows, 1))
    if columns and begin:
        first = begin[0][1]
        if first == names:
            repairs[_HEADER] += 1
            begin = []
        elif len(set(first) & set(names)) > 1:
            raise UsageError(
                f"{path}, line {begin[0][0]} names columns, {', '.join(first)}, and they are named {', '.join(names)} "
                "by task.columns; leave that out (predict and evaluate: give --columns without names), or this line"
            )
    for number, fields in itertools.chain(begin, rows):
        if len(fields) > len(names):
            raise UsageError(
                f"{path}, line {number} has {len(fields)} columns and {len(names)} are named; mend it, or name all "
                "by task.columns (of predict --columns)"
            )
        yield Record(f"{path}, line {number}", dict(zip(names, fields)), all_names)


def _without_empty(rows: Iterable[_Row], one_column: bool, repairs: Counter[str]) -> Iterator[_Row]:
    """`rows` without empty lines, which are counted unless they come last; those of one column are empty texts."""
    waiting: list[_Row] = []
    for row in rows:
        if not row[1]:
            waiting.append((row[0], [""]))
            continue
        if one_column:
            yield from waiting
        elif waiting:
            repairs[_EMPTY] += len(waiting)
        waiting.clear()
        yield row
