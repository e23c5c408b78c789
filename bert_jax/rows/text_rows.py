"""Reads files with one text per line and no other columns."""

from collections import Counter
from collections.abc import Iterator, Sequence

from bert_jax.corpora.decoded_lines import decoded_lines
from bert_jax.corpora.task_record import Record
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError


def text_records(path: Place, columns: Sequence[str] | None, repairs: Counter[str]) -> Iterator[Record]:
    """Yields a record per line, including empty lines; the only column is named by `columns`, by default `text`.

    Raises UsageError if `columns` has more than one name.
    """
    name, *others = columns or ("text",)
    if others:
        raise UsageError(f"{path} has a text a line, and {len(others) + 1} columns are named; name one")
    for number, line in enumerate(decoded_lines(path, repairs), 1):
        yield Record(f"{path}, line {number}", {name: line.rstrip("\r\n")}, (name,))
