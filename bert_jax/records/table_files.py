"""Reads rows with named columns from CSV and TSV files."""

import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from bert_jax.config.wording import counted
from bert_jax.records import limits
from bert_jax.records.decoded_lines import InputFile, decoded_lines
from bert_jax.records.record import Record, RowFormat, check_names
from bert_jax.records.record_files import EMPTY_LINES
from bert_jax.system.bucket import Place
from bert_jax.system.errors import Setting, UsageError, listed
from bert_jax.system.progress import say

_SEPARATORS = ",;\t|"
"""Separators of .csv files, the most likely first."""
_NAMED = {"\t": "tab"}
"""Names of separators that are invisible in a message."""
_LOOKED_AT = 10_000
"""Number of blank lines, and of characters of the first other line, that are examined to find the separator."""
_Row = tuple[int, list[str]]
"""The number of a row's first line, and the row's fields; an empty line has no fields."""
_NUMBER = re.compile(r"[-+.\deE]*")
"""A field that may lack quotes even if the writer quotes all texts: a number, or nothing."""
_HEADER = "lines of column names left out"


def csv_records(file: InputFile, row_format: RowFormat) -> Iterator[Record]:
    """Yields the rows of a CSV file. Quoted fields may contain separators, line feeds and doubled quotes.

    If no separator is given, it is guessed from the first line; a guess other than a comma is reported. In a file with
    one column an empty line is an empty text, except at the file's end. In other files empty lines are skipped and
    counted. Raises UsageError for rows that can't be read.
    """
    lines, separator = file.lines(), row_format.separator
    if separator is None:
        begin: list[str] = []
        for line in itertools.islice(lines, _LOOKED_AT):
            begin.append(line)
            if line.strip():
                break
        lines = itertools.chain(begin, lines)
        separator = likely_separator(begin[-1] if begin else "", len(row_format.columns or ()))
        if separator != ",":
            say(f"{file.path}: columns are separated by {_NAMED.get(separator, separator)}")
    return _named(file, _csv_rows(file.path, lines, separator), row_format.columns)


def tsv_records(file: InputFile, row_format: RowFormat) -> Iterator[Record]:
    """Yields the rows of a TSV file, with tabs or another separator.

    Quotes are ordinary characters, as in GLUE, unless the whole file is quoted in the way of CSV writers, which is
    reported. Empty lines are read as by `csv_records`. Raises UsageError for rows that can't be read.
    """
    separator = row_format.separator or "\t"
    if file.path.is_file() and has_csv_quotes(decoded_lines(file.path), separator):
        say(f"{file.path}: quotes around fields are taken off, as this file is written as CSV writers quote")
        return _named(file, _csv_rows(file.path, file.lines(), separator), row_format.columns)
    return _named(file, _tsv_rows(file.path, file.lines(), separator), row_format.columns)


def has_csv_quotes(lines: Iterable[str], separator: str) -> bool:
    """Whether a CSV writer set the quotes in these lines.

    Three conditions hold then. Quotes are only around fields, with inner quotes doubled. Each row has as many fields as
    the first. Either some field needs its quotes, or all fields but numbers have them.
    """
    csv.field_size_limit(limits.RECORD_BYTES)  # the default limit is 131,072 characters
    mark = re.escape(separator)
    field = f'"(?:[^"]++|"")*+"|[^"{mark}\r\n]*'
    row = re.compile(f"(?:{field})(?:{mark}(?:{field}))*")
    width, needed, bare = 0, False, False
    for content in _closed(lines):
        if not row.fullmatch(content):
            return False
        fields = next(csv.reader([content], delimiter=separator), [])
        width = width or len(fields)
        if fields and len(fields) != width:
            return False
        if "\n" in content and all(line.count(separator) == width - 1 for line in content.split("\n")):
            return False  # each line is a row with a quote
        needed = needed or any(re.search(f'[{mark}"\r\n]', value) for value in fields)
        bare = bare or content.count('"') < 2 * sum(not _NUMBER.fullmatch(value) for value in fields)
    return bool(width) and (needed or not bare)


def _closed(lines: Iterable[str]) -> Iterator[str]:
    """Yields lines, joined until their number of quotes is even or they exceed RECORD_BYTES characters."""
    parts: list[str] = []
    size, is_open = 0, False
    for line in lines:
        parts.append(line)
        size, is_open = size + len(line), is_open ^ bool(line.count('"') % 2)
        if not is_open or size > limits.RECORD_BYTES:
            yield "".join(parts).rstrip("\r\n")
            parts, size, is_open = [], 0, False
    if parts:
        yield "".join(parts)


def text_records(file: InputFile, row_format: RowFormat) -> Iterator[Record]:
    """Yields a record per line, including empty lines. Raises UsageError if more than one column is named."""
    name, *others = row_format.columns or ("text",)
    if others:
        raise UsageError(f"{file.path} has a text a line, and {len(others) + 1} columns are named; name one")
    for number, line in enumerate(file.lines(), 1):
        yield Record(f"{file.path}, line {number}", {name: line.rstrip("\r\n")}, (name,))


def likely_separator(line: str, columns: int) -> str:
    """Guesses the separator of `line`: comma, semicolon, tab or vertical bar, tried in this order.

    The result is the first one that gives `columns` fields. If there is none, or `columns` is 0 (unknown), it is the
    first one that occurs outside of quotes; if there is none either, the comma.
    """
    begin = line[:_LOOKED_AT].strip("\r\n").partition("\r")[0]  # csv refuses a carriage return without quotes
    fields = {separator: len(next(csv.reader([begin], delimiter=separator), [])) for separator in _SEPARATORS}
    consistent = [separator for separator in _SEPARATORS if columns > 1 and fields[separator] == columns]
    present = [separator for separator in _SEPARATORS if fields[separator] > 1]
    return [*consistent, *present, ","][0]


def _tsv_rows(path: Place, lines: Iterable[str], separator: str) -> Iterator[_Row]:
    for number, line in enumerate(lines, 1):
        _check_width(path, number, line, separator)
        yield number, line.rstrip("\r\n").split(separator) if line.strip() or separator in line else []


def _csv_rows(path: Place, lines: Iterable[str], separator: str) -> Iterator[_Row]:
    csv.field_size_limit(limits.RECORD_BYTES)  # the default limit is 131,072 characters
    begin, size = 1, 0

    def bounded() -> Iterator[str]:
        nonlocal size
        for number, line in enumerate(lines, 1):
            _check_width(path, number, line, separator)
            size += len(line)
            if size > limits.RECORD_BYTES:
                raise UsageError(
                    f"{path}, line {begin}: a row begins here that has more than {limits.RECORD_BYTES:,} characters; "
                    "mend its quotes, cut it or leave it out"
                )
            yield line

    reader = csv.reader(bounded(), strict=True, delimiter=separator)
    try:
        for fields in reader:
            yield begin, fields
            begin, size = reader.line_num + 1, 0
    except csv.Error as error:
        if str(error).startswith("new-line character"):
            raise UsageError(
                f"{path}, line {begin}: a row begins here that has a carriage return outside quotes; quote its field, "
                "or take the character out"
            ) from None
        raise UsageError(
            f"{path}, line {begin}: a row begins here that is not CSV ({error}); mend its quotes, or set "
            f"{Setting('task.format')}"
        ) from None


def _check_width(path: Place, number: int, line: str, separator: str) -> None:
    if len(line) > limits.COLUMNS and line.count(separator) > limits.COLUMNS:
        raise UsageError(
            f"{path}, line {number} has {line.count(separator):,} separators between columns, and at most "
            f"{limits.COLUMNS:,} are read; leave out columns that the task doesn't need"
        )


def _named(file: InputFile, rows: Iterator[_Row], columns: Sequence[str] | None) -> Iterator[Record]:
    """Yields `rows` as records, with the names in `columns`, or else in the first row.

    With `columns`, a first row that repeats exactly these names is skipped. Raises UsageError if a row has more fields
    than names, if a name occurs twice, or if the first row seems to name the columns in another way.
    """
    path, repairs = file.path, file.progress.repairs
    if columns:
        names, place, where = list(columns), "task.columns", ""
    else:
        number, header = next((row for row in rows if row[1]), (1, []))
        names = [name if name.strip() else f"column {place}" for place, name in enumerate(header, 1)]
        place, where = f"{path}, line {number}", f"in line {number} or, if that is a row itself, "
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
                f"{path}, line {begin[0][0]} names columns, {listed(first)}, and they are named {listed(names)} by "
                f"{Setting('task.columns')}; leave that out, or this line"
            )
    for number, fields in itertools.chain(begin, rows):
        if len(fields) > len(names):
            raise UsageError(
                f"{path}, line {number} has {counted(len(fields), 'columns')} and {counted(len(names), 'names')} "
                f"for them; mend it, name all {where}by {Setting('task.columns')}, or say by "
                f"{Setting('task.separator')} what is between them"
            )
        yield Record(f"{path}, line {number}", dict(zip(names, fields, strict=False)), all_names)


def _without_empty(rows: Iterable[_Row], one_column: bool, repairs: Counter[str]) -> Iterator[_Row]:
    """Yields `rows` without empty lines, which `repairs` counts; with `one_column` they become empty texts instead.

    Empty lines at the end are dropped without being counted.
    """
    waiting = 0
    for number, fields in rows:
        if not fields:
            waiting += 1
            continue
        if one_column:
            yield from ((number - waiting + place, [""]) for place in range(waiting))
        elif waiting:
            repairs[EMPTY_LINES] += waiting
        waiting = 0
        yield number, fields
