"""The texts of a task's rows, and about how many tokens they have."""

from collections import Counter
from functools import cache
from pathlib import Path

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.dataset import read_records, texts_of
from bert_jax.records.decoded_lines import decoded_lines
from bert_jax.system.bucket import place_of

_BYTES_A_TOKEN = 4
"""Bytes of UTF-8 that a token has, roughly, in any language."""


def row_texts(task: TaskConfig, source: str) -> list[tuple[str, ...]]:
    """The texts of the rows of `task` in `source`. Raises UsageError for rows that can't be read."""
    texts = (texts_of(task, record) for record in read_records(task, source, "dev", Counter()))
    return [tuple(one if isinstance(one, str) else " ".join(one) for one in row) for row in texts]


def tokens_of_text(text: str) -> float:
    """The number of tokens of a text, if four bytes are a token."""
    return len(text.encode()) / _BYTES_A_TOKEN


@cache
def tokens_of_lines(path: Path) -> float:
    """The number of tokens of a file's lines, roughly."""
    return sum(map(tokens_of_text, decoded_lines(path)))


@cache
def tokens_of_rows(task: TaskConfig, source: str | None, most: int | None = None) -> float | None:
    """The number of tokens of at most `most` rows of `task` in a file, roughly; None for rows that aren't a file."""
    if not source or not place_of(source).is_file():
        return None
    tokens = [sum(map(tokens_of_text, texts)) for texts in row_texts(task, source)]
    return sum(tokens) * min(most or len(tokens), len(tokens)) / max(len(tokens), 1)
