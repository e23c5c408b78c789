"""Reads rows to predict from plain text, one text per line."""

from collections import Counter

from bert_jax.config.task import TaskConfig
from bert_jax.corpora.decoded_lines import decoded_lines
from bert_jax.rows.task_files import suffix
from bert_jax.system.bucket import place_of

STANDARD_INPUT = "/dev/stdin"


def has_plain_lines(task: TaskConfig, source: str) -> bool:
    """Whether `source` is taken for a file with a text a line and nothing else: to predict a task of one text.

    It is standard input, or a .txt whose first line doesn't name the text's column, where the task didn't learn from a
    .txt with columns.
    """
    if task.kind not in ("class", "number") or len(task.texts) > 1 or "{" in task.texts[0]:
        return False
    if source == STANDARD_INPUT:
        return True
    if suffix(source) != ".txt" or ".txt" in (suffix(trained) for trained in (task.train, task.dev) if trained):
        return False
    first = next(decoded_lines(place_of(source), Counter()), "")
    return task.texts[0] not in first.rstrip("\r\n").split("\t")
