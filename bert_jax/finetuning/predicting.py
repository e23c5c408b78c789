"""Streams rows through a model, measures the predictions, and writes rows with predictions to a file."""

import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, tee
from typing import TextIO

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
from bert_jax.config.task import TaskConfig
from bert_jax.config.task_kind import TASK_KINDS
from bert_jax.finetuning.batches import AnyArray, TaskBatch, places_in_rows, task_batch
from bert_jax.finetuning.columns import word_list
from bert_jax.finetuning.dataset import LabelledRows, encoded
from bert_jax.finetuning.retrieval import DOCUMENTS_AT_ONCE
from bert_jax.finetuning.task import Example, Outcome, Prediction, Task
from bert_jax.finetuning.vectors_task import PromptedText, SingleText
from bert_jax.records.compressed_files import suffix
from bert_jax.records.decoded_lines import decoded_lines
from bert_jax.records.record import Record
from bert_jax.run.results import Results
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import UsageError, disk_explained, quoted
from bert_jax.system.files import check_written, replacing, write_json
from bert_jax.training.devices import tokens_at_once

Run = Callable[[TaskBatch], AnyArray]
"""The model: it maps a batch to its outputs, an array whose first axis is the batch's (see `Task.predict`)."""
STANDARD_INPUT = "/dev/stdin"
PredictedRows = Iterable[tuple[Record, Prediction]]
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


def check_predictions_file(path: Place, kind: str, read: str = "") -> None:
    """Raises UsageError if predictions of this `kind` for the rows `read` can't be written to `path`.

    They can't be if the kind isn't written to files with this suffix, or if `check_written` refuses the path.
    """
    possible = [".jsonl", ".csv", ".tsv", *filter(None, [TASK_KINDS[kind].written_to])]
    if path.suffix not in possible:
        raise UsageError(f"{path}: predictions of kind {kind} are written to {', '.join(possible)}; name it so")
    for one in _files(path):
        check_written(one, read)


def write_predictions(path: Place, predicted: PredictedRows, kind: str, words: str = "words") -> None:
    """Writes each row with its prediction in the format of the suffix. The file is either whole or absent.

    JSON lines and tables have the row's columns, then the prediction's columns. `.conll` has each word, from the column
    `words`, its other columns, and its predicted tag. `.json` has the answers in the format of SQuAD's official script.
    Beside it, `.best.json` has the best answers, and `.null_odds.json` the odds of no answer, if there are any. Where
    the answers are, these two belong to them. Raises UsageError for another suffix, before anything is read, and if
    there is no row.
    """
    check_predictions_file(path, kind)
    predicted = iter(predicted)
    if (first := next(predicted, None)) is None:
        raise UsageError(
            f"there is no row to write predictions of to {path}; give rows (a table's first are its columns' names)"
        )
    predicted = chain([first], predicted)
    if path.suffix == ".json":
        _write_answers(path, predicted)
        return
    if path.suffix == ".conll":
        predicted = ((_words_first(record, prediction, words), prediction) for record, prediction in predicted)
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        _WRITERS[path.suffix](file, predicted)


def _files(path: Place) -> list[Place]:
    """`path` and the files beside it. For answers these are the best answers and the odds of no answer."""
    beside = (".best.json", ".null_odds.json") if path.suffix == ".json" else ()
    return [path, *(path.with_suffix(suffix) for suffix in beside)]


def _both(record: Record, prediction: Mapping[str, object]) -> dict[str, object]:
    """The columns of `record` and of the prediction. Raises UsageError if both have a column of the same name."""
    if twice := next((name for name in prediction if name in record.values), None):
        raise UsageError(
            f"{record.place} has a column {twice!r}, and one of this name is to be written; rename it or leave it out"
        )
    return {**record.values, **prediction}


def _write_jsonl(file: TextIO, predicted: PredictedRows) -> None:
    for record, prediction in predicted:
        file.write(json.dumps(_both(record, prediction), ensure_ascii=False) + "\n")


def _write_csv(file: TextIO, predicted: PredictedRows) -> None:
    # Python's writer doesn't quote a field for a carriage return alone.
    usual = csv.writer(file, lineterminator="\n")
    quoting = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for fields, _ in _table(predicted):
        (quoting if any("\r" in field for field in fields) else usual).writerow(fields)


def _write_tsv(file: TextIO, predicted: PredictedRows) -> None:
    for fields, place in _table(predicted):
        file.write(_tabbed(fields, place, "write a .csv or .jsonl"))


def _write_conll(file: TextIO, predicted: PredictedRows) -> None:
    for record, prediction in predicted:
        tags = prediction["predicted_tags"]
        columns = [column for column in record.values.values() if isinstance(column, list) and len(column) == len(tags)]
        for row in [*zip(*columns, tags, strict=True)] or [("",)]:
            fields = [*map(str, row)]
            is_word = fields[0][:1] not in ("", "\ufeff") and fields[0] != "-DOCSTART-"
            if not is_word or any(field != field.strip(" ") for field in fields):
                raise UsageError(f"{record.place} has the word {fields}, which a .conll can't have; write a .jsonl")
            file.write(_tabbed(fields, record.place, "write a .jsonl"))
        file.write("\n")


def _words_first(record: Record, prediction: Prediction, words: str) -> Record:
    """The record with its words, or those that its text was split into, as the first column."""
    first = {words: prediction.get("predicted_words") or word_list(record, words)}
    return record._replace(values=first | record.values | first)


_WRITERS: dict[str, Callable[[TextIO, PredictedRows], None]] = {
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
    ".tsv": _write_tsv,
    ".conll": _write_conll,
}
"""Writers by file suffix."""


def _tabbed(fields: list[str], place: str, remedy: str) -> str:
    """A line of `fields` separated by tabs. Raises UsageError for a field with a tab or line feed."""
    if held := next((field for field in fields if set(field) & set("\t\r\n")), None):
        raise UsageError(f"{place} holds a tab or line feed in {held[:40]!r}, which such a file can't; {remedy}")
    return "\t".join(fields) + "\n"


def _table(predicted: PredictedRows) -> Iterator[tuple[list[str], str]]:
    """Yields rows of fields, each with its record's place. The first row has the names."""
    columns: list[str] | None = None
    for record, prediction in predicted:
        values = _both(record, _flat(prediction))
        if columns is None:
            columns = list(dict.fromkeys([*record.columns, *values]))
            yield columns, record.place
        if extra := set(values) - set(columns):
            raise UsageError(f"{record.place} has columns that the first row lacks, {sorted(extra)}; write a .jsonl")
        yield [_field(values.get(name)) for name in columns], record.place


def _flat(prediction: Prediction) -> dict[str, object]:
    """The prediction with a column for each class's probability."""
    shares = prediction.get("probabilities", {})
    named = shares.items() if isinstance(shares, dict) else enumerate(shares)
    others = {name: value for name, value in prediction.items() if name != "probabilities"}
    return others | {f"probability_{name}": share for name, share in named}


def _field(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_answers(path: Place, predicted: PredictedRows) -> None:
    answers, best, odds = {}, {}, {}
    for number, (record, prediction) in enumerate(predicted):
        key = str(record.values.get("id", number))
        if key in answers:
            raise UsageError(f"{record.place}: the id {key!r} stands twice, and answers go by it; write a .jsonl")
        answers[key], best[key] = prediction["predicted_answer"], prediction["best"]
        odds[key] = prediction["null_odds"]
    answers_file, best_file, odds_file = _files(path)
    with disk_explained(path):
        for old in (answers_file, best_file, odds_file):
            old.unlink(missing_ok=True)
    write_json(best_file, best)
    if any(one is not None for one in odds.values()):
        write_json(odds_file, odds)
    write_json(answers_file, answers)
