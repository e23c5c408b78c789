"""Writes predictions to a file, together with their rows."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TextIO

from bert_jax.config.task_kind import TASK_KINDS
from bert_jax.finetuning.task import Prediction
from bert_jax.records.record import Record
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.files import check_written, replacing, write_json

Predicted = Iterable[tuple[Record, Prediction]]


def check_output(path: Place, kind: str, read: str = "") -> None:
    """Raises UsageError if predictions of this `kind` for the rows `read` can't be written to `path`: it has another
    suffix than those of the kind, or `check_written` refuses it."""
    possible = [".jsonl", ".csv", ".tsv", *filter(None, [TASK_KINDS[kind].written_to])]
    if path.suffix not in possible:
        raise UsageError(f"{path}: predictions of kind {kind} are written to {', '.join(possible)}; name it so")
    for one in _files(path):
        check_written(one, read)


def write_predictions(path: Place, predicted: Predicted, kind: str) -> None:
    """Writes each row with its prediction, in the format of the suffix; the file is whole or absent.

    JSON lines and tables have the row's columns and after them the prediction's. `.conll` has the predicted tag after
    the other columns of each word. `.json` has the answers as SQuAD's official script reads them, with the best ones in
    `.best.json` and the odds of no answer in `.null_odds.json` beside it. Raises UsageError for another suffix, before
    anything is read, and if there is no row.
    """
    check_output(path, kind)
    predicted = iter(predicted)
    if (first := next(predicted, None)) is None:
        raise UsageError(
            f"there is no row to write predictions of to {path}; give rows (a table's first are its columns' names)"
        )
    predicted = chain([first], predicted)
    if path.suffix == ".json":
        _write_answers(path, predicted)
        return
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        _WRITERS[path.suffix](file, predicted)


def _files(path: Place) -> list[Place]:
    """`path` and the files beside it: for answers the best ones and the odds of none."""
    beside = (".best.json", ".null_odds.json") if path.suffix == ".json" else ()
    return [path, *(path.with_suffix(suffix) for suffix in beside)]


def _both(record: Record, prediction: Prediction) -> dict[str, Any]:
    """The columns of `record` and those of the prediction. Raises UsageError for a column of both."""
    if twice := next((name for name in prediction if name in record.values), None):
        raise UsageError(
            f"{record.place} has a column {twice!r}, and one of this name is to be written; rename it or leave it out"
        )
    return record.values | prediction


def _write_jsonl(file: TextIO, predicted: Predicted) -> None:
    for record, prediction in predicted:
        file.write(json.dumps(_both(record, prediction), ensure_ascii=False) + "\n")


def _write_csv(file: TextIO, predicted: Predicted) -> None:
    csv.writer(file, lineterminator="\n").writerows(fields for fields, _ in _table(predicted))


def _write_tsv(file: TextIO, predicted: Predicted) -> None:
    for fields, place in _table(predicted):
        file.write(_tabbed(fields, place, "write a .csv or .jsonl"))


def _write_conll(file: TextIO, predicted: Predicted) -> None:
    for record, prediction in predicted:
        tags = prediction["predicted_tags"]
        values = [*record.values.values(), prediction.get("predicted_words")]
        columns = [column for column in values if isinstance(column, list) and len(column) == len(tags)]
        for fields in zip(*columns, tags, strict=True):
            file.write(_tabbed(list(map(str, fields)), record.place, "write a .jsonl"))
        file.write("\n")


_WRITERS: dict[str, Callable[[TextIO, Predicted], None]] = {
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
    ".tsv": _write_tsv,
    ".conll": _write_conll,
}
"""Writers by file suffix."""


def _tabbed(fields: list[str], place: str, remedy: str) -> str:
    """A line of `fields` with tabs between them. Raises UsageError for a field with a tab or line feed."""
    if held := next((field for field in fields if set(field) & set("\t\r\n")), None):
        raise UsageError(f"{place} holds a tab or line feed in {held[:40]!r}, which such a file can't; {remedy}")
    return "\t".join(fields) + "\n"


def _table(predicted: Predicted) -> Iterator[tuple[list[str], str]]:
    """Rows of fields, the first of them names, each with its record's place."""
    columns: list[str] | None = None
    for record, prediction in predicted:
        values = _both(record, _flat(prediction))
        if columns is None:
            columns = list(dict.fromkeys([*record.columns, *values]))
            yield columns, record.place
        if extra := set(values) - set(columns):
            raise UsageError(f"{record.place} has columns that the first row lacks, {sorted(extra)}; write a .jsonl")
        yield [_field(values.get(name)) for name in columns], record.place


def _flat(prediction: Prediction) -> dict[str, Any]:
    """Each class's probability as a column of its own."""
    shares = prediction.get("probabilities", {})
    named = shares.items() if isinstance(shares, dict) else enumerate(shares)
    others = {name: value for name, value in prediction.items() if name != "probabilities"}
    return others | {f"probability_{name}": share for name, share in named}


def _field(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_answers(path: Place, predicted: Predicted) -> None:
    answers, best, odds = {}, {}, {}
    for number, (record, prediction) in enumerate(predicted):
        key = str(record.values.get("id", number))
        if key in answers:
            raise UsageError(f"{record.place}: the id {key!r} stands twice, and answers go by it; write a .jsonl")
        answers[key], best[key] = prediction["predicted_answer"], prediction["best"]
        odds[key] = prediction["null_odds"]
    answers_file, best_file, odds_file = _files(path)
    write_json(best_file, best)
    if any(one is not None for one in odds.values()):
        write_json(odds_file, odds)
    write_json(answers_file, answers)
