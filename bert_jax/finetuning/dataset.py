"""Reads and encodes a task's rows."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.batching.grouping import windows
from bert_jax.config.data import FileFormat
from bert_jax.config.task import TaskConfig
from bert_jax.config.wording import counted
from bert_jax.finetuning.columns import text
from bert_jax.finetuning.judged_texts import JudgedTexts, is_judged
from bert_jax.finetuning.metrics import check_measurable
from bert_jax.finetuning.sentence_task import ChoiceTask, ClassTask, LabelsTask, MarkedTask, NumberTask
from bert_jax.finetuning.span_task import SpanTask
from bert_jax.finetuning.tag_task import TagTask
from bert_jax.finetuning.task import EMPTY, IGNORED, MOSTLY_UNKNOWN, Example, Task
from bert_jax.finetuning.text_pairs import pair_records
from bert_jax.finetuning.usable_rows import usable_rows
from bert_jax.finetuning.vectors_task import VectorsTask
from bert_jax.instances.held_out import document_hash
from bert_jax.records.compressed_files import suffix
from bert_jax.records.formats import format_of, takes_columns
from bert_jax.records.python_values import ROW_FILES
from bert_jax.records.record import Record, RowFormat
from bert_jax.records.sources import held_records, open_rows
from bert_jax.system.content import content_hash
from bert_jax.system.errors import Setting, UsageError, listed
from bert_jax.system.progress import say
from bert_jax.text.tokenizer import Tokenizer

TASK_CLASSES: dict[str, type[Task]] = {
    "class": ClassTask,
    "labels": LabelsTask,
    "number": NumberTask,
    "marked": MarkedTask,
    "choice": ChoiceTask,
    "tags": TagTask,
    "span": SpanTask,
    "vectors": VectorsTask,
}
_CHARACTERS_AT_ONCE, _LEAST_CHARACTERS = 1_000_000, 2_000
"""Most characters that go to the tokenizer in one call, enough for its threads. Each record counts as _LEAST_CHARACTERS
more, which limits the number of records."""


class TrainingRows(NamedTuple):
    """The encoded training rows of a task."""

    task: Task
    """The task. Its config has the labels, so predicting needs no training rows."""
    examples: list[Example]
    rows: int
    """Number of rows that gave `examples`."""
    held_out: Sequence[Record] = ()
    """The dev rows that come from the training corpus or, if task.dev is a share, from the training file."""
    records: Sequence[Record] = ()
    """The rows themselves, if they were read from a file."""

    @property
    def content_hash(self) -> str:
        """Hash of the encoded rows."""
        digest = hashlib.blake2b(digest_size=8)
        for example in self.examples:
            digest.update(repr((example.target, example.marks)).encode())
            for sequence in example.sequences:
                digest.update(np.asarray(sequence.ids, np.int32).tobytes())
        return digest.hexdigest()


class LabelledRows(NamedTuple):
    """The dev rows of a task."""

    records: list[Record]
    golds: Sequence[object]
    """The right answer for each record."""
    judged: JudgedTexts | None = None
    """The judged texts to measure on instead of `records`, which holds their pairs. None: task.dev has none."""

    @property
    def content_hash(self) -> str:
        """Hash of the rows and their right answers."""
        if self.judged:
            return self.judged.content_hash
        return content_hash([(record.values, gold) for record, gold in zip(self.records, self.golds, strict=True)])


def make_task(config: TaskConfig, tokenizer: Tokenizer) -> Task:
    """The task of `config.kind`. Raises UsageError if it needs labels and `config` has none."""
    return TASK_CLASSES[config.kind](config, tokenizer)


def read_training(config: TaskConfig, tokenizer: Tokenizer) -> TrainingRows:
    """The encoded training rows, and the task with the labels and class weights that the rows give.

    Repairs are reported in one line. Raises UsageError with file and line for rows that can't be used.
    """
    repairs: Counter[str] = Counter()
    source, held_out = config.source or config.train, list[Record]()
    if config.source:
        records, held_out = pair_records(config, tokenizer, repairs)
    else:
        records = read_records(config, config.train, "train", repairs)
        if config.dev_share:
            records, held_out = divided_rows(config, records)
    # All rows count, even if only some of them are used.
    config = TASK_CLASSES[config.kind].with_labels(config, records)
    task = make_task(config, tokenizer)
    if config.task_kind.loss == "classes":
        for record in held_out:  # raises for a class that only dev rows have
            task.gold(record)
    by_row = [row for _, row in encoded(task, _some(records, config.train_rows), repairs, train=True) if row]
    examples = [example for row in by_row for example in row]
    if empty := repairs.pop(EMPTY, 0):
        repairs[f"{EMPTY}, not learned from"] = empty
    say_repairs(source, repairs)
    if not examples:
        raise UsageError(f"{source} has no row to learn from; give another by {Setting('task.train')}")
    config = task.with_example_sizes(examples)
    if config.class_weights and config.labels:
        balanced = config.class_weights == "balanced"
        weights = balanced_weights(examples, len(config.labels)) if balanced else config.class_weights
        named = ", ".join(f"{name}: {weight:.3g}" for name, weight in zip(config.labels, weights, strict=False))
        say(f"weights of the classes in the loss: {named}")
        config = config.replace(class_weights=weights)
    task.config = config
    return TrainingRows(task, examples, len(by_row), held_out, () if config.source else records)


def read_labelled(task: Task, held_out: Sequence[Record] = ()) -> LabelledRows:
    """The dev rows with their right answers.

    They are the rows `held_out` if there are any, otherwise the rows of task.dev. Raises UsageError for a row that has
    no answer or can't be read, and if the library that measures isn't installed.
    """
    check_measurable(task.config)
    repairs: Counter[str] = Counter()
    if is_judged(source := task.config.dev) and task.config.makes_vectors:
        if task.config.metric not in (None, "ndcg@10"):
            raise UsageError(
                f"{Setting('task.metric', task.config.metric)} isn't measured on judged texts; leave it out for ndcg@10"
            )
        judged = JudgedTexts(source, "dev", repairs)
        say_repairs(judged.name, repairs)
        return LabelledRows(judged.pairs(), (), judged)
    records = list(held_out) or read_records(task.config, task.config.dev, "dev", repairs)
    _check_labelled(task.config, records, task.config.dev_in_words)
    if unmeasurable := [record for record in records if not task.is_measurable(task.config, record)]:
        repairs["rows with an empty text, not measured"] += len(unmeasurable)
        records = [record for record in records if task.is_measurable(task.config, record)]
    golds = [task.gold(record) for record in records]
    for _ in encoded(task, records, repairs, train=False):  # finds a wrong row before training
        pass
    say_repairs(task.config.dev_in_words or "held-out pairs", repairs)
    return LabelledRows(records, golds)


def _check_labelled(config: TaskConfig, records: Sequence[Record], source: str | None) -> None:
    """Raises UsageError if no row of `source` can be measured."""
    kind = TASK_CLASSES[config.kind]
    if not any(kind.is_measurable(config, record) for record in records):
        there = listed(records[0].columns or records[0].values)
        raise UsageError(
            f"{source} has no {config.label!r} in any row, and nothing can be measured: there is {there}; give rows "
            "with labels or, to finetune, name their column by --task.label; if the first line holds no names, name "
            "all columns by --task.columns"
        )


def check_rows(config: TaskConfig, test: str | None) -> None:
    """Raises UsageError if a row of task.train, of task.dev or of `test` can't be used, or if none has a label. Opens a
    public set but doesn't read it, and leaves out judged texts."""
    dev = None if config.dev_share else config.dev
    for setting, source in {"train": config.train, "dev": dev, "test": test}.items():
        if not source or is_judged(source):
            continue
        if source.startswith("tfds:"):
            open_rows(source)
            continue
        records = read_records(config, source, setting, Counter())
        for record in records:
            texts_of(config, record)
        _check_labelled(config, records, source)
        if setting == "train":
            TASK_CLASSES[config.kind].with_labels(config, records)


def read_records(config: TaskConfig, source: str | None, setting: str, repairs: Counter[str]) -> list[Record]:
    """The usable rows of `source`; if `source` is task.dev and a share, that share of the rows of task.train.

    Raises UsageError if there are no rows, or if some can't be used. `setting`: `train` or `dev`, the setting in `task`
    that names the source. `repairs` counts what was mended or left out.
    """
    if config.dev_share and source == config.dev:
        return divided_rows(config, read_records(config, config.train, "train", Counter()))[1]
    if source is None:
        raise UsageError(f"{Setting(f'task.{setting}')} names no rows; give a file or a set like tfds:glue/cola:train")
    if is_judged(source):
        records = JudgedTexts(source, setting, repairs).pairs()
    else:
        own = settings_for(source, config)
        records = held_records(source, repairs, RowFormat(own.format, own.columns, own.separator, own.label))
    if not records:
        raise UsageError(f"{source} has no rows; give another file or set")
    kind = TASK_CLASSES[config.kind]
    return [kind.read(config, record, repairs) for record in usable_rows(kind, config, source, records, repairs)]


def settings_for(source: str, config: TaskConfig) -> TaskConfig:
    """`config` as it applies to `source`. The settings of files are left out for the rows of a Python program, which
    are kept as JSON lines."""
    is_of_program = source.rpartition("/")[2] in ROW_FILES.values()
    return config.replace(format=None, columns=None, separator=None) if is_of_program else config


def divided_rows(config: TaskConfig, records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """The rows of task.train to train on, and the share task.dev of them to measure on, each in the order of `records`.

    Rows with the same text stay together. In the order of their hashes, a group is taken if it brings the number of
    rows closer to the share. Raises UsageError if nothing is left on one side.
    """
    assert config.dev_share, "divides only for a share"
    by_text: dict[int, list[int]] = {}
    for number, record in enumerate(records):
        texts = texts_of(config, record)
        shared = texts[-1 if config.kind == "span" else 0]
        by_text.setdefault(document_hash((shared,) if isinstance(shared, str) else shared), []).append(number)
    wanted, held_out = config.dev_share * len(records), set[int]()
    for _, group in sorted(by_text.items()):
        if abs(len(held_out) + len(group) - wanted) < abs(len(held_out) - wanted):
            held_out.update(group)
    if not held_out or len(held_out) == len(records):
        raise UsageError(
            f"{Setting('task.dev', config.dev)} of {counted(len(records), 'rows')} of {config.train} with "
            f"{counted(len(by_text), 'different texts')} leaves {'none' if not held_out else 'only rows'} to measure "
            "on; give dev rows in a file of their own"
        )
    kept = [record for number, record in enumerate(records) if number not in held_out]
    return kept, [records[number] for number in sorted(held_out)]


RowTexts = tuple[str | tuple[str, ...], ...]
"""The texts of a row. A list of words is held as a tuple."""


def texts_of(config: TaskConfig, record: Record) -> RowTexts:
    """The texts of a record. A list of words becomes a tuple."""
    if isinstance(words := record.values.get(config.texts[0]), list):
        return (tuple(words),)
    return tuple(text(record, template) for template in TASK_CLASSES[config.kind].text_columns(config, record))


def written_as(
    task: TaskConfig,
    source: str,
    format: FileFormat | None = None,
    columns: tuple[str, ...] | None = None,
    separator: str | None = None,
) -> RowFormat:
    """The format of `source`: as given, otherwise by its suffix.

    If the suffix is unknown or equals that of the training rows, their format is taken. Empty `columns` means that the
    file has a header line. Raises UsageError for an impossible separator.
    """
    task = settings_for(source, task)
    if format == "text":
        return RowFormat(format, columns or (task.texts[0],), separator, task.label)
    sources = [source for source in (task.train, task.dev) if source]
    trained = task.format or next(filter(None, map(format_of, sources)), None)
    own = task.format if suffix(source) in map(suffix, sources) else None
    format = format or own or format_of(source) or trained
    if takes_columns(format) and format in {task.format or format_of(source) for source in sources}:
        columns = task.columns if columns is None else columns
        separator = task.separator if separator is None else separator
    return RowFormat(format, columns or None, task.replace(separator=separator).separator, task.label)


def encoded(
    task: Task, records: Iterable[Record], repairs: Counter[str], train: bool
) -> Iterator[tuple[Record, list[Example]]]:
    """Yields each record with its examples. Records are encoded many at a time, fewer if their texts are long."""

    def size(record: Record) -> int:
        return _LEAST_CHARACTERS + sum(len(value) for value in record.values.values() if isinstance(value, str))

    for some in windows(records, size, _CHARACTERS_AT_ONCE):
        examples = task.encode(some, repairs, train)
        repairs[MOSTLY_UNKNOWN] += sum(any(one.mostly(task.unknown_id) for one in row) for row in examples)
        yield from zip(some, examples, strict=True)


def say_repairs(source: str | None, repairs: Counter[str]) -> None:
    """Reports in one line what was repaired, cut or left out in `source`, with counts."""
    if made := [counted(count, what) for what, count in sorted(repairs.items()) if count]:
        say(f"{source}: {'; '.join(made)}")


def _some(records: list[Record], count: int | None) -> list[Record]:
    """Draws `count` records (None: all) in their order, the same in every run. Raises UsageError if there are fewer."""
    if count is None:
        return records
    if count > len(records):
        raise UsageError(
            f"{Setting('task.train_rows')}={count:,} and there are {len(records):,}; lower it or leave it out"
        )
    words = np.random.Philox(key=0).random_raw(len(records))
    return [records[place] for place in sorted(np.argsort(words, kind="stable")[:count].tolist())]


def balanced_weights(examples: Sequence[Example], count: int) -> tuple[float, ...]:
    """The weight of each of `count` classes: the mean number of targets of a class, divided by its own number.

    Classes without a target have weight 1 and don't count for the mean.
    """
    targets = np.concatenate([np.ravel(np.asarray(example.target)) for example in examples])
    counts = np.bincount(targets[targets != IGNORED], minlength=count)
    return tuple(np.where(counts, counts.sum() / max(np.sum(counts > 0), 1) / np.maximum(counts, 1), 1.0).tolist())
