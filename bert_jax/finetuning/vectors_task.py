"""Pairs of texts for learning vectors of texts (Reimers and Gurevych 2019, arXiv:1908.10084)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from bert_jax.batching.sequences import joined
from bert_jax.config.task import TaskConfig
from bert_jax.corpora.messages import kind_of, listed
from bert_jax.corpora.task_record import Record
from bert_jax.finetuning.columns import number, text
from bert_jax.finetuning.task import CUT, EMPTY, Example, Outcome, Prediction, Task
from bert_jax.system.errors import UsageError

_USUAL_COLUMNS = (("query", "positive"), ("a", "b"))
"""Columns of the two texts of a pair, in files that lack those of task.texts."""
_EQUAL_NEGATIVES = "negatives equal to a text of their pair, left out"


class TextPair(NamedTuple):
    """The texts of a row."""

    first: str
    second: str
    negatives: list[str]
    """Texts that don't match the first one."""
    score: float | None
    """How similar the two texts are; None if the row doesn't say: they match."""


class VectorsTask(Task):
    """Texts to vectors, from pairs that match or have a score of similarity."""

    @classmethod
    def settled(cls, config: TaskConfig, records: Sequence[Record]) -> TaskConfig:
        """Whether the pairs have scores, and the most negatives of a row. Raises UsageError if all pairs are equal."""
        pairs = [pair_of(config, record, Counter()) for record in records]
        scored = pairs[0].score is not None
        if scored and len({pair.score for pair in pairs}) == 1:
            raise UsageError(
                f"{config.train}: all rows have the score {pairs[0].score:g}, and nothing can be compared; give rows "
                f"with other scores, or leave out the column {config.label!r} if all pairs match"
            )
        if not scored and len({pair.second for pair in pairs}) == 1 and not any(pair.negatives for pair in pairs):
            raise UsageError(
                f"{config.train or config.source}: the second text is the same in all rows, and nothing can be "
                "compared; give rows with other texts, or negatives"
            )
        most = max(len(pair.negatives) for pair in pairs)
        return config.replace(scored=scored, most_negatives=min(most, config.most_negatives or most))

    @classmethod
    def is_measurable(cls, config: TaskConfig, record: Record) -> bool:
        """Always: rows without a score are pairs that match."""
        return True

    def encode(self, records: Sequence[Record], repairs: Counter[str], train: bool) -> list[list[Example]]:
        """In training one example for each record, with a sequence for each of its texts: the first, the second and the
        negatives. Otherwise an example for each text that the record has. A pair with an empty text isn't learned
        from."""
        texts = [self._texts(record, repairs, train) for record in records]
        pieces = iter(self._tokenizer.encode_batch([text for of_record in texts for text in of_record]))
        encoded = []
        for record, of_record in zip(records, texts, strict=True):
            segments = [next(pieces) for _ in of_record]
            sequences = [joined([each], self._tokenizer.vocabulary, self.config.max_length) for each in segments]
            repairs[EMPTY] += not all(segments)
            repairs[CUT.format(self.config.max_length)] += sum(one.cut for one in sequences)
            if not train:
                encoded.append([Example((sequence,)) for sequence in sequences])
            elif all(segments):
                equal = [tuple(one.ids) for one in sequences[:2]]
                different = [one for one in sequences[2:] if tuple(one.ids) not in equal]
                repairs[_EQUAL_NEGATIVES] += len(sequences) - 2 - len(different)
                encoded.append([Example((*sequences[:2], *different), self.gold(record))])
            else:
                encoded.append([])
        return encoded

    def _texts(self, record: Record, repairs: Counter[str], train: bool) -> list[str]:
        pair = pair_of(self.config, record, repairs)
        return [pair.first, pair.second, *pair.negatives[: self.config.most_negatives]] if train else [*pair[:2]]

    def gold(self, record: Record) -> float | None:
        """The score of the pair; None if it has none."""
        return pair_of(self.config, record, Counter()).score

    def predict(self, record: Record, examples: Sequence[Example], outputs: Sequence[np.ndarray]) -> Prediction:
        """The cosine of the vectors of the two texts."""
        return {"predicted_similarity": float(np.dot(*map(unit_vector, outputs)))}

    def shown_text(self, record: Record) -> str:
        return " | ".join(pair_of(self.config, record, Counter())[:2])

    def evaluate(self, records: Sequence[Record], golds: Sequence[Any], outcomes: Iterable[Outcome]) -> dict[str, Any]:
        raise NotImplementedError


def unit_vector(vector: Float[np.ndarray, " D"], width: int | None = None) -> Float[np.ndarray, " W"]:
    """The first `width` components of a vector (None: all), divided by their Euclidean length."""
    first = vector[:width]
    return first / max(float(np.linalg.norm(first)), 1e-12)


def pair_of(config: TaskConfig, record: Record, repairs: Counter[str]) -> TextPair:
    """The texts and the score of a record, in the columns of `config` or in query and positive or a and b.

    Raises UsageError if the columns are missing or hold something else.
    """
    columns = _columns(config, record)
    first, second = (text(record, column) for column in columns)
    score = None
    if config.label in record.values and record.has(config.label):
        score = number(record, config.label)
        if config.score_range and not config.score_range[0] <= score <= config.score_range[1]:
            low, high = config.score_range
            raise UsageError(
                f"{record.place}: the score is {score:g}, and task.score_range is {low:g} to {high:g}; correct the row "
                "or the range"
            )
    return TextPair(first, second, _negatives(config, record), score)


def _columns(config: TaskConfig, record: Record) -> Sequence[str]:
    """The names of the columns of the two texts."""
    possible = (config.texts, *_USUAL_COLUMNS)
    for columns in possible:
        if all("{" in name or name in record.values for name in columns):
            return columns
    raise UsageError(
        f"{record.place} has no pair of texts in {' and '.join(config.texts)}: there is "
        f"{listed(record.columns or record.values)}; name the two columns by --task.texts"
    )


def _negatives(config: TaskConfig, record: Record) -> list[str]:
    """The texts in the column of negatives: a list of them, or one."""
    value = record.values.get(config.negatives)
    if value is None or value == "":
        return []
    negatives = [value] if isinstance(value, str) else value
    if not isinstance(negatives, list) or not all(isinstance(one, str) for one in negatives):
        raise UsageError(
            f"{record.place}: {config.negatives!r} is {kind_of(value)} and not a list of texts; give a list in JSON "
            "lines or one text"
        )
    return [one for one in negatives if one.strip()]
