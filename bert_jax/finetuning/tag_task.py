"""A tag for every word."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from bert_jax.batching.sequences import joined
from bert_jax.config.task import TaskConfig
from bert_jax.config.wording import counted
from bert_jax.finetuning.character_spans import (
    OUTSIDE,
    Range,
    counted_tag,
    counted_tags,
    spans_of,
    tags_of,
    word_places,
)
from bert_jax.finetuning.columns import list_or_value, text, word_list
from bert_jax.finetuning.metrics import tag_counts, tag_metrics
from bert_jax.finetuning.task import (
    EMPTY,
    IGNORED,
    Example,
    Outcome,
    Prediction,
    Task,
    Wrong,
    most_frequent,
    probabilities,
)
from bert_jax.records.record import Record
from bert_jax.run.results import Results
from bert_jax.system.errors import Setting, UsageError, listed, quoted
from bert_jax.system.progress import warn
from bert_jax.text.vocabulary import PieceSpan
from bert_jax.text.word_pieces import first_pieces, joined_words

_SHOWN = 5
"""Most tags that a message lists."""
_BEGIN_OR_INSIDE = re.compile(r"[BI][-_].", re.IGNORECASE)
_BRACKET = re.compile(r"\(\S+\*\)*|[(\[<{][^]()[<>{}\s]+|</\S+>")
"""The beginning or end of a bracket around words: (PERSON*, (PERSON*), (ARG1(V*), (12, [PERSON or </PERSON>."""
_PARTS_OF_SPEECH, _UNSPECIFIED = ("upos", "xpos"), "_"
"""Columns of CoNLL-U that tag each word, and what stands in them for an unspecified value."""
_PARTS = "sentences longer than {} pieces, cut in parts"
_LONG = "words longer than {} pieces, cut"
_DROPPED = "words without a piece of their own, not learned from"


class TagTask(Task[list[str]]):
    """Predicts the tag of each word at its first piece; other pieces have no target.

    Words are encoded as one text, as in pretraining. A word of control characters alone has no piece. A word that the
    tokenizer joins to the word before gets that word's tag.
    """

    @classmethod
    def read(cls, config: TaskConfig, record: Record, repairs: Counter[str]) -> Record:
        """Returns the record with a list of tags in place of numbers in `config.labels` or of character spans."""
        if not cls.is_labelled(config, record):
            return record
        words, value, labels = record.value(config.texts[0]), list_or_value(record, config.label), config.labels or ()
        if isinstance(words, str) and isinstance(value, list) and {type(one) for one in value} in ({str}, {int}):
            words = word_list(record, config.texts[0])  # a table has both lists in JSON
        if isinstance(words, str):
            value = tags_of(record, config.label, words, repairs)
        elif isinstance(value, list) and value and all(type(number) is int for number in value):
            if (wrong := next((number for number in value if not 0 <= number < len(labels)), None)) is not None:
                raise UsageError(
                    f"{record.place}: {config.label!r} has the number {wrong} for a tag, and "
                    f"{Setting('task.labels')} names {len(labels)} tags; name all in the order of their numbers, "
                    f"from 0: {Setting('task.labels')} O B-PER I-PER"
                )
            value = [labels[number] for number in value]
        return record._replace(values=record.values | {config.texts[0]: words, config.label: value})

    @classmethod
    def names(cls, config: TaskConfig, record: Record) -> list[str]:
        return word_list(record, config.label)

    @classmethod
    def with_labels(cls, config: TaskConfig, records: Sequence[Record]) -> TaskConfig:
        """`config` with the tags, and with whether rows have character spans. Warns of tags that name no entity."""
        config = config.replace(character_spans=isinstance(records[0].value(config.texts[0]), str))
        config, counts = super().with_labels(config, records), cls.count_names(config, records)
        check_entity_tags(config, counts)
        if config.label in _PARTS_OF_SPEECH and (untagged := counts[_UNSPECIFIED]):
            warn(
                f"{config.train}: {untagged:,} of {counts.total():,} words have {_UNSPECIFIED!r} for {config.label}, "
                "which CoNLL-U writes for a word without a tag; it is learned as a tag, so leave such sentences out"
            )
        return config

    @classmethod
    def all_labels(cls, config: TaskConfig, names: Iterable[str]) -> tuple[str, ...]:
        """All tags. For character spans they are O, and B- and I- of each type, even if no training row has both."""
        labels = super().all_labels(config, names)
        if not config.character_spans or OUTSIDE in (config.labels or ()):
            return labels
        types = [name[2:] if name[:2] in ("B-", "I-") else name for name in labels if name != OUTSIDE]
        return (OUTSIDE, *(f"{letter}-{kind}" for kind in dict.fromkeys(types) for letter in "BI"))

    def _sentence(self, record: Record) -> tuple[str, list[Range]]:
        """A sentence as one text, and the places of its words.

        A list of words is joined by spaces if their script uses spaces.
        """
        column = self.config.texts[0]
        if self.config.character_spans and isinstance(record.value(column), str):
            whole = text(record, column)
            return whole, word_places(whole)
        return joined_words(word_list(record, column))

    def examples(self, record: Record, repairs: Counter[str], train: bool) -> list[Example]:
        """An example for each part of a sentence. A sentence that is too long is cut between words.

        In prediction, `origin` maps words to tokens.
        """
        spans, first = first_pieces(*self._sentence(record), self._tokenizer)
        tags = self.gold(record) if train else None
        repairs[EMPTY] += not spans
        return [] if train and not spans else self._parts(spans, first, tags, repairs)

    def _parts(
        self, spans: list[PieceSpan], first: list[int | None], tags: list[str] | None, repairs: Counter[str]
    ) -> list[Example]:
        vocabulary = self._tokenizer.vocabulary
        before, after = map(len, vocabulary.frame.single)
        room = self.config.max_length - before - after
        cuts = _cuts(sorted({0, *(piece for piece in first if piece is not None)}), len(spans), room)
        repairs[_PARTS.format(self.config.max_length)] += len(cuts) > 2
        targets = None if tags is None else self._targets(first, tags, repairs)
        parts, words = [], sorted((piece, word) for word, piece in enumerate(first) if piece is not None)
        for begin, end in pairwise(cuts):
            here = range(begin, min(end, begin + room))
            repairs[_LONG.format(self.config.max_length)] += here.stop < end
            part = Example((joined([[spans[number].id for number in here]], vocabulary, self.config.max_length),))
            if targets is None:
                own = words[bisect_left(words, (here.start,)) : bisect_left(words, (here.stop,))]
                tokens = {word: piece - begin + before for piece, word in own}
                parts.append(part._replace(origin=tokens))
            else:
                inside = [targets.get(number, IGNORED) for number in here]
                parts.append(part._replace(target=[IGNORED] * before + inside + [IGNORED] * after))
        return parts

    def _targets(self, first: list[int | None], tags: list[str], repairs: Counter[str]) -> dict[int, int]:
        """Maps the first piece of each word to the number of the word's tag."""
        targets: dict[int, int] = {}
        for piece, tag in zip(first, tags, strict=True):
            if piece is None or piece in targets:
                repairs[_DROPPED] += 1
            else:
                targets[piece] = self.labels.number(tag, "a sentence")
        return targets

    def gold(self, record: Record) -> list[str]:
        """The tags of the words. Raises UsageError if words and tags differ in number, or for an unknown tag."""
        tags = self.names(self.config, record)
        count = len(self._sentence(record)[1])
        if len(tags) != count:
            given = f"{counted(count, 'words')} and {counted(len(tags), 'tags')}"
            raise UsageError(f"{record.place} has {given}; give each word one")
        for number, tag in enumerate(tags, 1):
            self.labels.number(tag, f"{record.place}, word {number}")
        return tags

    def predict(self, record: Record, examples: Sequence[Example], outputs: Sequence[np.ndarray]) -> Prediction:
        """The most probable tag of each word, and the entities if a text was given.

        A word without a piece gets O; if no tag is named O, it gets no tag.
        """
        sentence, places = self._sentence(record)
        tags = [OUTSIDE if OUTSIDE in self.labels.names else ""] * len(places)
        for example, logits in zip(examples, outputs, strict=True):
            for word, place in example.origin.items():
                tags[word] = self.labels.names[int(np.argmax(logits[place]))]
        if not isinstance(record.value(self.config.texts[0]), str) or not self.config.character_spans:
            return {"predicted_tags": tags}
        words = [sentence[begin:end] for begin, end in places]
        return {"predicted_spans": spans_of(tags, places), "predicted_words": words, "predicted_tags": tags}

    def measure(self, golds: Sequence[list[str]], predictions: Sequence[Prediction]) -> Results:
        """The metrics of `tag_metrics`."""
        return tag_metrics(golds, [one["predicted_tags"] for one in predictions], self.labels.names)

    def row_outcomes(self, golds: Sequence[list[str]], predictions: Sequence[Prediction]) -> dict[str, Any]:
        return {"tag_counts": tag_counts(golds, [one["predicted_tags"] for one in predictions], self.labels.names)}

    def mistake(self, outcome: Outcome, gold: list[str], prediction: Prediction) -> Wrong | None:
        """The words with a wrong tag.

        The mistake's size is their number; its probability is that of the surest wrong tag.
        """
        sentence, places = self._sentence(outcome.record)
        numbered = enumerate(zip(places, gold, prediction["predicted_tags"], strict=True))
        wrong = {word: (sentence[begin:end], *tags) for word, ((begin, end), *tags) in numbered if tags[0] != tags[1]}
        right, predicted = (", ".join(f"{each[0]} {each[side]}" for each in wrong.values()) for side in (1, 2))
        logits = zip(outcome.examples, outcome.outputs, strict=True)
        read = [
            outputs[place] for example, outputs in logits for word, place in example.origin.items() if word in wrong
        ]
        share = max((float(probabilities(each).max()) for each in read), default=None)
        return Wrong(len(wrong), right, predicted, share) if wrong else None

    def shown_text(self, record: Record) -> str:
        return self._sentence(record)[0]

    def baseline(self, golds: Sequence[list[str]]) -> list[Prediction]:
        """Predicts the most frequent tag for every word."""
        tag = most_frequent(tag for tags in golds for tag in tags)
        return [{"predicted_tags": [tag] * len(tags)} for tags in golds]


def check_entity_tags(config: TaskConfig, counts: Counter[str]) -> None:
    """Warns of tags that name no entity if the other tags seem to name entities.

    `counts` has the tags of the training rows. Tags seem to name entities if O is among them, or a tag like B-PER in
    upper or lower case. Raises UsageError for tags that are brackets around words, and if task.metric is entity_f1 and
    the tags name no entities.
    """
    labels = config.labels or ()
    if brackets := [tag for tag in labels if _BRACKET.fullmatch(tag)]:
        raise UsageError(
            f"{config.train}: tags like {listed(brackets[:_SHOWN])} are brackets around words, as in CoNLL-2012; write "
            "B-PERSON for the first word, I-PERSON for the others, and O outside"
        )
    odd = [tag for tag in labels if tag != OUTSIDE and counted_tag(tag) is None]
    named = ", ".join(f"{quoted(tag)} ({counts[tag]:,} of {counts.total():,} words)" for tag in odd[:_SHOWN])
    named += ", ..." if len(odd) > _SHOWN else ""
    if odd and counted_tags(labels):
        warn(f"{config.train}: entity F1 counts these tags as {OUTSIDE}, since they name no entity: {named}")
    elif config.metric == "entity_f1" and not counted_tags(labels):
        lacks = f"these don't name any: {named}" if OUTSIDE in labels else f"there is no {OUTSIDE}: {listed(labels)}"
        raise UsageError(
            f"{Setting('task.metric', 'entity_f1')} measures tags like O, B-PER and I-PER, and {lacks}; correct "
            f"them, or leave {Setting('task.metric')} out to measure accuracy"
        )
    elif odd and OUTSIDE in labels:
        warn(f"{config.train}: accuracy alone is measured and no entity F1, since these tags name no entity: {named}")
    elif OUTSIDE not in labels and any(map(_BEGIN_OR_INSIDE.match, labels)):
        which = f"these tags name no entity: {named}" if odd else f"there are only {listed(labels)}"
        warn(f"{config.train}: accuracy alone is measured and no entity F1, since no tag is {OUTSIDE} and {which}")


def _cuts(begins: Sequence[int], count: int, room: int) -> list[int]:
    """Where parts of at most `room` pieces begin; the last item is `count`.

    A part ends before a word. A word longer than `room` is a part by itself, the only kind of part that exceeds `room`.
    """
    cuts = [0]
    for begin, end in zip(begins, [*begins[1:], count], strict=True):
        if end - cuts[-1] > room and begin > cuts[-1]:
            cuts.append(begin)
    return [*cuts, count]
