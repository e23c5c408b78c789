"""Rows to predict that needn't name their columns: those of a Python program, and lines of plain text."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from bert_jax.config.task import TaskConfig
from bert_jax.records.compressed_files import suffix
from bert_jax.records.decoded_lines import decoded_lines
from bert_jax.records.record import Record
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import UsageError, quoted

STANDARD_INPUT = "/dev/stdin"


def python_records(rows: Iterable[object], config: TaskConfig) -> Iterator[Record]:
    """Yields the records of rows from `python_rows`.

    A row is an object of columns, a text, or a tuple of the task's texts; None is an empty text. If the task has lists
    of words, a row may be a list of words, and a text is split at white space. Raises UsageError for other rows.
    """
    columns = (*config.texts, *config.choices)
    for number, row in enumerate(rows, 1):
        values = (_of_line(row or "", config),) if isinstance(row, str | None) else row
        if config.has_word_lists and isinstance(row, list) and all(isinstance(word, str) for word in row):
            values = (row,)
        if isinstance(values, Mapping):
            yield Record(f"row {number}", dict(values))
        elif isinstance(values, (tuple, list)) and len(values) == len(columns) and "{" not in "".join(columns):
            yield Record(f"row {number}", dict(zip(columns, values, strict=True)))
        else:
            raise UsageError(
                f"row {number:,} is {quoted(row)}; give {{column: value}}, or a tuple of {', '.join(columns)} in this "
                "order"
            )


def _of_line(line: str, task: TaskConfig) -> str | list[str]:
    """The value of the task's one text column for a plain line."""
    return line.split() if task.has_word_lists else line


def of_lines(records: Iterable[Record], task: TaskConfig) -> Iterator[Record]:
    """Yields the records of a file of plain lines as the task reads them. Each record has one column."""
    for record in records:
        yield record._replace(values={name: _of_line(line, task) for name, line in record.values.items()})


def has_plain_lines(task: TaskConfig, source: str) -> bool:
    """Whether `source` has a text on each line and nothing else, for a task of one text.

    Standard input counts as such a source. A .txt does if its first line doesn't name the text's column, unless the
    training rows were a .txt with columns.
    """
    if task.task_kind.head not in ("pooled", "tokens") or len(task.texts) > 1 or "{" in task.texts[0]:
        return False
    if source == STANDARD_INPUT:
        return True
    if suffix(source) != ".txt" or ".txt" in (suffix(trained) for trained in (task.train, task.dev) if trained):
        return False
    first = next(decoded_lines(place_of(source), Counter()), "")
    return task.texts[0] not in first.rstrip("\r\n").split("\t")
