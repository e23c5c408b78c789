"""A task's rows, read and encoded."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.batching.grouping import few_lengths
from bert_jax.config.settings import SettingsError
from bert_jax.config.task import FileFormat, TaskConfig
from bert_jax.corpora.shown import listed
from bert_jax.corpora.task_record import Record
from bert_jax.finetuning.batches import TrainingBatches
from bert_jax.finetuning.choice_task import ChoiceTask
from bert_jax.finetuning.marked_task import MarkedTask
from bert_jax.finetuning.metrics import check_entity_tags, check_measurable
from bert_jax.finetuning.sentence_task import ClassTask, LabelsTask, NumberTask
from bert_jax.finetuning.span_task import SpanTask
from bert_jax.finetuning.tag_task import TagTask
from bert_jax.finetuning.task import EMPTY, IGNORED, UNKNOWN, Example, Task
from bert_jax.rows.task_files import format_of, held_records, suffix, takes_columns
from bert_jax.system.errors import UsageError
from bert_jax.system.progress import say
from bert_jax.text.tokenizer import Tokenizer

_KINDS: dict[str, type[Task]] = {
    "class": ClassTask,
    "labels": LabelsTask,
    "number": NumberTask,
    "marked": MarkedTask,
    "choice": ChoiceTask,
    "tags": TagTask,
    "span": SpanTask,
}
_RECORDS_AT_ONCE = 512
"""Most records that go to the tokenizer at once; it uses several threads."""
_CHARACTERS_AT_ONCE = 1_000_000
_SHOWN = 5
"""Most rows without a label that an error lists."""


class Learned(NamedTuple):
    """The encoded training rows of a task."""

    task: Task
    """The task. Its config has labels and padded lengths, so predicting needs no training rows."""
    examples: list[Example]
    rows: int
    """Number of rows that `examples` come from."""

    def batches(self, seed: int, pad_id: int) -> TrainingBatches:
        """The batches of all epochs, in the order of `seed`."""
        config = self.task.config
        return TrainingBatches(
            self.examples,
            batch_size=config.batch_size,
            lengths=config.padded_lengths,
            epochs=config.epochs,
            seed=seed,
            pad_id=pad_id,
        )

    @property
    def stamp(self) -> str:
        """Hash of the encoded rows."""
        digest = hashlib.blake2b(digest_size=8)
        for example in self.examples:
            digest.update(repr((example.target, example.marks)).encode())
            for sequence in example.sequences:
                digest.update(np.asarray(sequence.ids, np.int32).tobytes())
        return digest.hexdigest()


class Measured(NamedTuple):
    """The dev rows of a task."""

    records: list[Record]
    golds: list[Any]
    """The right answer for each record."""

    @property
    def stamp(self) -> str:
        """Hash of the rows and their right answers."""
        rows = repr([(record.values, gold) for record, gold in zip(self.records, self.golds)])
        return hashlib.blake2b(rows.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def make_task(config: TaskConfig, tokenizer: Tokenizer) -> Task:
    """The task that `config` says. Raises UsageError where it needs labels and has none."""
    return _KINDS[config.kind](config, tokenizer)


def read_training(config: TaskConfig, tokenizer: Tokenizer, compiling: float) -> Learned:
    """The training rows, encoded, and the task with what they tell: labels, and lengths to pad to.

    `compiling`: the tokens of padding that compiling one more length costs as much as. What was mended or left out is
    said in one line. Raises UsageError with file and line for what can't be.
    """
    repairs = Counter()
    records = _labelled(config, config.train, read_records(config, config.train, "train", repairs), repairs)
    kind = _KINDS[config.kind]
    counts = Counter(name for record in records for name in kind.names(config, record))
    if config.facts.labelled:  # of all rows, also where few are learned
        spans = config.facts.words and isinstance(records[0].value(config.texts[0]), str)
        config = config.replace(character_spans=spans)
        config = config.replace(labels=kind.all_labels(config, counts))
    check_entity_tags(config, counts)
    task, some = make_task(config, tokenizer), _some(records, config.train_rows)
    by_row = [of_one for _, of_one in encoded(task, some, repairs, train=True) if of_one]
    examples = [example for of_one in by_row for example in of_one]
    if empty := repairs.pop(EMPTY, 0):
        repairs[f"{EMPTY}, not learned from"] = empty
    say_repairs(config.train, repairs)
    if not examples:
        raise UsageError(f"{config.train} has no row to learn from; give another by --task.train")
    if config.class_weights == "balanced":
        config = config.replace(class_weights=balanced_weights(examples, len(config.labels)))
    if config.class_weights:
        weights = ", ".join(f"{name}: {weight:.3g}" for name, weight in zip(config.labels, config.class_weights))
        say(f"weights of the classes in the loss: {weights}")
    if config.padded_lengths is None:
        config = config.replace(padded_lengths=_lengths(config, examples, compiling))
    task.config = config
    return Learned(task, examples, len(by_row))


def read_measured(task: Task) -> Measured:
    """The rows to measure on, with what is right.

    Raises UsageError for a row that doesn't tell, or can't be read, and where what measures isn't installed.
    """
    check_measurable(task.config)
    repairs = Counter()
    records = read_records(task.config, task.config.dev, "dev", repairs)
    if not any(task.is_labelled(task.config, record) for record in records):
        there = listed(records[0].columns or records[0].values)
        raise UsageError(
            f"{task.config.dev} has no {task.config.label!r} in any row, and nothing can be measured: there is "
            f"{there}; give rows with labels (to finetune their column may be named by --task.label)"
        )
    records = _labelled(task.config, task.config.dev, records, repairs)
    golds = [task.gold(record) for record in records]
    for _ in encoded(task, records, repairs, train=False):  # so that a row that can't be is not found after an epoch
        pass
    say_repairs(task.config.dev, repairs)
    return Measured(records, golds)


def read_records(config: TaskConfig, source: str | None, setting: str, repairs: Counter[str]) -> list[Record]:
    """All rows of `source`, at least one. Raises UsageError where there is none; `setting` would name it."""
    if source is None:
        raise UsageError(f"task.{setting} names no rows; give a file or a set like tfds:glue/cola:train")
    records = held_records(source, repairs, config.format, config.columns, config.separator)
    if not records:
        raise UsageError(f"{source} has no rows; give another file or set")
    return [_KINDS[config.kind].read(config, record, repairs) for record in records]


class Written(NamedTuple):
    """How a file of rows is written, as `task_records` takes it; None where the file itself says so."""

    format: FileFormat | None
    columns: tuple[str, ...] | None
    separator: str | None


def written_as(
    task: TaskConfig,
    source: str,
    format: FileFormat | None = None,
    columns: tuple[str, ...] | None = None,
    separator: str | None = None,
) -> Written:
    """How `source` is written: as given, otherwise as the rows that `task` was learned from.

    `columns` without any name: the file has a line of them. What isn't given is as it was set for the training rows
    where `source` has the same ending or none that tells. Raises UsageError for a separator that can't be one.
    """
    if format == "text":
        return Written(format, columns or (task.texts[0],), separator)
    sources = [source for source in (task.train, task.dev) if source]
    named, alike = format_of(source), suffix(source) in map(suffix, sources)
    of_trained = task.format or next(filter(None, map(format_of, sources)), None)
    format = format or (task.format if alike else None) or named or of_trained
    same = takes_columns(format) and format in {task.format or format_of(source) for source in sources}
    if columns is None:
        columns = task.columns if same else None
    if separator is None:
        separator = task.separator if same else None
    try:
        separator = task.replace(separator=separator).separator
    except SettingsError as error:
        raise UsageError(str(error)) from None
    return Written(format, columns or None, separator)


def encoded(
    task: Task, records: Iterable[Record], repairs: Counter[str], train: bool
) -> Iterator[tuple[Record, list[Example]]]:
    """Each record with what the model reads of it, some hundred at a time."""
    for some in _some_at_once(records):
        examples = task.encode(some, repairs, train)
        repairs[UNKNOWN] += sum(any(one.mostly(task.unknown_id) for one in of_one) for of_one in examples)
        yield from zip(some, examples)


def _some_at_once(records: Iterable[Record]) -> Iterator[list[Record]]:
    """`records` in lists of some hundred, or fewer where their texts are long: pieces take much more memory."""
    some, size = [], 0
    for record in records:
        some.append(record)
        size += sum(len(value) for value in record.values.values() if isinstance(value, str))
        if len(some) == _RECORDS_AT_ONCE or size >= _CHARACTERS_AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some


def say_repairs(source: str | None, repairs: Counter[str]) -> None:
    """Says in one line what of `source` was mended, cut or left out, and how often."""
    counted = [f"{count:,} {what}" for what, count in sorted(repairs.items()) if count]
    if counted:
        say(f"{source}: {'; '.join(counted)}")


def _labelled(config: TaskConfig, source: str | None, records: list[Record], repairs: Counter[str]) -> list[Record]:
    """Those of `records` that have a label. Where none has, all: each says what is wrong with it.

    The others are counted in `repairs`, or refused by a UsageError with their number and the first of them.
    """
    is_labelled = _KINDS[config.kind].is_labelled
    without = [record for record in records if not is_labelled(config, record)]
    if not without or len(without) == len(records):
        return records
    if config.unlabelled == "refuse":
        first = "; ".join(record.place.removeprefix(f"{source}, ") for record in without[:_SHOWN])
        raise UsageError(
            f"{source}: {len(without):,} of {len(records):,} rows have no label, {config.label!r} is empty ({first}"
            f"{'; ...' if len(without) > _SHOWN else ''}); give each one, or leave these rows out by "
            "--task.unlabelled skip (of evaluate --unlabelled skip)"
        )
    repairs["rows without a label left out"] += len(without)
    return [record for record in records if is_labelled(config, record)]


def _some(records: list[Record], count: int | None) -> list[Record]:
    """`count` of `records` drawn at random, always the same, in their order; all where None. Raises UsageError."""
    if count is None:
        return records
    if count > len(records):
        raise UsageError(f"task.train_rows={count:,} and there are {len(records):,} rows; lower it or leave it out")
    words = np.random.Philox(key=0).random_raw(len(records))
    return [records[place] for place in sorted(np.argsort(words, kind="stable")[:count].tolist())]


def balanced_weights(examples: Sequence[Example], count: int) -> tuple[float, ...]:
    """The weight of each of `count` classes: the mean number of targets of a class divided by its own number.

    The classes without any target have weight 1 and don't count for the mean.
    """
    targets = np.concatenate([np.ravel(example.target) for example in examples])
    counts = np.bincount(targets[targets != IGNORED], minlength=count)
    return tuple(np.where(counts, counts.sum() / max(np.sum(counts > 0), 1) / np.maximum(counts, 1), 1.0).tolist())


def _lengths(config: TaskConfig, examples: Sequence[Example], compiling: float) -> tuple[int, ...]:
    """The lengths to pad training batches to: a function of these rows and settings alone, whatever the seed."""
    sizes = sorted((example.size for example in examples), reverse=True)
    longest = sizes[:: config.batch_size]  # of the batches of an epoch, or nearly: TrainingBatches sorts so
    rows = config.batch_size * max(len(config.choices), 1)
    return few_lengths(longest, config.max_length, compiling / (rows * config.epochs))
