"""Settings of a fine-tuning task: its rows, their columns and its metric."""

import re
from collections.abc import Collection, Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from bert_jax.config.data import FileFormat
from bert_jax.config.settings import GIVEN, Requirement, Settings
from bert_jax.config.task_kind import TASK_KINDS, TaskKind
from bert_jax.config.vectors import VectorsConfig
from bert_jax.config.wording import OneOf, counted, help_items, value_text
from bert_jax.system.errors import Setting

Count = Annotated[int, Field(gt=0)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]
Weights = Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)]

COLUMN_IN_BRACES = re.compile(r"\{([^{}]+)\}")
"""Matches `{column}` in a text that is made of several columns."""
_NAMED = re.compile(r"([\w-]+)=(.+)")
"""Matches NAME=ROWS."""
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)%")
"""Matches a share of rows, such as 10%."""


_KIND_HELP = f"Kind of prediction.\n\n{help_items({name: kind.help for name, kind in TASK_KINDS.items()})}"
_METRIC_HELP = f"""Metric that the best checkpoint is chosen by. None: the first one of the kind that can be measured.

{help_items({name: ", ".join(kind.metrics) for name, kind in TASK_KINDS.items()})}

With two classes, f1 is that of the second one; with more, it is macro_f1, the mean over the classes in rows or
predictions. entity_f1 is an error if the tags name no entities. Vectors have spearman and pearson if the dev pairs have
scores, otherwise the others."""


class SpanConfig(Settings):
    """How answers are found in a text, for kind `span`. The defaults are those of the original's run_squad.py."""

    PREFIX: ClassVar[str] = "--task.span."
    stride: Count = 128
    """Pieces from the start of one window to the start of the next, in texts that need several windows."""
    question_length: Count = 64
    """Maximum pieces of a question; a longer one is cut at its end."""
    answer_length: Count = 30
    """Pieces of the longest answer."""
    best: Count = 20
    """Number of best starts and ends that are combined in each window, and of answers that are listed."""
    null_answers: bool = False
    """Whether a question may have no answer in its text (SQuAD 2.0)."""
    null_threshold: float = 0.0
    """The prediction is "no answer" if its score exceeds that of the best answer by more than this."""
    by_character: bool = False
    """Compare answers by characters in scripts without spaces between words, and ignore the punctuation of all scripts.
    Otherwise by words, as SQuAD's official script does."""


def _only_for(name: str, default: object, kinds: Collection[str]) -> Iterator[Requirement]:
    """Requires the default of the setting `name` for all kinds of tasks except `kinds`."""
    for kind in TASK_KINDS.keys() - kinds:
        yield Requirement("kind", kind, name, default, f"{Setting(f'task.{name}')} is for kinds {', '.join(kinds)}")


class TaskConfig(VectorsConfig):
    """A task: its files of rows, the columns that are used, and its metric."""

    REQUIREMENTS: ClassVar[tuple[Requirement, ...]] = (
        *VectorsConfig.REQUIREMENTS,
        Requirement("source", GIVEN, "kind", "vectors", "only vectors are learned from a corpus, others from rows"),
        Requirement("source", GIVEN, "train", None, "both name what to learn from"),
        Requirement("kind", "vectors", "mix_layers", False, "layers are mixed for a task's head, and it has none"),
        *_only_for("class_weights", None, [kind for kind, row in TASK_KINDS.items() if row.weighted]),
        *_only_for("label_smoothing", 0.0, [kind for kind, row in TASK_KINDS.items() if row.smoothed]),
    )
    name: str = ""
    """Name of the task in results. Empty: the name of the training rows' file."""
    kind: Annotated[str, OneOf(TASK_KINDS), Field(description=_KIND_HELP)]
    """Kind of prediction: a name in TASK_KINDS, whose rows give the help."""
    train: str | None = None
    """Training rows: a file, plain, .gz or .zst, or `tfds:NAME/CONFIG:SPLIT`. For kind `vectors` also
    `beir:FOLDER#SPLIT`: a pair for each judgment above 0, the other judged documents as negatives. The split is train
    if none is named."""
    train_rows: Count | None = None
    """Number of training rows to use; they are the same for every seed. None: all."""
    dev: str | None = None
    """Dev rows to measure on, in the same form. With `beir:FOLDER#SPLIT` every evaluation searches the whole corpus;
    the split is dev if none is named. `10%` takes this share of the rows of task.train and doesn't train on them; which
    rows these are depends on the texts alone, and rows with the same text (of a pair the first, for kind `span` the
    second) stay together."""
    other_dev: tuple[str, ...] = ()
    """Further rows to measure the best checkpoint on, each as NAME=ROWS, such as zh=dev_zh.tsv for another language.
    Their metrics are named like zh/accuracy. The checkpoint is chosen by task.dev alone."""
    format: FileFormat | None = None
    """File format. None: by the suffix of the file name, with .txt as tsv and .json as SQuAD's format. `text`: one text
    on each line and nothing else, for predict."""
    columns: Names | None = None
    """Names of the columns of a file without a header line. Rows may lack trailing columns that the task doesn't
    read."""
    separator: str | None = None
    """The character between columns of a csv or tsv file; `tab` for a tab. None: a tab in tsv; in csv a comma, or a
    semicolon, tab or vertical bar if the first line has that instead, with a message."""
    unlabelled: Literal["refuse", "skip"] = "refuse"
    """Training or dev rows without a label, or with fewer fields than columns: refuse them, with their number and the
    first of them; or skip and count them."""
    texts: Names = ("sentence",)
    """Columns of the texts: one, or two for a pair; for `choice` the text before the choices; for `tags` the words, or
    a text with character spans; for `span` the question and the text. Braces combine columns: `{title}. {body}`."""
    ignore: tuple[str, ...] = ()
    """Columns that kind `vectors` leaves out on purpose, such as a negative, a label or a similarity beside its texts.
    Otherwise such a column is an error."""
    choices: tuple[str, ...] = ()
    """Columns of the choices, for kind `choice`; they may have braces too."""
    marks: tuple[str, ...] = ()
    """For kind `marked`: for each text, the columns with the character offsets of its marked word."""
    label: str = "label"
    """Column of the class, the number, the right choice (its number from 0 or its column's name), the tags or the
    answers. For kind `labels`: a list of labels, a list of 0 and 1 for each of task.labels, or a text with the labels
    between separators. Without such a column, task.labels are columns of 0 and 1. For kind `tags`: a list of tags, or
    of their numbers in task.labels; or the entities of a text, `[[0, 4, "PER"], ...]`: begin and end (exclusive), in
    characters, and type; or objects with start, end and label, as Prodigy, doccano and Label Studio write them."""
    character_spans: bool = False
    """For kind `tags`: whether a row has a text and character spans rather than words and tags. It follows from the
    first training row, not from this setting."""
    label_separator: Annotated[str, Field(min_length=1)] = ","
    """Separator of the labels in a text, for kind `labels`."""
    labels: tuple[str, ...] | None = None
    """All classes, labels or tags, in the order of the model's outputs. None: those of the training rows, sorted."""
    class_weights: Literal["balanced"] | Weights | None = None
    """Weights of the classes or tags in the loss: a number for each, in the order of task.labels (by default the sorted
    labels), or `balanced`: inversely proportional to their frequencies in the training rows, as in scikit-learn. None:
    equal weights."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of each target in the loss that is spread evenly over all classes, tags or choices (Szegedy et al. 2016,
    arXiv:1512.00567). Kinds class, marked, tags and choice."""
    max_length: Annotated[int, Field(ge=8)] = 128
    """Maximum pieces of a sequence, special ones included. Longer input: a pair loses the end of its longer text, a
    single text its end, a tagged sentence is cut into several, and a text with an answer is read in windows."""
    mix_layers: bool = False
    """Whether the head reads a weighted mean of the embeddings and of every layer's vectors instead of the last layer's
    vectors: gamma * sum_l softmax(s)_l h_l, with learned s and gamma (Peters et al. 2018, equation 1). Every kind but
    vectors."""
    epochs: Annotated[float, Field(gt=0)] = 3.0
    """Number of passes over the training rows."""
    patience: Count | None = None
    """Evaluations in a row (epochs, if `evaluations` is 1) without a better score after which training ends early. The
    schedule of the learning rate is still that of all epochs. None: train all epochs."""
    batch_size: Count = 32
    """Rows per step. The rows of an epoch are spread evenly over its steps, so a step may have fewer."""
    metric: Annotated[str | None, Field(description=_METRIC_HELP)] = None
    """Metric that the best checkpoint is chosen by. None: the first one of the kind that can be measured."""
    span: SpanConfig = SpanConfig()

    @field_validator("separator")
    @classmethod
    def _one_character(cls, value: str | None) -> str | None:
        value = "\t" if value in ("tab", "\\t") else value
        if value is not None and (len(value) != 1 or value.isalnum() or value in '"\r\n'):
            raise ValueError(f"={value!r} can't stand between columns; give one character like ';' or '|', or tab")
        return value

    def shortened_to(self, positions: int) -> "TaskConfig":
        """This task for a model of `positions` positions (at least 8). Sequences are shortened to that length. If
        question and window then don't fit together, each gets a third of the positions."""
        if self.max_length <= positions:
            return self
        span = self.span
        if self.task_kind.loss == "ends" and span.question_length + span.stride + 3 > positions:
            third = positions // 3
            span = span.replace(question_length=min(span.question_length, third), stride=min(span.stride, third))
        return self.replace(max_length=positions, span=span)

    @property
    def rows_name(self) -> str:
        """The name of the training rows' file, or of the source of text."""
        return str(self.train or self.source).rpartition("/")[2]

    @property
    def dev_share(self) -> float | None:
        """The share of the training rows that are the dev rows; None if task.dev is no share."""
        percent = _PERCENT.fullmatch(self.dev or "")
        return float(percent[1]) / 100 if percent else None

    @property
    def dev_source(self) -> str | None:
        """The file or set that the dev rows are read from."""
        return self.dev if self.dev_share is None else self.train

    @property
    def dev_in_words(self) -> str | None:
        """The source of the dev rows, as reports name it."""
        return self.dev if self.dev_share is None else f"{self.dev} of {self.train}"

    @property
    def task_kind(self) -> TaskKind:
        """The entry of TASK_KINDS for the task's kind."""
        return TASK_KINDS[self.kind]

    @property
    def makes_vectors(self) -> bool:
        """Whether the model learns a vector for each text, and has no head."""
        return self.task_kind.head == "texts"

    @property
    def sequences_an_example(self) -> int:
        """Most sequences of an example: its choices, the texts of its group, or one."""
        return self.texts_a_group if self.makes_vectors else max(len(self.choices), 1)

    @property
    def has_word_lists(self) -> bool:
        """Whether a row has a list of words instead of a text."""
        return self.task_kind.words and not self.character_spans

    @property
    def other_sets(self) -> dict[str, str]:
        """The sources of `other_dev` by their names."""
        named = (each.partition("=") for each in self.other_dev)
        return {name: source for name, _, source in named}

    @field_validator("other_dev")
    @classmethod
    def _named(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            if not _NAMED.fullmatch(each):
                raise ValueError(f": {value_text(each)} isn't NAME=ROWS, as in zh=dev_zh.tsv")
            if _PERCENT.fullmatch(each.partition("=")[2]):
                raise ValueError(f": {value_text(each)} names a share, which only --task.dev may be; name rows")
        if len({each.partition("=")[0] for each in value}) < len(value):
            raise ValueError(f"={value_text(' '.join(value))} has a name twice; give each set its own")
        return value

    def _conflicts(self) -> Iterator[str]:
        yield from super()._conflicts()
        dev = self._flag("dev")
        if self.dev_share is not None and not 0 < self.dev_share <= 0.5:
            yield f"{self._current('dev')} is no share to measure on; give more than 0% and at most 50%"
        if self.dev_share is not None and self.source:
            yield (
                f"{self._current('dev')} is a share of {self._flag('train')}; of {self._flag('source')} some pairs are "
                "held out anyway, so leave it out"
            )
        if self.other_dev and not self.dev and not self.source:
            yield f"{self._flag('other_dev')} is measured beside {dev}, which names no rows; give some by {dev}"
        if self.makes_vectors and self.batch_size < 2:
            yield f"{self._current('batch_size')} leaves a pair nothing to be compared with; give 2 or more"
        yield from self._column_conflicts()
        yield from self._loss_conflicts()

    def _column_conflicts(self) -> Iterator[str]:
        """Conflicts of columns that the kind doesn't take, or that are named wrongly."""
        kind, (fewest, most), marked = self._current("kind"), self.task_kind.texts, self.task_kind.head == "marked"
        if not fewest <= len(self.texts) <= most:
            wanted = str(fewest) if fewest == most else f"{fewest} or {most}"
            given = value_text(" ".join(self.texts))
            yield f"{kind} takes {wanted} {self._flag('texts')} and has {len(self.texts)}: {given}"
        if (self.task_kind.head == "choices") != (len(self.choices) > 1):
            yield (
                f"{kind} has {len(self.choices)} {self._flag('choices')}; a choice needs two columns or more, and "
                "nothing else takes any"
            )
        if len(self.marks) != 2 * len(self.texts) * marked:
            yield (
                f"{kind} with {counted(len(self.texts), 'texts')} takes {2 * len(self.texts) * marked} "
                f"{self._flag('marks')} and has {len(self.marks)}: where each text's word begins and ends"
            )
        for name in (*self.texts, *self.choices):
            if set("{}") & set(COLUMN_IN_BRACES.sub("", name)):
                setting = self._flag("texts" if name in self.texts else "choices")
                yield f"{setting} has {name!r}, a brace without the other; write it as {{title}}. {{body}}"
        for setting in ("choices", "marks", "labels"):
            names = getattr(self, setting) or ()
            if twice := next((name for name in names if names.count(name) > 1), None):
                yield f"{self._flag(setting, value_text(' '.join(names)))} has {twice!r} twice; name each once"

    def _loss_conflicts(self) -> Iterator[str]:
        """Conflicts of a metric, weights or a length that don't fit the kind."""
        if self.metric not in (None, *self.task_kind.metrics):
            yield (
                f"{self._current('metric')} doesn't measure {self._current('kind')}; choose from "
                f"{', '.join(self.task_kind.metrics)}"
            )
        weights = self.class_weights
        if isinstance(weights, tuple) and self.labels is not None and len(weights) != len(self.labels):
            yield (
                f"{self._current('class_weights')} has {len(weights)} of them for "
                f"{counted(len(self.labels), 'labels')}; give one for each, in the order of "
                f"{value_text(', '.join(self.labels))}"
            )
        if self.task_kind.loss == "ends" and self.span.question_length + self.span.stride + 3 > self.max_length:
            yield (
                f"{self._current('max_length')} leaves no window of {self._current('span.stride')} pieces beside a "
                f"question of {self._current('span.question_length')}; raise the first or lower the others"
            )
