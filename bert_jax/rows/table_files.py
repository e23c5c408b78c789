"""Rows with named columns: csv and tsv."""

import csv
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from bert_jax.corpora.decoded_lines import decoded_lines
from bert_jax.corpora.jsonl_files import MAX_RECORD_BYTES
from bert_jax.corpora.shown import counted, listed
from bert_jax.corpora.task_record import Record, check_names
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.progress import say

MOST_COLUMNS = 100_000
"""Separators in a line. Of millions each would cost a hundred bytes of memory."""
_SEPARATORS = ",;\t|"
"""Of a .csv, the likeliest first."""
_NAMED = {"\t": "tab"}
_LOOKED_AT = 10_000
"""Blank lines and characters of a line that are looked at to find the separator."""
_Row = tuple[int, list[str]]
"""The number of a row's first line, and its fields; an empty line has none."""
_EMPTY = "empty lines left out"
_HEADER = "line of column names left out"


def csv_records(
    path: Place, columns: Sequence[str] | None, separator: str | None, repairs: Counter[str]
) -> Iterator[Record]:
    """Rows of which a field may be quoted and then hold separators, line feeds and doubled quotes.

    Without `separator` it is the comma, or what the first line has instead, which is said. In a file of one column an
    empty line is an empty text, unless it is at the file's end. In others it is left out, which `repairs` counts.
    """
    lines = decoded_lines(path, repairs)
    if separator is None:
        begin = []
        for line in itertools.islice(lines, _LOOKED_AT):
            begin.append(line)
            if line.strip():
                break
        lines, separator = itertools.chain(begin, lines), likely_separator("".join(begin[-1:]), len(columns or ()))
        if separator != ",":
            say(f"{path}: columns are separated by {_NAMED.get(separator, separator)}")
    return _named(path, _csv_rows(path, lines, separator), columns, repairs)


def tsv_records(
    path: Place, columns: Sequence[str] | None, separator: str | None, repairs: Counter[str]
) -> Iterator[Record]:
    """Rows with tabs, or another `separator`; quotes are ordinary characters, as in GLUE's files. Empty lines as in
    csv_records."""
    return _named(path, _tsv_rows(path, decoded_lines(path, repairs), separator or "\t"), columns, repairs)


def likely_separator(line: str, columns: int) -> str:
    """The first of comma, semicolon, tab and vertical bar that cuts `line` into `columns`; where none does, or 0
    columns are known, the first that it has outside of quotes; the comma where it has none."""
    begin = line[:_LOOKED_AT].strip("\r\n")
    fields = {one: len(next(csv.reader([begin], delimiter=one), [])) for one in _SEPARATORS}
    fitting = [one for one in _SEPARATORS if columns > 1 and fields[one] == columns]
    there = [one for one in _SEPARATORS if fields[one] > 1]
    return [*fitting, *there, ","][0]


def _tsv_rows(path: Place, lines: Iterable[str], separator: str) -> Iterator[_Row]:
    for number, line in enumerate(lines, 1):
        _check_width(path, number, line, separator)
        yield number, line.rstrip("\r\n").split(separator) if line.strip() or separator in line else []


def _csv_rows(path: Place, lines: Iterable[str], separator: str) -> Iterator[_Row]:
    csv.field_size_limit(MAX_RECORD_BYTES)  # the module's own is 131,072 characters
    begin, size = 1, 0

    def bounded() -> Iterator[str]:
        nonlocal size
        for number, line in enumerate(lines, 1):
            _check_width(path, number, line, separator)
            size += len(line)
            if size > MAX_RECORD_BYTES:
                raise UsageError(
                    f"{path}, line {begin}: a row begins here that has more than {MAX_RECORD_BYTES:,} characters; "
                    "mend its quotes, cut it or leave it out"
                )
            yield line

    reader = csv.reader(bounded(), strict=True, delimiter=separator)
    try:
        for fields in reader:
            yield begin, fields
            begin, size = reader.line_num + 1, 0
    except csv.Error as error:
        raise UsageError(
            f"{path}, line {begin}: a row begins here that is not CSV ({error}); mend its quotes, or set task.format"
        ) from None


def _check_width(path: Place, number: int, line: str, separator: str) -> None:
    if len(line) > MOST_COLUMNS and line.count(separator) > MOST_COLUMNS:
        raise UsageError(
            f"{path}, line {number} has {line.count(separator):,} separators between columns, and at most "
            f"{MOST_COLUMNS:,} are read; leave out columns that the task doesn't need"
        )


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
    rows, all_names = without_empty(rows, len(names) == 1, repairs), tuple(names)
    begin = list(itertools.islice(rows, 1))
    if columns and begin:
        first = begin[0][1]
        if first == names:
            repairs[_HEADER] += 1
            begin = []
        elif len(set(first) & set(names)) > 1:
            raise UsageError(
                f"{path}, line {begin[0][0]} names columns, {listed(first)}, and they are named {listed(names)} "
                "by task.columns; leave that out, or this line"
            )
    for number, fields in itertools.chain(begin, rows):
        if len(fields) > len(names):
            raise UsageError(
                f"{path}, line {number} has {counted(len(fields), 'column')} and {counted(len(names), 'name')} "
                "for them; mend it, name all by task.columns, or say by task.separator what is between them"
            )
        yield Record(f"{path}, line {number}", dict(zip(names, fields)), all_names)


def without_empty(rows: Iterable[_Row], one_column: bool, repairs: Counter[str]) -> Iterator[_Row]:
    """`rows` without empty lines, which are counted unless they come last; those of one column are empty texts."""
    waiting = 0
    for number, fields in rows:
        if not fields:
            waiting += 1
            continue
        if one_column:
            yield from ((number - waiting + place, [""]) for place in range(waiting))
        elif waiting:
            repairs[_EMPTY] += waiting
        waiting = 0
        yield number, fields
