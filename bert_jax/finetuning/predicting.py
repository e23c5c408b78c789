"""Streams rows through a model, and measures the predictions."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice, tee

import numpy as np
from jaxtyping import Int

from bert_jax.batching.grouping import (
    WINDOW_GROUPS,
    Group,
    ahead,
    in_input_order,
    padded_length,
    row_count,
    usual_lengths,
    windows,
)
from bert_jax.batching.packing import best_fit
from bert_jax.finetuning.batches import AnyArray, TaskBatch, places_in_rows, task_batch
from bert_jax.finetuning.dataset import LabelledRows, encoded
from bert_jax.finetuning.retrieval import DOCUMENTS_AT_ONCE
from bert_jax.finetuning.task import Example, Outcome, Prediction, Task
from bert_jax.finetuning.vectors_task import PromptedText, SingleText
from bert_jax.records.record import Record
from bert_jax.run.results import Results
from bert_jax.training.devices import tokens_at_once

Run = Callable[[TaskBatch], AnyArray]
"""The model: it maps a batch to its outputs, an array whose first axis is the batch's (see `Task.predict`)."""
_SHORTEST_ROW = 64
"""Fewest tokens in a row, so that several short examples share it."""
_TOKENS_A_SEQUENCE, _MOST_SEQUENCES = 4, 32
"""A row of T tokens has places for T / 4 sequences, and at most 32."""


@dataclass(frozen=True)
class _PackedGroup(Group[Example]):
    """Examples that share rows."""

    rows: Int[np.ndarray, " n"]
    """The row of each example."""
    most: int
    """Examples that a row has places for."""

    def outputs(self, batch: TaskBatch, outputs: np.ndarray, of_tokens: bool) -> list[np.ndarray]:
        """The outputs of each example, taken from `outputs` of the whole batch. `of_tokens`: whether each token has
        outputs."""
        places = self.rows, places_in_rows(self.rows)
        if not of_tokens:
            return list(outputs[places])  # copies, so that the batch's outputs can be freed
        begins, sizes = batch.tokens.begin[places].tolist(), batch.tokens.length[places].tolist()
        each = zip(self.rows.tolist(), begins, sizes, strict=True)
        return [outputs[row, begin : begin + size] for row, begin, size in each]


def _packed(examples: Iterable[Example], limit: int, choices: int, tokens: int) -> Iterator[_PackedGroup]:
    """Packs examples of up to `limit` tokens and of `choices` sequences into groups of rows, `tokens` tokens a group.

    Rows are as long as the longest example of a window of 32 groups, rounded up to one of a few lengths. The last group
    of a window takes the smallest shape of an earlier group that holds it, which may be much larger, but needs no
    compilation. If there is none, it has 1, 4, 16, ... rows.
    """
    lengths = usual_lengths(max(limit, _SHORTEST_ROW))
    shapes, begin = set[tuple[int, int]](), 0
    for some in windows(examples, lambda example: example.size, WINDOW_GROUPS * tokens):
        sizes = np.array([example.size for example in some])
        length = padded_length(max(int(sizes.max()), _SHORTEST_ROW), lengths)
        most = max(min(length // _TOKENS_A_SEQUENCE, _MOST_SEQUENCES) // choices, 1)
        rows = best_fit(sizes, length, most)
        at_once, count = max(tokens // length, 1), int(rows.max()) + 1
        for first in range(0, count, at_once):
            needed = min(at_once, count - first)
            large_enough = [shape for shape in shapes if shape[0] >= needed and shape[1] == length]
            shape = at_once, length
            if needed < at_once:
                shape = min(large_enough, key=math.prod, default=(row_count(needed, at_once), length))
            shapes.add(shape)
            places = np.flatnonzero((rows >= first) & (rows < first + at_once)).tolist()
            group = [some[place] for place in places]
            yield _PackedGroup([begin + place for place in places], group, shape, rows[places] - first, most)
        begin += len(some)


def outcomes(
    task: Task,
    records: Iterable[Record],
    run: Run,
    repairs: Counter[str],
    *,
    threads: int = 2,
    tokens: int | None = None,
) -> Iterator[Outcome]:
    """Yields each record with its examples and the model's outputs for them, in order and in bounded memory.

    A batch has about `tokens` tokens (None: as many as suit the device), in rows that several examples share. Batches
    have few shapes. `repairs` counts what was cut or is empty. If `run` uses several devices, `threads` must be 1,
    since all devices have to compute the batches in the same order.
    """
    of_tokens = task.config.task_kind.head == "tokens"
    rows, read = tee(encoded(task, records, repairs, train=False))
    examples = (example for _, of_one in rows for example in of_one)

    def outputs_of(group: _PackedGroup) -> list[np.ndarray]:
        kind, rows = task.config.task_kind, group.rows
        batch = task_batch(kind, group.items, group.shape, task.pad_id, example_rows=rows, most=group.most)
        return group.outputs(batch, np.asarray(run(batch)), of_tokens)

    choices = max(len(task.config.choices), 1)
    groups = _packed(examples, task.config.max_length * choices, choices, tokens or tokens_at_once())
    computed = ahead(outputs_of, groups, threads)
    outputs = in_input_order((group.places, results) for group, results in computed)
    for record, of_one in read:
        yield Outcome(record, of_one, [*islice(outputs, len(of_one))])


def predictions(
    task: Task, records: Iterable[Record], run: Run, repairs: Counter[str], tokens: int | None = None
) -> Iterator[tuple[Record, Prediction]]:
    """Yields each record with its prediction. The arguments are those of `outcomes`."""
    for outcome in outcomes(task, records, run, repairs, tokens=tokens):
        yield outcome.record, task.predict(*outcome)


def measure(task: Task, rows: LabelledRows, run: Run) -> Results:
    """Every metric of the task's kind over `rows`, with its baselines and the worst errors.

    On judged texts: every metric of a search of the whole corpus.
    """
    if rows.judged:
        return rows.judged.measure(partial(_vectors, task, run), task.config.widths)
    stream = outcomes(task, task.inputs(rows.records), run, Counter(), threads=1)
    count = len(rows.records)
    measured = task.evaluate(rows.records, rows.golds, stream)
    return measured.updated({"dev_rows": count, "measured_on": {"rows": count, "rows_hash": rows.content_hash}})


def _vectors(task: Task, run: Run, texts: Iterable[str], role: str) -> Iterator[np.ndarray]:
    """Yields the vectors of texts with the prompt of a role, in their order, some texts at a time."""
    prompt = task.config.prompt(role)
    records = (SingleText("", PromptedText(text, prompt)._asdict()) for text in texts)
    stream = outcomes(task, records, run, Counter(), threads=1)
    while some := [vector for _, _, [vector] in islice(stream, DOCUMENTS_AT_ONCE)]:
        yield np.stack(some)
