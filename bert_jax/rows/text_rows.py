"""Rows that are a text a line, and nothing else."""

from collections import Counter
from collections.abc import Iterator, Sequence

from bert_jax.corpora.decoded_lines import decoded_lines
from bert_jax.corpora.task_record import Record
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError


def text_records(path: Place, columns: Sequence[str] | None, repairs: Counter[str]) -> Iterator[Record]:
    """The lines of `path`, empty ones too, each in the one column of `columns`. Raises UsageError for several."""
    name, *others = columns or ("text",)
    if others:
        raise UsageError(f"{path} has a text a line, and {len(others) + 1} columns are named; name one")
    for number, line in enumerate(decoded_lines(path, repairs), 1):
        yield Record(f"{path}, line {number}", {name: line.rstrip("\r\n")}, (name,))
