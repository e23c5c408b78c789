"""Reads sentences with one word per line: CoNLL columns and CoNLL-U."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from bert_jax.config.wording import counted
from bert_jax.records import limits
from bert_jax.records.decoded_lines import InputFile, decoded_lines
from bert_jax.records.record import Record, RowFormat, check_names
from bert_jax.system.bucket import Place
from bert_jax.system.errors import Setting, UsageError, listed, quoted

CONLLU_COLUMNS = ("id", "words", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The ten columns of CoNLL-U. The second one, FORM, is named `words` as in the other formats."""
_WORD_NUMBER = re.compile(r"[1-9]\d*")
_SPACES = re.compile(" +")
_Line = tuple[int, list[str]]
"""The number of a line, and its columns."""
_MOST_TAGS = 10_000
"""Most distinct tags that are collected, since the column may hold words instead."""
_COMMENTS = "comment lines (with # first) skipped"
_NO_WORDS = "lines of multiword tokens or empty nodes left out"
_TABS = "lines whose tabs after the last column were left out"


def conll_records(file: InputFile, row_format: RowFormat) -> Iterator[Record]:
    """Yields a record per sentence, with a list for each column.

    By default the columns are called `words`, `column 2`, `column 3`, ..., `tags`. Columns are separated by a tab and
    any spaces, or by spaces if the line has no tab. A blank line or -DOCSTART- ends a sentence. A line that begins with
    # is a comment if its number of columns differs from that of the other lines. In a file whose first line has no tab,
    it is also a comment if its tag, in column `row_format.label`, is the tag of no word in another line. Tabs after the
    last column are dropped. Comments and such lines are counted. Raises UsageError if any other line has another number
    of columns than the first, or if a name occurs twice.
    """
    path, lines = file.path, file.lines()
    again = partial(decoded_lines, path)
    if not path.is_file():  # a pipe, which is read once
        kept = list(lines)
        lines, again = iter(kept), partial(iter, kept)
    names = list(row_format.columns or _default_names(len(_filled(next(_word_lines(again()), [])))))
    check_names(names, "task.columns")
    tabbed = "\t" in next(filter(str.strip, again()), "")
    tags: set[str] | None = None
    for sentence in _sentences(path, map(_columns, lines), _ends):
        words = []
        for number, fields in sentence:
            names = names or _default_names(len(_filled(fields)))
            if len(fields) > len(names) >= len(_filled(fields)):
                fields = fields[: len(names)]
                file.progress.repairs[_TABS] += 1
            fits = len(fields) == len(names)
            comment = _is_comment(fields) and not (fits and tabbed)
            if comment and fits:
                place = names.index(row_format.label) if row_format.label in names else None
                if place is not None and tags is None:
                    tags = _tags(again(), place, len(names))
                comment = place is not None and fields[place] not in (tags or ())
            if comment:
                file.progress.repairs[_COMMENTS] += 1
            elif fits:
                words.append((number, fields))
            else:
                raise UsageError(
                    f"{path}, line {number} has {counted(len(fields), 'columns')} ({quoted(' '.join(fields[:20]))}) "
                    f"and should have {len(names):,}: {listed(names)}; mend it"
                    + f", or name the columns by {Setting('task.columns')}"
                    * row_format.named_by_task
                )
        if words:
            yield _record(path, words, names)


def conllu_records(file: InputFile, row_format: RowFormat) -> Iterator[Record]:
    """Yields a record per sentence, with a list for each column of CoNLL-U: words, upos, xpos, ...

    Comments are skipped. Multiword tokens (`3-4`) and empty nodes (`3.1`), which aren't tagged words of the text, are
    left out and counted. A line that begins with # is a comment if it has no tab or stands before the first word of
    its sentence. Raises UsageError for any other line that doesn't have ten columns.
    """
    path = file.path
    split = ([] if not line.strip() else line.rstrip("\r\n").split("\t", limits.COLUMNS) for line in file.lines())
    for sentence in _sentences(path, split, lambda columns: False):
        words, begun = [], False
        for number, fields in sentence:
            if _is_comment(fields) and (len(fields) == 1 or not begun):
                continue
            begun = True
            if len(fields) != len(CONLLU_COLUMNS):
                raise UsageError(
                    f"{path}, line {number} has {counted(len(fields), 'columns')} and CoNLL-U has "
                    f"{len(CONLLU_COLUMNS)}, with tabs between them; mend it"
                    + f", or say how it is written by {Setting('task.format')}"
                    * row_format.named_by_task
                )
            if _WORD_NUMBER.fullmatch(fields[0]):
                words.append((number, fields))
            else:
                file.progress.repairs[_NO_WORDS] += 1
        if words:
            yield _record(path, words, CONLLU_COLUMNS)


def _word_lines(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yields the columns of the lines that can't be comments."""
    split = map(_columns, lines)
    return (fields for fields in split if fields and not (_is_comment(fields) or _ends(fields)))


def _tags(lines: Iterable[str], place: int, count: int) -> set[str]:
    """The distinct tags, in column `place`, of the words that have `count` columns."""
    tags: set[str] = set()
    for fields in _word_lines(lines):
        if len(fields) == count and len(tags) < _MOST_TAGS:
            tags.add(fields[place])
    return tags


def _filled(fields: list[str]) -> list[str]:
    """The columns up to the last one that isn't empty."""
    count = len(fields)
    while count and not fields[count - 1]:
        count -= 1
    return fields[:count]


def _is_comment(fields: list[str]) -> bool:
    """Whether a line begins like a comment. In a file of two or more columns it may also be a word."""
    return fields[0].startswith("#")


def _ends(fields: list[str]) -> bool:
    return fields[0] == "-DOCSTART-"


def _columns(line: str) -> list[str]:
    """Splits a line into columns; a blank line has none. White space other than tabs and spaces may be a word.

    After limits.COLUMNS separators the rest of the line is one column, so that no line takes more memory.
    """
    line = line.rstrip("\r\n")
    if not line.strip("\t "):
        return []
    if "\t" in line.strip("\t"):
        return [column.strip(" ") for column in line.split("\t", limits.COLUMNS)]
    return _SPACES.split(line.strip(" "), limits.COLUMNS)


def _default_names(count: int) -> list[str]:
    """The default names of `count` columns; empty for 0."""
    if not count:
        return []
    names = ["words", *(f"column {number}" for number in range(2, count))]
    return [*names, "tags"] if count > 1 else names


def _sentences(path: Place, lines: Iterable[list[str]], ends: Callable[[list[str]], bool]) -> Iterator[list[_Line]]:
    """Yields the numbered lines of each sentence. Blank lines, and lines for which `ends` is true, separate sentences.

    Raises UsageError for a sentence of more than limits.SENTENCE_WORDS lines, or a line of more than limits.COLUMNS.
    """
    for inside, group in itertools.groupby(_numbered(path, lines), lambda line: bool(line[1]) and not ends(line[1])):
        if inside:
            sentence = list(itertools.islice(group, limits.SENTENCE_WORDS + 1))
            if len(sentence) > limits.SENTENCE_WORDS:
                raise UsageError(
                    f"{path}, line {sentence[0][0]}: a sentence begins here that has more than "
                    f"{limits.SENTENCE_WORDS:,} words; put a blank line after each sentence"
                )
            yield sentence


def _numbered(path: Place, lines: Iterable[list[str]]) -> Iterator[_Line]:
    for number, fields in enumerate(lines, 1):
        if len(fields) > limits.COLUMNS:
            raise UsageError(
                f"{path}, line {number} has more than {limits.COLUMNS:,} columns; leave out those that the task "
                "doesn't need"
            )
        yield number, fields


def _record(path: Place, sentence: list[_Line], names: Sequence[str]) -> Record:
    columns = zip(*(fields for _, fields in sentence), strict=True)
    values = {name: list(column) for name, column in zip(names, columns, strict=True)}
    return Record(f"{path}, line {sentence[0][0]}", values)
