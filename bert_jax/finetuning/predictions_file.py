"""Writes rows with their predictions to a file."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TextIO

from bert_jax.config.task import TaskConfig
from bert_jax.config.wording import counted
from bert_jax.finetuning.columns import word_list
from bert_jax.finetuning.task import Prediction
from bert_jax.records.conll_files import CONLLU_COLUMNS
from bert_jax.records.record import Record
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, disk_explained, listed
from bert_jax.system.files import check_written, replacing, write_json
from bert_jax.system.progress import say

PredictedRows = Iterable[tuple[Record, Prediction]]
_TAGGED = ("upos", "xpos", "feats", "deprel", "misc")
"""Columns of CoNLL-U that a tag of each word may stand in."""


def check_predictions_file(path: Place, task: TaskConfig, read: str = "") -> None:
    """Raises UsageError if predictions of `task` for the rows `read` can't be written to `path`.

    They can't be if the kind of task isn't written to files with this suffix, if the tags aren't a column of CoNLL-U,
    or if `check_written` refuses the path.
    """
    possible = [".jsonl", ".csv", ".tsv", *task.task_kind.written_to]
    if path.suffix not in possible:
        raise UsageError(f"{path}: predictions of kind {task.kind} are written to {', '.join(possible)}; name it so")
    if path.suffix == ".conllu" and task.label not in _TAGGED:
        raise UsageError(
            f"{path}: the model learned the column {task.label!r}, and in CoNLL-U a tagger writes {listed(_TAGGED)}; "
            "write a .conll, or fine-tune with one of these as --task.label"
        )
    for one in _files(path):
        check_written(one, read)


def write_predictions(path: Place, predicted: PredictedRows, task: TaskConfig) -> None:
    """Writes each row with its prediction in the format of the suffix. The file is either whole or absent.

    JSON lines and tables have the row's columns, then the prediction's columns. `.conll` has each word, its other
    columns, and its predicted tag. `.conllu` has CoNLL-U's ten columns, of which `task.label` is predicted. `.json` has
    the answers in the format of SQuAD's official script. Beside it, `.best.json` has the best answers, and
    `.null_odds.json` the odds of no answer, if there are any. The answers are written last, so these two belong to the
    answers beside them. Raises UsageError for another suffix, before anything is read, and if there is no row.
    """
    check_predictions_file(path, task)
    predicted = iter(predicted)
    if (first := next(predicted, None)) is None:
        raise UsageError(
            f"there is no row to write predictions of to {path}; give at least one (the first line of a table "
            "names its columns)"
        )
    predicted = chain([first], predicted)
    if path.suffix == ".json":
        _write_answers(path, predicted)
        return
    if path.suffix in task.task_kind.written_to:
        columns_of = _words_first if path.suffix == ".conll" else _as_conllu
        predicted = ((columns_of(record, prediction, task), prediction) for record, prediction in predicted)
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
    """Writes the columns of each record that have a value for each word; the first one has the words."""
    for row, place in _word_rows(predicted):
        if row and (
            row[0][:1] in ("", "\ufeff") or row[0] == "-DOCSTART-" or row != [field.strip(" ") for field in row]
        ):
            raise UsageError(f"{place} has a word with the columns {row}, which a .conll can't hold; write a .jsonl")
        file.write(_tabbed(row, place, "write a .jsonl"))


def _write_conllu(file: TextIO, predicted: PredictedRows) -> None:
    for row, place in _word_rows(predicted):
        if row and not all(map(str.strip, row)):
            raise UsageError(f"{place} has a word with the columns {row}, and in CoNLL-U none is empty; write a .jsonl")
        file.write(_tabbed(row, place, "write a .jsonl"))


def _word_rows(predicted: PredictedRows) -> Iterator[tuple[list[str], str]]:
    """Yields a row of fields for each word, each with its record's place, and an empty row after each sentence. Counts
    the records without a word, since an empty line only ends a sentence."""
    empty = 0
    for record, prediction in predicted:
        count = len(prediction["predicted_tags"])
        if not count:
            empty += 1
            continue
        columns = [column for column in record.values.values() if isinstance(column, list) and len(column) == count]
        for row in zip(*columns, strict=True):
            yield [*map(str, row)], record.place
        yield [], record.place
    if empty:
        say(f"{counted(empty, 'rows')} without a word: left out of the file")


def _words_first(record: Record, prediction: Prediction, task: TaskConfig) -> Record:
    """The record with its words, or those that its text was split into, as the first column, and their predicted tags
    as the last."""
    words = {task.texts[0]: _words(record, prediction, task)}
    values = _both(record, {"predicted_tags": prediction["predicted_tags"]})
    return record._replace(values=words | values | words)


def _as_conllu(record: Record, prediction: Prediction, task: TaskConfig) -> Record:
    """The record with the columns of CoNLL-U, of which `task.label` has the predicted tags. In columns that the record
    lacks, and for a word without a tag, stands `_`, CoNLL-U's unspecified value."""
    words, tags = _words(record, prediction, task), [tag or "_" for tag in prediction["predicted_tags"]]
    # A sentence's words are numbered from 1 in every CoNLL-U file, so that heads stay right.
    known = record.values | {"id": [*range(1, len(words) + 1)], "words": words, task.label: tags}
    columns = {name: known.get(name) for name in CONLLU_COLUMNS}
    values = {name: column if isinstance(column, list) else ["_"] * len(tags) for name, column in columns.items()}
    return record._replace(values=values)


def _words(record: Record, prediction: Prediction, task: TaskConfig) -> list[str]:
    """The words that were tagged: the record's, or those that its text was split into."""
    return prediction.get("predicted_words") or word_list(record, task.texts[0])


_WRITERS: dict[str, Callable[[TextIO, PredictedRows], None]] = {
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
    ".tsv": _write_tsv,
    ".conll": _write_conll,
    ".conllu": _write_conllu,
}
"""Writers by file suffix."""


def _tabbed(fields: list[str], place: str, remedy: str) -> str:
    """A line of `fields` separated by tabs. Raises UsageError for a field with a tab or line end."""
    if held := next((field for field in fields if set(field) & set("\t\r\n")), None):
        raise UsageError(f"{place} has a tab or line end in {held[:40]!r}, which this format can't hold; {remedy}")
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
            raise UsageError(
                f"{record.place}: the id {key!r} occurs twice, and answers are named by id; write a .jsonl"
            )
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
