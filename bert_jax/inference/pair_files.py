"""Finds and reads files of minimal pairs. Nothing here imports JAX, so that a missing file is reported at once."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from bert_jax.finetuning.columns import text
from bert_jax.records.compressed_files import SUFFIXES, suffix
from bert_jax.records.decoded_lines import decoded_lines
from bert_jax.records.formats import has_columns
from bert_jax.records.record import Record
from bert_jax.records.sources import task_records
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import UsageError
from bert_jax.system.files import matching_files

GROUPS = ("field", "linguistics_term")
"""BLiMP's columns of groups."""
_COLUMNS, _LINES = ("sentence_good", "sentence_bad"), ("2", "1")
"""The columns of the acceptable and of the other sentence, in rows and in pairs of lines: those of BLiMP and Zorro."""
ASSUMED_LINES = (
    "pairs of lines, the second line being the acceptable sentence, as in Zorro (if it is the first: --columns 1 2)"
)
"""What is counted as repaired in files with a sentence a line."""
_REMEDY = "name columns that are there by --columns, and those of groups by --groups"


class MinimalPair(NamedTuple):
    """An acceptable sentence and one that isn't."""

    file: str
    """The name of its file without suffixes."""
    good: str
    bad: str
    groups: dict[str, str]
    """The groups that it belongs to, by column."""


def pair_files(patterns: Sequence[str]) -> dict[str, Place]:
    """The files that paths, folders and patterns name, by their names without suffixes. A folder stands for its files
    of rows or, if it has none, for its .txt files. Raises UsageError if a pattern names no file, and if two files have
    the same name."""
    named: dict[str, Place] = {}
    for pattern in patterns:
        is_folder = place_of(pattern).is_dir()
        files = [*matching_files(f"{pattern}/*" if is_folder else pattern)]
        if is_folder:
            of_rows = [file for file in files if has_columns(str(file))]
            files = of_rows or [file for file in files if suffix(file.name) == ".txt"]
        if not files:
            lacks = "has no file of pairs" if is_folder else "names no file: there is nothing at that path"
            raise UsageError(f"{pattern!r} {lacks}; give files of pairs, such as pairs/*.jsonl.gz")
        for file in files:
            name = (file.with_suffix("") if file.suffix in SUFFIXES else file).stem
            if named.setdefault(name, file) != file:
                raise UsageError(f"{named[name]} and {file} have one name, {name!r}, in the results; rename one")
    return named


def read_pairs(
    files: Mapping[str, Place], columns: Sequence[str] | None, groups: Sequence[str] | None, repairs: Counter[str]
) -> Iterator[MinimalPair]:
    """Yields the pairs of `files`. `groups`: the columns of groups; None: those of GROUPS that a row has.

    `columns`: those of the acceptable and of the other sentence. None: `sentence_good` and `sentence_bad`; in a file
    with a sentence on each line, the second line of a pair is the acceptable sentence. `repairs` counts what is mended
    in the files, and pairs of lines. Raises UsageError with file and line for a row that lacks a column or has
    something else than a text in it.
    """
    for name, path in files.items():
        for record in _records(path, repairs):
            of_lines = "1" in record.values and columns is None
            repairs[ASSUMED_LINES] += of_lines
            good, bad = (text(record, column, _REMEDY) for column in columns or (_LINES if of_lines else _COLUMNS))
            of_pair = [group for group in GROUPS if record.has(group)] if groups is None else groups
            yield MinimalPair(name, good, bad, {group: text(record, group, _REMEDY) for group in of_pair})


def _records(path: Place, repairs: Counter[str]) -> Iterator[Record]:
    """The rows of a file. In a .txt file without tabs two lines are a row, with the columns `1` and `2`."""
    if suffix(path.name) != ".txt" or "\t" in next(decoded_lines(path), ""):
        yield from task_records(str(path), repairs)
        return
    lines = enumerate(map(str.strip, decoded_lines(path, repairs)), 1)
    for (number, first), (_, second) in zip_longest(lines, lines, fillvalue=(0, "")):
        if not (first and second):
            raise UsageError(f"{path}, line {number}: in a .txt file two lines are a pair, and one is blank or missing")
        yield Record(f"{path}, line {number}", {"1": first, "2": second})
