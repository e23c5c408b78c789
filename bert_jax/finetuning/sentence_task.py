"""Tasks of one text or a pair: a class, labels, a number, a class with marked words, or the best of several choices."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from bert_jax.batching.sequences import joined, truncated_sizes
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.character_spans import pieces_of
from bert_jax.finetuning.columns import MOST_DIGITS, class_label, label_names, number, text, whole_number
from bert_jax.finetuning.metrics import class_metrics, label_metrics, number_metrics
from bert_jax.finetuning.task import CUT, EMPTY, Example, Outcome, Prediction, Task, Wrong, most_frequent, probabilities
from bert_jax.records.record import Record
from bert_jax.run.results import Results
from bert_jax.system.errors import UsageError, quoted

RowGold = TypeVar("RowGold", bound=int | float | Sequence[int])
_DROPPED = "rows whose marked word has no piece"


class SentenceTask(Task[RowGold]):
    """Sequences [CLS] text [SEP] or [CLS] first [SEP] second [SEP], cut as in the original's run_classifier.py."""

    def encode(self, records: Sequence[Record], repairs: Counter[str], train: bool) -> list[list[Example]]:
        """An example for each record, with a sequence for each choice.

        Empty texts have no pieces, so training skips a record with an empty text.
        """
        config, vocabulary = self.config, self._tokenizer.vocabulary
        columns = (*config.texts, *config.choices)
        texts = [text(record, template) for record in records for template in columns]
        pieces = iter(self._tokenizer.encode_batch(texts))
        encoded = []
        for record in records:
            segments = [next(pieces) for _ in columns]
            first, *choices = segments
            pairs = [[first, choice] for choice in choices] if config.choices else [segments]
            sequences = tuple(joined(pair, vocabulary, config.max_length) for pair in pairs)
            repairs[EMPTY] += not all(segments)
            repairs[CUT.format(config.max_length)] += sum(one.cut for one in sequences)
            target = self.gold(record) if train else None
            encoded.append([Example(sequences, target)] if all(segments) or not train else [])
        return encoded


class ClassTask(SentenceTask[int]):
    """A text or pair to a class."""

    @classmethod
    def names(cls, config: TaskConfig, record: Record) -> list[str]:
        return [class_label(record, config.label)]

    def gold(self, record: Record) -> int:
        """Returns the number of the record's class."""
        return self.labels.number(class_label(record, self.config.label), record.place)

    def predict(self, record: Record, examples: Sequence[Example], outputs: Sequence[np.ndarray]) -> Prediction:
        """The most probable class, and the probability of each class."""
        shares = probabilities(outputs[0]).tolist()
        return {
            "predicted_label": self.labels.names[int(np.argmax(shares))],
            "probabilities": dict(zip(self.labels.names, shares, strict=True)),
        }

    def measure(self, golds: Sequence[int], predictions: Sequence[Prediction]) -> Results:
        """Accuracy, F1, macro F1 and Matthews' correlation, the figures of each class, and the confusion."""
        return class_metrics(golds, self._numbers(predictions), self.labels.names)

    def row_outcomes(self, golds: Sequence[int], predictions: Sequence[Prediction]) -> dict[str, Any]:
        return {"golds": list(golds), "predicted": self._numbers(predictions)}

    def _numbers(self, predictions: Sequence[Prediction]) -> list[int]:
        return [self.labels.number(one["predicted_label"], "a prediction") for one in predictions]

    def mistake(self, outcome: Outcome, gold: int, prediction: Prediction) -> Wrong | None:
        """The predicted class, if it is wrong. The mistake's size is the probability of that class."""
        right, predicted = self.labels.names[gold], prediction["predicted_label"]
        share = prediction["probabilities"][predicted]
        return Wrong(share, right, predicted, share) if predicted != right else None

    def baseline(self, golds: Sequence[int]) -> list[Prediction]:
        return [{"predicted_label": self.labels.names[most_frequent(golds)]}] * len(golds)


class MarkedTask(ClassTask):
    """Whether a word has the same meaning in two texts, as in SuperGLUE's WiC."""

    encode = Task.encode

    def examples(self, record: Record, repairs: Counter[str], train: bool) -> list[Example]:
        """One example with the places of the marked words. A long text is cut around its marked word.

        If a marked word has no piece, training skips the record, and in prediction [CLS] stands for the word.
        """
        config, vocabulary = self.config, self._tokenizer.vocabulary
        spans, words = [], []
        for side, template in enumerate(config.texts):
            whole = text(record, template)
            edges = config.marks[2 * side : 2 * side + 2]
            begin, end = (whole_number(record, name, record.value(name), repairs) for name in edges)
            if not 0 <= begin < end <= len(whole):
                raise UsageError(
                    f"{record.place}: the marked word is at characters {begin} to {end} of a text of {len(whole)}; "
                    f"give its beginning, from 0, and its end (exclusive) in {', '.join(config.marks)}"
                )
            spans.append(self._tokenizer.encode_spans(whole))
            words.append(pieces_of(spans[-1], begin, end))
        sizes = truncated_sizes(tuple(map(len, spans)), config.max_length, vocabulary.frame)
        repairs[CUT.format(config.max_length)] += sum(sizes) < sum(map(len, spans))
        before, *after = vocabulary.frame.around(len(spans))
        class_place = 0 if vocabulary.class_token == "first" else sum(sizes) + vocabulary.frame.size(len(spans)) - 1
        in_class = class_place, class_place + 1
        parts, marks, offset = [], [], len(before)
        for of_text, size, word, special in zip(spans, sizes, words, after, strict=True):
            first = min(max((word.start + word.stop - size) // 2, 0), len(of_text) - size)
            begin, last = offset - first, first + size
            # a marked phrase may be longer than the part that is kept
            marks.append((begin + max(word.start, first), begin + min(word.stop, last)) if word else in_class)
            parts.append([piece.id for piece in of_text[first:last]])
            offset += size + len(special)
        repairs[_DROPPED] += not all(words)
        if train and not all(words):
            return []
        target = self.gold(record) if train else None
        return [Example((joined(parts, vocabulary, config.max_length),), target, tuple(marks))]


class LabelsTask(SentenceTask[tuple[int, ...]]):
    """All labels that hold for a text or pair: none, one or several."""

    @classmethod
    def names(cls, config: TaskConfig, record: Record) -> list[str]:
        return label_names(record, config)

    @classmethod
    def is_labelled(cls, config: TaskConfig, record: Record) -> bool:
        """Whether the label's column is there, even if empty, or the columns of all labels are."""
        return record.has(config.label) or all(map(record.has, config.labels or (config.label,)))

    def gold(self, record: Record) -> tuple[int, ...]:
        """1 for each label that holds, 0 for each other one."""
        held = {self.labels.number(name, record.place) for name in self.names(self.config, record)}
        return tuple(int(number in held) for number in range(len(self.labels)))

    def predict(self, record: Record, examples: Sequence[Example], outputs: Sequence[np.ndarray]) -> Prediction:
        """The labels that hold with a probability above one half, and the probability of each."""
        shares = (1 / (1 + np.exp(-outputs[0].astype(np.float64)))).tolist()
        named = dict(zip(self.labels.names, shares, strict=True))
        return {"predicted_labels": [name for name, share in named.items() if share > 0.5], "probabilities": named}

    def measure(self, golds: Sequence[tuple[int, ...]], predictions: Sequence[Prediction]) -> Results:
        """Micro and macro F1, the share of rows with all labels right, and the figures of each label."""
        held = [set(one["predicted_labels"]) for one in predictions]
        predicted = [[int(name in one) for name in self.labels.names] for one in held]
        return label_metrics(golds, predicted, self.labels.names)

    def row_outcomes(self, golds: Sequence[tuple[int, ...]], predictions: Sequence[Prediction]) -> dict[str, Any]:
        return {}

    def mistake(self, outcome: Outcome, gold: tuple[int, ...], prediction: Prediction) -> Wrong | None:
        """The predicted labels, if they are wrong. The mistake's size is the number of wrong labels."""
        right = [name for name, held in zip(self.labels.names, gold, strict=True) if held]
        predicted = prediction["predicted_labels"]
        wrong = {*right} ^ {*predicted}
        if not wrong:
            return None
        share = math.prod(max(each, 1 - each) for each in prediction["probabilities"].values())
        return Wrong(len(wrong), ", ".join(right) or "none", ", ".join(predicted) or "none", share)

    def baseline(self, golds: Sequence[tuple[int, ...]]) -> list[Prediction]:
        """Predicts the most frequent label alone for every record."""
        name = self.labels.names[int(np.argmax(np.sum(golds, axis=0)))]
        return [{"predicted_labels": [name]}] * len(golds)


class NumberTask(SentenceTask[float]):
    """A text or pair to a number."""

    def gold(self, record: Record) -> float:
        return number(record, self.config.label)

    def answers(self, record: Record) -> list[float]:
        return [self.gold(record)]

    def predict(self, record: Record, examples: Sequence[Example], outputs: Sequence[np.ndarray]) -> Prediction:
        return {"predicted_number": float(outputs[0][0])}

    def measure(self, golds: Sequence[float], predictions: Sequence[Prediction]) -> Results:
        return Results.model_validate(number_metrics(golds, [one["predicted_number"] for one in predictions]))

    def row_outcomes(self, golds: Sequence[float], predictions: Sequence[Prediction]) -> dict[str, Any]:
        return {"golds": list(golds), "predicted": [one["predicted_number"] for one in predictions]}

    def mistake(self, outcome: Outcome, gold: float, prediction: Prediction) -> Wrong | None:
        """The predicted number, if it differs. The mistake's size is the distance."""
        predicted = prediction["predicted_number"]
        return Wrong(abs(predicted - gold), f"{gold:.4g}", f"{predicted:.4g}") if predicted != gold else None

    def baseline(self, golds: Sequence[float]) -> list[Prediction]:
        return [{"predicted_number": float(np.mean(golds))}] * len(golds)


class ChoiceTask(SentenceTask[int]):
    """The best of several choices. Each choice has a score from the sequence [CLS] text [SEP] choice [SEP]."""

    def gold(self, record: Record) -> int:
        """The number of the right choice, from 0. The label may also be the name of its column."""
        name, count = class_label(record, self.config.label), len(self.config.choices)
        if name in self.config.choices:
            return self.config.choices.index(name)
        if not (name.isdecimal() and len(name) <= MOST_DIGITS and int(name) < count):
            raise UsageError(
                f"{record.place}: the label {quoted(name)} is no choice; they are numbered from 0 to {count - 1}, not "
                "from 1"
            )
        return int(name)

    def answers(self, record: Record) -> list[str]:
        """The number of the right choice, as text."""
        return [str(self.gold(record))]

    def predict(self, record: Record, examples: Sequence[Example], outputs: Sequence[np.ndarray]) -> Prediction:
        """The number of the most probable choice, and the probability of each choice."""
        shares = probabilities(outputs[0]).tolist()
        return {"predicted_choice": int(np.argmax(shares)), "probabilities": shares}

    def measure(self, golds: Sequence[int], predictions: Sequence[Prediction]) -> Results:
        right = (gold == one["predicted_choice"] for gold, one in zip(golds, predictions, strict=True))
        return Results.model_validate({"accuracy": sum(right) / len(golds)})

    def row_outcomes(self, golds: Sequence[int], predictions: Sequence[Prediction]) -> dict[str, Any]:
        return {"golds": list(golds), "predicted": [one["predicted_choice"] for one in predictions]}

    def mistake(self, outcome: Outcome, gold: int, prediction: Prediction) -> Wrong | None:
        """The predicted choice, if it is wrong. The mistake's size is the probability of that choice."""
        predicted = prediction["predicted_choice"]
        right, wrong = (text(outcome.record, self.config.choices[number]) for number in (gold, predicted))
        share = prediction["probabilities"][predicted]
        return Wrong(share, right, wrong, share) if predicted != gold else None

    def baseline(self, golds: Sequence[int]) -> list[Prediction]:
        return [{"predicted_choice": most_frequent(golds)}] * len(golds)
