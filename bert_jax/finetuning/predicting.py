"""Rows to predictions, streaming: whatever the model is run by."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_jax.batching.grouping import Group, ahead, grouped, usual_lengths
from bert_jax.config.task import TaskConfig
from bert_jax.corpora.decoded_lines import decoded_lines
from bert_jax.corpora.task_record import Record
from bert_jax.finetuning.batches import TaskBatch, assemble
from bert_jax.finetuning.dataset import Measured, encoded
from bert_jax.finetuning.metrics import metric_of
from bert_jax.finetuning.task import Example, Prediction, Task
from bert_jax.rows.task_files import suffix
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import UsageError

Run = Callable[[TaskBatch], Any]
"""The model: a batch to its outputs, an array whose first axis is the batch's; see `Task.predict`."""
STANDARD_INPUT = "/dev/stdin"


def predictions(
    task: Task,
    records: Iterable[Record],
    run: Run,
    repairs: Counter[str],
    *,
    pad_id: int,
    tokens: int,
    compiling: float = 0,
    threads: int = 2,
) -> Iterator[tuple[Record, Prediction]]:
    """Each record with what the model says of it, in their order; memory doesn't grow with their number.

    They are computed in batches of similar length of some `tokens` each, in few shapes, each of which costs as much as
    `compiling` tokens more. `repairs` counts what was cut or is empty. Where `run` is on several devices, give one
    thread: all have to compute the batches in the same order.
    """
    waiting: deque[tuple[Record, list[Example]]] = deque()
    choices = max(len(task.config.choices), 1)

    def examples() -> Iterator[Example]:
        for record, of_one in encoded(task, records, repairs, train=False):
            waiting.append((record, of_one))
            yield from of_one

    def outputs_of(group: Group[Example]) -> np.ndarray:
        return np.asarray(run(assemble(group.items, group.shape, pad_id)))

    lengths = sorted({*usual_lengths(task.config.max_length), *(task.config.padded_lengths or ())})
    groups = grouped(
        examples(), lambda example: example.size, lengths, max(tokens // choices, 1), compiling=compiling / choices
    )
    begin, outputs = 0, {}
    for group, found in ahead(outputs_of, groups, threads):
        outputs.update(zip(group.places, found))
        while waiting and all(place in outputs for place in range(begin, begin + len(waiting[0][1]))):
            record, of_one = waiting.popleft()
            places = range(begin, begin + len(of_one))
            begin = places.stop
            yield record, task.predict(record, of_one, [outputs.pop(place) for place in places])


def measure(task: Task, rows: Measured, run: Run, *, pad_id: int, tokens: int, compiling: float = 0) -> dict[str, Any]:
    """Every metric of the task's kind over `rows`; `metric` names the one that counts and `score` is its value.

    `baseline` holds the metrics of the commonest right answer (of numbers, the mean) for every row, and
    `constant_prediction` the answer that the model gives for every row, if it is one (otherwise None).
    """
    settings = {"pad_id": pad_id, "tokens": tokens, "compiling": compiling}
    said = predictions(task, rows.records, run, Counter(), **settings, threads=1)
    found = [prediction for _, prediction in said]
    metrics, name = task.measure(rows.golds, found), metric_of(task.config)
    baseline = task.measure(rows.golds, task.baseline(rows.golds))
    different = {repr(answer): answer for answer in (next(iter(one.values())) for one in found)}
    return {
        "metric": name,
        "score": metrics[name],
        **metrics,
        "baseline": {name: value for name, value in baseline.items() if isinstance(value, float)},
        "constant_prediction": different.popitem()[1] if len(different) == 1 and len(found) > 1 else None,
    }


def given_records(rows: Iterable[Any], config: TaskConfig) -> Iterator[Record]:
    """Rows given in Python: each an object of columns, a text, or a tuple of the task's texts. Raises UsageError.

    Of a text that is to be tagged the words are what stands between spaces.
    """
    if not isinstance(rows, Iterable):
        raise UsageError(f"predict takes rows and got {rows!r:.60}; give a list of them")
    columns = (*config.texts, *config.choices)
    for number, row in enumerate(rows, 1):
        values = (_of_line(row, config),) if isinstance(row, str) else row
        if isinstance(values, Mapping):
            yield Record(f"row {number}", dict(values))
        elif isinstance(values, (tuple, list)) and len(values) == len(columns) and "{" not in "".join(columns):
            yield Record(f"row {number}", dict(zip(columns, values)))
        else:
            raise UsageError(
                f"row {number} is {row!r:.60}; give {{column: value}}, or a tuple of {', '.join(columns)} in this order"
            )


def _of_line(line: str, task: TaskConfig) -> str | list[str]:
    """A text by itself as the task's one column has it: where it has a list of words, what stands between spaces."""
    return line.split() if task.has_word_lists else line


def of_lines(records: Iterable[Record], task: TaskConfig) -> Iterator[Record]:
    """The rows that a file with a text a line gives, each of which has one column."""
    for record in records:
        yield record._replace(values={name: _of_line(line, task) for name, line in record.values.items()})


def has_plain_lines(task: TaskConfig, source: str) -> bool:
    """Whether `source` is taken for a file with a text a line and nothing else: to predict a task of one text.

    It is standard input, or a .txt whose first line doesn't name the text's column, where the task didn't learn from a
    .txt with columns.
    """
    if task.facts.head not in ("pooled", "tokens") or len(task.texts) > 1 or "{" in task.texts[0]:
        return False
    if source == STANDARD_INPUT:
        return True
    if suffix(source) != ".txt" or ".txt" in (suffix(trained) for trained in (task.train, task.dev) if trained):
        return False
    first = next(decoded_lines(place_of(source), Counter()), "")
    return task.texts[0] not in first.rstrip("\r\n").split("\t")
