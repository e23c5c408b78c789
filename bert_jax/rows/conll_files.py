"""Sentences with a word a line: CoNLL columns and CoNLL-U."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from bert_jax.corpora.decoded_lines import decoded_lines
from bert_jax.corpora.shown import counted, listed, quoted
from bert_jax.corpora.task_record import Record, check_names
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError

_CONLLU = "id words lemma upos xpos feats head deprel deps misc".split()
"""CoNLL-U's ten columns; the second, FORM, is what the words are called everywhere here."""
_WORD_NUMBER = re.compile(r"[1-9]\d*")
_SPACES = re.compile(" +")
_TAB = re.compile(" *\t *")
_Line = tuple[int, list[str]]
"""Its number, and its columns."""
MOST_WORDS = 100_000
"""Of a sentence, which is held in memory. A file without blank lines would be one sentence."""


def conll_records(path: Place, columns: Sequence[str] | None, repairs: Counter[str]) -> Iterator[Record]:
    """A list for each column: `words` (the first), `tags` (the last), `column 2`, ... unless `columns` names them.

    Columns stand apart by a tab and any spaces, or by spaces where a line has no tab; a blank line or -DOCSTART- ends a
    sentence.
    Raises UsageError for a line with another number of columns than the first, or for a name that stands twice.
    """
    split = (_columns(line) for line in decoded_lines(path, repairs))
    names = list(columns) if columns else None
    check_names(names or (), "task.columns")
    for sentence in _sentences(path, split, lambda columns: columns[0] == "-DOCSTART-"):
        for number, fields in sentence:
            names = names or _default_names(len(fields))
            if len(fields) != len(names):
                raise UsageError(
                    f"{path}, line {number} has {counted(len(fields), 'column')} ({quoted(' '.join(fields[:20]))}) and "
                    f"should have {len(names):,}: {listed(names)}; mend it, or name the columns by task.columns"
                )
        yield _record(path, sentence, names)


def conllu_records(path: Place, repairs: Counter[str]) -> Iterator[Record]:
    """A list for each of CoNLL-U's columns: words, upos, xpos, ... Comments are left out, and so are ranges (`3-4`) and
    words that the text doesn't have (`3.1`), which have no tags of their own."""
    lines = decoded_lines(path, repairs)
    split = ([] if not line.strip() else line.rstrip("\r\n").split("\t") for line in lines)
    for sentence in _sentences(path, split, lambda columns: False):
        words = []
        for number, fields in sentence:
            if len(fields) == 1 and fields[0].startswith("#"):
                continue
            if len(fields) != len(_CONLLU):
                raise UsageError(
                    f"{path}, line {number} has {counted(len(fields), 'column')} and CoNLL-U has {len(_CONLLU)}, with "
                    "tabs between them; mend it, or say how it is written by task.format"
                )
            if _WORD_NUMBER.fullmatch(fields[0]):
                words.append((number, fields))
        if words:
            yield _record(path, words, _CONLLU)


def _columns(line: str) -> list[str]:
    """The columns of a line; none of a blank one. White space other than tabs and spaces may be a word."""
    line = line.rstrip("\r\n")
    if not line.strip("\t "):
        return []
    return _TAB.split(line.strip(" ")) if "\t" in line.strip("\t") else _SPACES.split(line.strip(" "))


def _default_names(count: int) -> list[str]:
    return ["words", *(f"column {number}" for number in range(2, count)), *["tags"][: count - 1]]


def _sentences(path: Place, lines: Iterable[list[str]], ends: Callable[[list[str]], bool]) -> Iterator[list[_Line]]:
    """Numbered lines in groups; a line without columns, or one that `ends` a sentence, is in none.

    Raises UsageError for a group of more than MOST_WORDS lines.
    """
    numbered = enumerate(lines, 1)
    for inside, group in itertools.groupby(numbered, lambda line: bool(line[1]) and not ends(line[1])):
        if inside:
            sentence = list(itertools.islice(group, MOST_WORDS + 1))
            if len(sentence) > MOST_WORDS:
                raise UsageError(
                    f"{path}, line {sentence[0][0]}: a sentence begins here that has more than {MOST_WORDS:,} words; "
                    "put a blank line after each sentence"
                )
            yield sentence


def _record(path: Place, sentence: list[_Line], names: Sequence[str]) -> Record:
    columns = zip(*(fields for _, fields in sentence))
    return Record(f"{path}, line {sentence[0][0]}", {name: list(column) for name, column in zip(names, columns)})
