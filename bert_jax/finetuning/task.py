"""The base class of all kinds of tasks."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.columns import Labels, sorted_labels, text
from bert_jax.finetuning.metrics import metric_of
from bert_jax.layout import TokenSequence
from bert_jax.records.record import Record
from bert_jax.run.results import Mistake, Results
from bert_jax.text.tokenizer import Tokenizer

MOST_ERRORS = 10
"""Most mistakes that results list."""
_MOST_CHARACTERS = 400
"""Most characters of each text in a mistake."""
Gold = TypeVar("Gold")
"""The right answer of a row. Its form depends on the kind of task."""
Common = TypeVar("Common", bound=Hashable)
IGNORED = -1
"""Target of a piece without a tag."""
Target = int | float | Sequence[int] | None
"""The target of an example: a class, a number, 0 or 1 for each label, a tag for each token, or an answer's first and
last token. None in prediction."""
Prediction = dict[str, Any]
"""Named JSON values. A name that could also be a column's begins with `predicted_`."""


class Wrong(NamedTuple):
    """What is wrong with a prediction, for people to read."""

    size: float
    """How wrong the prediction is, above 0: the probability of the wrong answer, the number of wrong words or labels,
    or the distance of a number. Sizes are comparable within a kind of task."""
    right: str
    predicted: str
    probability: float | None = None
    """The probability of the wrong answer; None if the model gives none."""


EMPTY = "rows with an empty text"
CUT = "sequences longer than {} pieces, cut"
MOSTLY_UNKNOWN = "rows of which the vocabulary knows less than half"


class Example(NamedTuple):
    """One input of the model: a whole record, or a part of a long one."""

    sequences: tuple[TokenSequence, ...]
    """One sequence, or one for each choice."""
    target: Target = None
    marks: tuple[tuple[int, int], ...] = ()
    """Begin and end (exclusive) of the marked words, in tokens; empty if no words are marked."""
    origin: Any = None
    """Maps tokens to the text, in the form that the kind of task needs; None in training."""

    @property
    def size(self) -> int:
        """Number of tokens in all sequences, which share a row."""
        return sum(len(one.ids) for one in self.sequences)

    def mostly(self, piece: int) -> bool:
        """Whether more than half of the example's pieces are `piece`. Special pieces at the ends don't count."""
        pieces = [one.ids[1:-1] for one in self.sequences]
        return 2 * sum(list(some).count(piece) for some in pieces) > sum(map(len, pieces))


class Outcome(NamedTuple):
    """A record with the model's outputs for it."""

    record: Record
    examples: list[Example]
    outputs: list[np.ndarray]
    """The outputs of each example: [outputs]; [choices] for `choice`; [T, outputs] for `tags` and `span`, T being
    the number of tokens; [D] for `vectors`."""


class Task(Generic[Gold]):
    """A task. It maps rows to the model's input, and the model's outputs to predictions. Each kind is a subclass."""

    def __init__(self, config: TaskConfig, tokenizer: Tokenizer):
        """`config.labels` must be set if the kind has labels. Raises UsageError for fewer than two."""
        self.config, self._tokenizer = config, tokenizer
        self.unknown_id, self.pad_id = tokenizer.vocabulary.unknown_id, tokenizer.vocabulary.pad_id
        if config.task_kind.labelled:
            self.labels = Labels(config.labels or ())

    @classmethod
    def read(cls, config: TaskConfig, record: Record, repairs: Counter[str]) -> Record:
        """Returns a labelled record in the form that the other methods take. Raises UsageError for values that can't be
        brought into this form."""
        return record

    @classmethod
    def with_labels(cls, config: TaskConfig, records: Sequence[Record]) -> TaskConfig:
        """`config` with the settings that follow from all training rows: the labels, if the kind has any.

        Raises UsageError for rows that can't be learned from.
        """
        if not config.task_kind.labelled:
            return config
        return config.replace(labels=cls.all_labels(config, cls.count_names(config, records)))

    def with_example_sizes(self, examples: Sequence[Example]) -> TaskConfig:
        """The config with the settings that follow from the training examples.

        Raises UsageError if nothing can be learned from them.
        """
        return self.config

    @classmethod
    def count_names(cls, config: TaskConfig, records: Iterable[Record]) -> Counter[str]:
        """How often each label occurs in `records`."""
        return Counter(name for record in records for name in cls.names(config, record))

    @classmethod
    def names(cls, config: TaskConfig, record: Record) -> list[str]:
        """Returns the names of the labels of a record; none if the kind has no labels. Raises UsageError."""
        return []

    @classmethod
    def all_labels(cls, config: TaskConfig, names: Iterable[str]) -> tuple[str, ...]:
        """All labels in the order of the model's outputs: task.labels, or the sorted `names` of the training rows."""
        return config.labels or sorted_labels(names)

    def answers(self, record: Record) -> Sequence[str | float]:
        """The labels of a record, or its number, for descriptions of rows; empty if it has neither."""
        return self.names(self.config, record)

    @classmethod
    def text_columns(cls, config: TaskConfig, record: Record) -> Sequence[str]:
        """The columns of a record's texts. Raises UsageError if it lacks them."""
        return (*config.texts, *config.choices)

    @classmethod
    def columns(cls, config: TaskConfig, record: Record) -> list[str]:
        """All columns that the task reads from records like this one."""
        return [*cls.text_columns(config, record), *config.marks, config.label, *(config.labels or ())]

    @classmethod
    def is_labelled(cls, config: TaskConfig, record: Record) -> bool:
        """Whether the label's column exists and isn't empty."""
        value = record.value(config.label) if record.has(config.label) else None
        return bool(value.strip()) if isinstance(value, str) else value is not None

    @classmethod
    def is_measurable(cls, config: TaskConfig, record: Record) -> bool:
        """Whether a prediction for the record can be measured, that is, whether it has a label."""
        return cls.is_labelled(config, record)

    def encode(self, records: Sequence[Record], repairs: Counter[str], train: bool) -> list[list[Example]]:
        """The `examples` of each record."""
        return [self.examples(record, repairs, train) for record in records]

    def examples(self, record: Record, repairs: Counter[str], train: bool) -> list[Example]:
        """The examples of a record.

        In training, examples have targets, and the list is empty if nothing can be learned from the record. In
        prediction there is at least one. `repairs` counts what was cut, is empty or can't be learned from. Raises
        UsageError for missing columns.
        """
        raise NotImplementedError

    def predict(self, record: Record, examples: Sequence[Example], outputs: Sequence[np.ndarray]) -> Prediction:
        """The prediction for the record of an `Outcome`, whose fields are the arguments."""
        raise NotImplementedError

    def gold(self, record: Record) -> Gold:
        """Returns the right answer of a record. Raises UsageError if the record has none."""
        raise NotImplementedError

    def metric(self, golds: Sequence[Gold]) -> str:
        """The metric that is the score of rows with these right answers."""
        return metric_of(self.config)

    def inputs(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records that the model reads to evaluate `records`; by default these themselves."""
        return records

    def evaluate(self, records: Sequence[Record], golds: Sequence[Gold], outcomes: Iterable[Outcome]) -> Results:
        """The metrics of `records`, the metrics of the baseline, and the worst errors.

        `outcomes` are those of the records' `inputs`.
        """
        predictions, mistakes = [], []
        for gold, outcome in zip(golds, outcomes, strict=True):
            prediction = self.predict(*outcome)
            if wrong := self.mistake(outcome, gold, prediction):
                mistakes.append((wrong, outcome.record))
            prediction.pop("probabilities", None)  # with many classes, those of all rows would fill the memory
            predictions.append(prediction)
        measured, name = self.measure(golds, predictions), self.metric(golds)
        worst = sorted(mistakes, key=lambda each: -each[0].size)[:MOST_ERRORS]
        different = {repr(answer := next(iter(prediction.values()))): answer for prediction in predictions}
        is_constant = len(different) == 1 and len(predictions) > 1
        return measured.updated(
            {
                "metric": name,
                "score": measured.metrics[name],
                "baseline": self.measure(golds, self.baseline(golds)).metrics,
                "errors": [mistake_of(self.shown_text(record), *wrong[1:]) for wrong, record in worst],
                "constant_prediction": different.popitem()[1] if is_constant else None,
            }
        )

    def measure(self, golds: Sequence[Gold], predictions: Sequence[Prediction]) -> Results:
        """Every metric of the kind, as shares of 1. Classes also have their figures and the confusion."""
        raise NotImplementedError

    def row_outcomes(self, golds: Sequence[Gold], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """What the suite compares models by, row by row: `golds` and `predicted`, classes or numbers; or `tag_counts`:
        by metric, how many items of each row are true, predicted and right. Empty if rows aren't compared."""
        raise NotImplementedError

    def mistake(self, outcome: Outcome, gold: Gold, prediction: Prediction) -> Wrong | None:
        """What is wrong with the prediction of `outcome`; None if it is right."""
        raise NotImplementedError

    def shown_text(self, record: Record) -> str:
        """The texts of a record on one line, for people to read."""
        return " | ".join(text(record, template) for template in self.config.texts)

    def baseline(self, golds: Sequence[Gold]) -> list[Prediction]:
        """The same prediction for each of `golds`: the most frequent of them, or their mean."""
        raise NotImplementedError


def mistake_of(text: str, right: str, predicted: str, probability: float | None = None) -> Mistake:
    """A mistake as the results list it. Long texts are cut."""
    text, right, predicted = (each[:_MOST_CHARACTERS] for each in (text, right, predicted))
    mistake = Mistake(text=text, right=right, predicted=predicted)
    return mistake if probability is None else mistake.model_copy(update={"probability": probability})


def probabilities(logits: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """The softmax, in float64."""
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return powers / powers.sum()


def most_frequent(values: Iterable[Common]) -> Common:
    """The most frequent of hashable `values`; of several, the first."""
    return Counter(values).most_common(1)[0][0]
