"""A tag for every word."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.config.task import TaskConfig
from bert_jax.corpora.task_record import Record
from bert_jax.finetuning.columns import words
from bert_jax.finetuning.metrics import OUTSIDE, tag_metrics
from bert_jax.finetuning.task import EMPTY, IGNORED, Example, Prediction, Task, commonest
from bert_jax.layout import TokenSequence
from bert_jax.system.errors import UsageError
from bert_jax.text.scripts import sets_no_spaces
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import PieceSpan

_PARTS = "sentences longer than {} pieces, cut in parts"
_LONG = "words longer than {} pieces, cut"
_DROPPED = "words without a piece of their own, not learned from"


class TagTask(Task):
    """The tag of a word is asked at its first piece; other pieces have none.

    Words are encoded as one text, with a space between two unless one of them is of a script that sets none, so that
    pieces are those of pretraining. A word that the tokenizer drops (of control characters alone) has no piece; one
    that it joined to the word before has none of its own, and that word's tag is predicted for it.
    """

    @classmethod
    def names(cls, config: TaskConfig, record: Record) -> list[str]:
        """Returns the tags of the record's words; whole numbers are the numbers of tags in `config.labels`."""
        value = record.value(config.label)
        if not (isinstance(value, list) and value and all(type(number) is int for number in value)):
            return words(record, config.label)
        labels = config.labels or ()
        if (wrong := next((number for number in value if not 0 <= number < len(labels)), None)) is not None:
            raise UsageError(
                f"{record.place}: {config.label!r} has the number {wrong} for a tag, and task.labels names "
                f"{len(labels)} tags; name all in the order of their numbers, from 0: --task.labels O B-PER I-PER"
            )
        return [labels[number] for number in value]

    def encode(self, records: Sequence[Record], repairs: Counter[str], train: bool) -> list[list[Example]]:
        """An example for each part of a sentence, which is cut between words where it is too long. `origin` has the
        token of each word that has one."""
        encoded = []
        for record in records:
            sentence = words(record, self.config.texts[0])
            spans, first = first_pieces(sentence, self._tokenizer)
            tags = self.gold(record) if train else None
            repairs[EMPTY] += not spans
            examples = [] if train and not spans else self._parts(spans, first, tags, repairs)
            encoded.append(examples)
        return encoded

    def _parts(
        self, spans: list[PieceSpan], first: list[int | None], tags: list[str] | None, repairs: Counter[str]
    ) -> list[Example]:
        """Builds one example, or several for a long sentence."""
        vocabulary, room = self._tokenizer.vocabulary, self.config.max_length - 2
        cuts = _cuts(sorted({0, *(piece for piece in first if piece is not None)}), len(spans), room)
        repairs[_PARTS.format(self.config.max_length)] += len(cuts) > 2
        asked = None if tags is None else self._asked(first, tags, repairs)
        parts = []
        for begin, end in zip(cuts, cuts[1:]):
            here = range(begin, min(end, begin + room))
            repairs[_LONG.format(self.config.max_length)] += here.stop < end
            ids = [vocabulary.cls_id, *(spans[number].id for number in here), vocabulary.sep_id]
            part = Example((TokenSequence(ids, len(ids)),))
            if asked is None:
                tokens = {word: piece - begin + 1 for word, piece in enumerate(first) if piece in here}
                parts.append(part._replace(origin=tokens))
            else:
                targets = [asked.get(number, IGNORED) for number in here]
                parts.append(part._replace(target=[IGNORED, *targets, IGNORED]))
        return parts

    def _asked(self, first: list[int | None], tags: list[str], repairs: Counter[str]) -> dict[int, int]:
        """Maps the first piece of each word to the number of the word's tag."""
        asked: dict[int, int] = {}
        for piece, tag in zip(first, tags):
            if piece is None or piece in asked:
                repairs[_DROPPED] += 1
            else:
                asked[piece] = self.labels.number(tag, "a sentence")
        return asked

    def gold(self, record: Record) -> list[str]:
        """The tags. Raises UsageError where there aren't as many as words, or for one that isn't known."""
        tags = self.names(self.config, record)
        count = len(words(record, self.config.texts[0]))
        if len(tags) != count:
            raise UsageError(f"{record.place} has {count} words and {len(tags)} tags; give each word one")
        for number, tag in enumerate(tags, 1):
            self.labels.number(tag, f"{record.place}, word {number}")
        return tags

    def predict(self, record: Record, examples: Sequence[Example], outputs: Sequence[np.ndarray]) -> Prediction:
        """The likeliest tag of each word. A word without a piece has O, or no tag where none is called so."""
        without = OUTSIDE if OUTSIDE in self.labels.names else ""
        tags = [without] * len(record.value(self.config.texts[0]))
        for example, logits in zip(examples, outputs):
            for word, place in example.origin.items():
                tags[word] = self.labels.names[int(np.argmax(logits[place]))]
        return {"predicted_tags": tags}

    def measure(self, golds: Sequence[list[str]], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """The accuracy and, of tags that name entities, F1, precision and recall of these."""
        return tag_metrics(golds, [one["predicted_tags"] for one in predictions], self.labels.names)

    def baseline(self, golds: Sequence[list[str]]) -> list[Prediction]:
        """Predicts the commonest tag for every word."""
        tag = commonest(tag for tags in golds for tag in tags)
        return [{"predicted_tags": [tag] * len(tags)} for tags in golds]


def first_pieces(sentence: Sequence[str], tokenizer: Tokenizer) -> tuple[list[PieceSpan], list[int | None]]:
    """The pieces of a sentence, and for each word the number of the first that stands for any of it; None without."""
    text, places = "", []
    for word in sentence:
        if text and word and not (sets_no_spaces(text[-1]) or sets_no_spaces(word[0])):
            text += " "
        places.append((len(text), len(text) + len(word)))
        text += word
    spans = tokenizer.encode_spans(text)
    first, number = [], 0
    for begin, end in places:
        while number < len(spans) and spans[number].end <= max(begin, spans[number].begin):
            number += 1
        first.append(number if number < len(spans) and spans[number].begin < end else None)
    return spans, first


def _cuts(begins: Sequence[int], count: int, room: int) -> list[int]:
    """Where parts of at most `room` pieces begin, and `count`; a part ends before a word, unless it is only one."""
    cuts = [0]
    for begin, end in zip(begins, [*begins[1:], count]):
        if end - cuts[-1] > room and begin > cuts[-1]:
            cuts.append(begin)
    return [*cuts, count]
