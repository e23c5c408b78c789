"""Streams rows through a model to predictions, and measures them."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_jax.batching.grouping import Group, ahead, grouped, usual_lengths
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.batches import TaskBatch, assemble
from bert_jax.finetuning.dataset import LabelledRows, encoded
from bert_jax.finetuning.task import Example, Outcome, Prediction, Task
from bert_jax.records.compressed_files import suffix
from bert_jax.records.decoded_lines import decoded_lines
from bert_jax.records.record import Record
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import UsageError
from bert_jax.training.devices import tokens_at_once

Run = Callable[[TaskBatch], Any]
"""The model: a batch to its outputs, an array whose first axis is the batch's; see `Task.predict`."""
STANDARD_INPUT = "/dev/stdin"


def outcomes(
    task: Task,
    records: Iterable[Record],
    run: Run,
    repairs: Counter[str],
    *,
    compiling: float = 0,
    threads: int = 2,
    tokens: int | None = None,
) -> Iterator[Outcome]:
    """Yields each record with its examples and the model's outputs for them, in order and in bounded memory.

    Batches of similar length have about `tokens` tokens each (None: as many as suit the device), in few shapes;
    compiling one costs as much as `compiling` tokens. `repairs` counts what was cut or is empty. Give one thread if
    `run` uses several devices: all have to compute the batches in the same order.
    """
    waiting: deque[tuple[Record, list[Example]]] = deque()
    choices = max(len(task.config.choices), 1)

    def examples() -> Iterator[Example]:
        for record, of_one in encoded(task, records, repairs, train=False):
            waiting.append((record, of_one))
            yield from of_one

    def outputs_of(group: Group[Example]) -> np.ndarray:
        return np.asarray(run(assemble(group.items, group.shape, task.pad_id)))

    lengths = sorted({*usual_lengths(task.config.max_length), *(task.config.padded_lengths or ())})
    tokens = max((tokens or tokens_at_once()) // choices, 1)
    groups = grouped(examples(), lambda example: example.size, lengths, tokens, compiling=compiling / choices)
    outputs: dict[int, np.ndarray] = {}
    begin = 0
    for group, found in ahead(outputs_of, groups, threads):
        outputs.update(zip(group.places, found, strict=False))
        while waiting and all(place in outputs for place in range(begin, begin + len(waiting[0][1]))):
            record, of_one = waiting.popleft()
            places = range(begin, begin + len(of_one))
            begin = places.stop
            yield Outcome(record, of_one, [outputs.pop(place) for place in places])


def predictions(
    task: Task, records: Iterable[Record], run: Run, repairs: Counter[str], **settings: Any
) -> Iterator[tuple[Record, Prediction]]:
    """Yields each record with its prediction. Arguments are those of `outcomes`."""
    for outcome in outcomes(task, records, run, repairs, **settings):
        yield outcome.record, task.predict(*outcome)


def measure(task: Task, rows: LabelledRows, run: Run, compiling: float = 0) -> dict[str, Any]:
    """Every metric of the task's kind over `rows`; `metric` names the chosen one and `score` is its value.

    `baseline` has the metrics of the commonest right answer (or the mean) for every row, or of a search by words;
    `errors` the worst mistakes, each with its `text`, the `right` answer and what was `predicted`;
    `constant_prediction` the answer that the model gives for every row, or None if its answers differ; `measured_on`
    identifies the rows: measurements with equal ones can be compared.
    """
    read = task.inputs(rows.records)
    found = outcomes(task, read, run, Counter(), compiling=compiling, threads=1)
    measured_on = {"rows": len(rows.records), "rows_hash": rows.stamp}
    return task.evaluate(rows.records, rows.golds, found) | {"measured_on": measured_on}


def given_records(rows: Iterable[Any], config: TaskConfig) -> Iterator[Record]:
    """Yields rows given in Python: each an object of columns, a text, or a tuple of the task's texts.

    If the task has lists of words, a text is split at spaces. Raises UsageError for other rows.
    """
    if not isinstance(rows, Iterable):
        raise UsageError(f"predict takes rows and got {rows!r:.60}; give a list of them")
    columns = (*config.texts, *config.choices)
    for number, row in enumerate(rows, 1):
        values = (_of_line(row, config),) if isinstance(row, str) else row
        if isinstance(values, Mapping):
            yield Record(f"row {number}", dict(values)).mended(Counter())
        elif isinstance(values, (tuple, list)) and len(values) == len(columns) and "{" not in "".join(columns):
            yield Record(f"row {number}", dict(zip(columns, values, strict=True))).mended(Counter())
        else:
            raise UsageError(
                f"row {number} is {row!r:.60}; give {{column: value}}, or a tuple of {', '.join(columns)} in this order"
            )


def _of_line(line: str, task: TaskConfig) -> str | list[str]:
    """The value of the task's one text column for a plain line."""
    return line.split() if task.has_word_lists else line


def of_lines(records: Iterable[Record], task: TaskConfig) -> Iterator[Record]:
    """Yields the records of a file of plain lines, each of which has one column, as the task reads them."""
    for record in records:
        yield record._replace(values={name: _of_line(line, task) for name, line in record.values.items()})


def has_plain_lines(task: TaskConfig, source: str) -> bool:
    """Whether `source` has a text on each line and nothing else, for a task of one text.

    It is standard input, or a .txt whose first line doesn't name the text's column, unless the training rows were a
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
