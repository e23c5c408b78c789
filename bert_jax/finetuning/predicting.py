"""Rows to predictions, streaming: whatever the model is run by."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_jax.config.task import METRICS, TaskConfig
from bert_jax.data.grouping import Group, ahead, grouped
from bert_jax.data.task_record import Record
from bert_jax.finetuning.batches import TaskBatch, assemble
from bert_jax.finetuning.dataset import Measured, encoded, say_repairs
from bert_jax.finetuning.metrics import names_entities
from bert_jax.finetuning.task import Feature, Prediction, Task
from bert_jax.system.errors import UsageError

Run = Callable[[TaskBatch], Any]
"""The model: a batch to its outputs, an array whose first axis is the batch's; see `Task.predict`."""


def predictions(
    task: Task,
    records: Iterable[Record],
    run: Run,
    *,
    pad_id: int,
    tokens: int,
    name: str | None = "the rows",
    threads: int = 2,
) -> Iterator[tuple[Record, Prediction]]:
    """Each record with what the model says of it, in their order; memory doesn't grow with their number.

    They are computed in batches of similar length of some `tokens` each, in few shapes. At the end one line says what
    of `name` was cut or is empty (none where None). Where `run` is on several devices, give one thread: all
    have to compute the batches in the same order.
    """
    repairs = Counter()
    waiting: dict[int, tuple[Record, list[Feature], int]] = {}
    outputs: dict[int, np.ndarray] = {}
    first, choices = 0, max(len(task.config.choices), 1)

    def features() -> Iterator[Feature]:
        begin = 0
        for number, (record, of_one) in enumerate(encoded(task, records, repairs, train=False)):
            waiting[number] = record, of_one, begin
            begin += len(of_one)
            yield from of_one

    groups = grouped(features(), lambda feature: feature.size, task.config.padded_lengths, max(tokens // choices, 1))

    def outputs_of(group: Group[Feature]) -> np.ndarray:
        return np.asarray(run(assemble(group.items, group.shape, pad_id)))

    for group, found in ahead(outputs_of, groups, threads):
        outputs.update(zip(group.places, found))
        while first in waiting:
            record, of_one, begin = waiting[first]
            places = range(begin, begin + len(of_one))
            if not all(place in outputs for place in places):
                break
            del waiting[first]
            first += 1
            yield record, task.predict(record, of_one, [outputs.pop(place) for place in places])
    if name:
        say_repairs(name, repairs)


def measure(task: Task, rows: Measured, run: Run, *, pad_id: int, tokens: int) -> dict[str, Any]:
    """Every metric of the task's kind over `rows`; `metric` names the one that counts and `score` is its value."""
    found = [
        said for _, said in predictions(task, rows.records, run, pad_id=pad_id, tokens=tokens, name=None, threads=1)
    ]
    metrics = task.measure(rows.golds, found)
    name = metric_of(task.config)
    return {"metric": name, "score": metrics[name], **metrics}


def metric_of(config: TaskConfig) -> str:
    """The metric that the best checkpoint is chosen by."""
    if config.metric is None and config.kind == "tags" and names_entities(config.labels or ()):
        return "entity_f1"
    return config.metric or METRICS[config.kind][0]


def given_records(rows: Iterable[Any], config: TaskConfig) -> Iterator[Record]:
    """Rows given in Python: each an object of columns, a text, or a tuple of the task's texts. Raises UsageError."""
    columns = (*config.texts, *config.choices)
    for number, row in enumerate(rows, 1):
        values = (row,) if isinstance(row, str) else row
        if isinstance(values, Mapping):
            yield Record(f"row {number}", dict(values))
        elif isinstance(values, (tuple, list)) and len(values) == len(columns) and "{" not in "".join(columns):
            yield Record(f"row {number}", dict(zip(columns, values)))
        else:
            raise UsageError(
                f"row {number} is {row!r:.60}; give {{column: value}}, or a tuple of {', '.join(columns)} in this order"
            )
