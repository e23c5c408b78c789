"""What a model is fine-tuned for: the task, its rows and its measure."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from bert_jax.config.settings import Settings

Count = Annotated[int, Field(gt=0)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]

METRICS = {
    "class": ("accuracy", "f1", "macro_f1", "matthews"),
    "number": ("pearson", "spearman"),
    "marked": ("accuracy", "f1", "macro_f1", "matthews"),
    "choice": ("accuracy",),
    "tags": ("accuracy", "entity_f1"),
    "span": ("f1", "exact_match"),
}
"""What each kind is measured by, the first one where nothing else is set."""
_TEXTS = {"class": (1, 2), "number": (1, 2), "marked": (1, 2), "choice": (1, 1), "tags": (1, 1), "span": (2, 2)}
"""How many texts a row of each kind has."""


COLUMN_IN_BRACES = re.compile(r"\{([^{}]+)\}")
"""In a text that is made of several columns."""
FileFormat = Literal["csv", "tsv", "jsonl", "conll", "conllu", "squad", "text"]


class SpanConfig(Settings):
    """How answers are found in a text; the defaults are those of the original's run_squad.py. Read by `span` alone."""

    stride: Count = 128
    """Pieces from the beginning of a window to that of the next, where a text needs several."""
    question_length: Count = 64
    """A question keeps so many pieces of its beginning."""
    answer_length: Count = 30
    """Pieces of the longest answer."""
    best: Count = 20
    """Best beginnings and ends looked at in a window, and answers listed."""
    null_answers: bool = False
    """Whether a question may have no answer in its text (SQuAD 2.0)."""
    null_threshold: float = 0.0
    """No answer is given where its score is larger than the best answer's by more than this."""
    by_character: bool = False
    """Answers are compared by characters where a script sets no spaces between words, and without the punctuation of
    any script; otherwise by words, as SQuAD's official script does."""


class TaskConfig(Settings):
    """A task: where its rows are, which of their columns count, and how it is measured."""

    name: str
    """What results call it."""
    kind: Literal["class", "number", "marked", "choice", "tags", "span"]
    """What is asked: a text's or pair's class; a number; the class of a pair in which a word of each text is marked;
    the best of several choices; a tag for every word; the answer in a text."""
    train: str | None = None
    """Rows to learn from: a file, plain, .gz or .zst, or `tfds:NAME/CONFIG:SPLIT`."""
    train_rows: Count | None = None
    """Learn from so many of these rows, the same ones whatever the seed; from all where None."""
    dev: str | None = None
    """Rows to measure on, of the same form."""
    format: FileFormat | None = None
    """How files are written. None: by the end of their names, .txt as tsv and .json as SQuAD's. `text` is a text a line
    and nothing else, for predict."""
    columns: Names | None = None
    """Names of the columns of a file without a header line; the last ones may be missing from a row."""
    separator: str | None = None
    """The one character between the columns of a csv or tsv file; `tab` for a tab. None: a tab in tsv; in csv a comma,
    or what its first line has instead: a semicolon, tab or vertical bar, which is said."""
    unlabelled: Literal["refuse", "skip"] = "refuse"
    """Rows to learn from or to measure on that have no label: refused, with their number and the first of them, or
    left out and counted."""
    texts: Names = ("sentence",)
    """Columns of the texts: one, or a pair's two; of `choice` what comes before the choices; of `tags` the words; of
    `span` the question and the text. One with braces is made of several: `{title}. {body}`."""
    choices: tuple[str, ...] = ()
    """Columns of the choices, which may have braces too. Read by `choice` alone."""
    marks: tuple[str, ...] = ()
    """For each text the columns that say at which characters the marked word begins and ends. Read by `marked`."""
    label: str = "label"
    """Column of the class, the number, the right choice (its number from 0, or its column's name), the tags, or the
    answers."""
    labels: tuple[str, ...] | None = None
    """All classes or tags, in the order of the model's outputs; those of the training rows, sorted, where None."""
    max_length: Annotated[int, Field(ge=8)] = 128
    """Pieces a sequence, special ones included. A longer pair loses the end of its longer text, a single text its end,
    a sentence of words is cut in several, and a text with an answer in it goes into windows."""
    padded_lengths: tuple[Count, ...] | None = None
    """Lengths that training batches are padded to, each of which is compiled. None: as few and as many as take the
    least time for these rows and epochs, compiling included."""
    epochs: Annotated[float, Field(gt=0)] = 3.0
    """Times that every training row is seen."""
    patience: Count | None = None
    """Training ends early after this many evaluations in a row (epochs, if `evaluations` is 1) without a better score.
    The learning rate is that of all epochs all the same. None: all epochs are trained."""
    batch_size: Count = 32
    """Rows a step."""
    metric: str | None = None
    """What the best checkpoint is chosen by: accuracy, f1 (of the second class where there are two, or else macro_f1),
    macro_f1 (the mean over the classes that rows or predictions have), matthews; pearson, spearman; entity_f1;
    exact_match. None: of tags that name entities entity_f1, of answers f1, otherwise accuracy or pearson."""
    span: SpanConfig = SpanConfig()

    @field_validator("separator")
    @classmethod
    def _one_character(cls, value: str | None) -> str | None:
        value = "\t" if value in ("tab", "\\t") else value
        if value is not None and (len(value) != 1 or value.isalnum() or value in '"\r\n'):
            raise ValueError(
                f"task.separator={value!r} can't stand between columns; give one character like ';' or '|', or tab"
            )
        return value

    def fitting(self, positions: int) -> "TaskConfig":
        """This task for a model of so many positions (8 at least): with shorter sequences where they need more.

        Where windows of a text wouldn't fit beside the question, each may take a third.
        """
        if self.max_length <= positions:
            return self
        lengths, span = self.padded_lengths, self.span
        if lengths:
            lengths = (*(length for length in lengths if length < positions), positions)
        if self.kind == "span" and span.question_length + span.stride + 3 > positions:
            third = positions // 3
            span = span.replace(question_length=min(span.question_length, third), stride=min(span.stride, third))
        return self.replace(max_length=positions, padded_lengths=lengths, span=span)

    @model_validator(mode="after")
    def _columns_fit_the_kind(self) -> "TaskConfig":
        fewest, most = _TEXTS[self.kind]
        if not fewest <= len(self.texts) <= most:
            wanted = str(fewest) if fewest == most else f"{fewest} or {most}"
            raise ValueError(f"task.kind={self.kind} takes {wanted} task.texts and has {len(self.texts)}: {self.texts}")
        if (self.kind == "choice") != (len(self.choices) > 1):
            raise ValueError(
                f"task.kind={self.kind} has {len(self.choices)} task.choices; a choice needs two columns or more, and "
                "nothing else takes any"
            )
        wanted = 2 * len(self.texts) if self.kind == "marked" else 0
        if len(self.marks) != wanted:
            raise ValueError(
                f"task.kind={self.kind} with {len(self.texts)} texts takes {wanted} task.marks and has "
                f"{len(self.marks)}: where each text's word begins and ends"
            )
        return self

    @model_validator(mode="after")
    def _columns_are_named(self) -> "TaskConfig":
        for name in (*self.texts, *self.choices):
            if set("{}") & set(COLUMN_IN_BRACES.sub("", name)):
                raise ValueError(f"{name!r} has a brace without the other; write it as {{title}}. {{body}}")
        for setting in ("choices", "marks"):
            names = getattr(self, setting)
            if len(set(names)) < len(names):
                raise ValueError(f"task.{setting}={names} has a column twice; name each once")
        return self

    @model_validator(mode="after")
    def _labels_differ(self) -> "TaskConfig":
        labels = self.labels or ()
        if len(set(labels)) < len(labels):
            twice = next(label for label in labels if labels.count(label) > 1)
            raise ValueError(f"task.labels={labels} has {twice!r} twice; name each label once")
        return self

    @model_validator(mode="after")
    def _measure_fits_the_kind(self) -> "TaskConfig":
        if self.metric not in (None, *METRICS[self.kind]):
            raise ValueError(
                f"task.metric={self.metric} doesn't measure task.kind={self.kind}; choose from "
                f"{', '.join(METRICS[self.kind])}"
            )
        if self.kind == "span" and self.span.question_length + self.span.stride + 3 > self.max_length:
            raise ValueError(
                f"task.max_length={self.max_length} leaves no window of task.span.stride={self.span.stride} pieces "
                f"beside a question of task.span.question_length={self.span.question_length}; raise the first or "
                "lower the others"
            )
        lengths = self.padded_lengths
        if lengths is not None and (lengths[-1:] != (self.max_length,) or list(lengths) != sorted(set(lengths))):
            raise ValueError(f"task.padded_lengths={lengths} must rise and end with task.max_length={self.max_length}")
        return self
