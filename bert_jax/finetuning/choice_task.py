"""The best of several choices."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.batching.sequences import joined
from bert_jax.corpora.shown import quoted
from bert_jax.corpora.task_record import Record
from bert_jax.finetuning.columns import class_name, text
from bert_jax.finetuning.metrics import class_metrics
from bert_jax.finetuning.task import CUT, EMPTY, Example, Prediction, Task, commonest, probabilities
from bert_jax.system.errors import UsageError


class ChoiceTask(Task):
    """[CLS] text [SEP] choice [SEP] for each choice, one score each, a softmax over the choices."""

    def encode(self, records: Sequence[Record], repairs: Counter[str], train: bool) -> list[list[Example]]:
        """An example for each record, with a sequence for each choice. A record without text, or with an empty choice,
        is not learned from."""
        config = self.config
        columns = (*config.texts, *config.choices)
        texts = [text(record, template) for record in records for template in columns]
        pieces = iter(self._tokenizer.encode_batch(texts))
        encoded = []
        for record in records:
            first, *choices = (next(pieces) for _ in columns)
            vocabulary = self._tokenizer.vocabulary
            sequences = [joined([first, choice], vocabulary, config.max_length) for choice in choices]
            empty = not (first and all(choices))
            repairs[EMPTY] += empty
            repairs[CUT.format(config.max_length)] += sum(one.cut for one in sequences)
            target = self.gold(record) if train else None
            encoded.append([] if train and empty else [Example(tuple(sequences), target)])
        return encoded

    def gold(self, record: Record) -> int:
        """The number of the right choice, from 0. The label may also be the name of its column."""
        name, count = class_name(record, self.config.label), len(self.config.choices)
        if name in self.config.choices:
            return self.config.choices.index(name)
        if not (name.isdecimal() and len(name) <= 18 and int(name) < count):
            raise UsageError(
                f"{record.place}: the label {quoted(name)} is no choice; they are numbered from 0 to {count - 1}"
            )
        return int(name)

    def predict(self, record: Record, examples: Sequence[Example], outputs: Sequence[np.ndarray]) -> Prediction:
        """The likeliest choice's number, and the probability of each."""
        shares = probabilities(outputs[0]).tolist()
        return {"predicted_choice": int(np.argmax(shares)), "probabilities": shares}

    def measure(self, golds: Sequence[int], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Returns the accuracy."""
        names = list(map(str, range(len(self.config.choices))))
        found = class_metrics(golds, [one["predicted_choice"] for one in predictions], names)
        return {"accuracy": found["accuracy"]}

    def baseline(self, golds: Sequence[int]) -> list[Prediction]:
        """Predicts the commonest choice's number for every record."""
        return [{"predicted_choice": commonest(golds)}] * len(golds)
