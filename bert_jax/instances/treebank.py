"""Reads a treebank whose words have parts of speech, and gives its rows together with those of a prepared text."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from bert_jax.batching.packing import best_fit
from bert_jax.config.data import DataConfig
from bert_jax.config.prediction import UNIVERSAL_TAGS
from bert_jax.instances.held_out import is_held_out
from bert_jax.instances.instances import UNTAGGED, Instances, build_instances
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.instances.segments import pack_sentences
from bert_jax.instances.sentences import Sentences
from bert_jax.instances.shards import InstanceSource, encode_instances
from bert_jax.records.formats import format_of
from bert_jax.records.record import RowFormat
from bert_jax.records.sources import held_records
from bert_jax.system.bucket import place_of
from bert_jax.system.content import content_hash
from bert_jax.system.errors import Setting, UsageError, quoted
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.word_pieces import first_pieces, joined_words

_NUMBERS = {tag: number for number, tag in enumerate(UNIVERSAL_TAGS)} | {"_": UNTAGGED}
_MOST_UNKNOWN_WORDS = 0.5
"""Largest share of words that the vocabulary may lack; a treebank in the language of the text is far below it."""


class TaggedSentence(NamedTuple):
    """A sentence of a treebank."""

    words: tuple[str, ...]
    tags: tuple[int, ...]
    """The number in UNIVERSAL_TAGS of each word's tag; UNTAGGED for a word without one."""


class Treebank(NamedTuple):
    """The sentences of a treebank as sequences of one length, with tags and with no token that masking may take."""

    train: Instances
    held_out: Instances
    """The sentences that are only measured, each in a row of its own."""

    @classmethod
    def of(
        cls, sentences: Sequence[TaggedSentence], path: str, tokenizer: Tokenizer, length: int, data: DataConfig
    ) -> "Treebank":
        """The sentences of the file `path` as sequences of at most `length` tokens; longer ones are cut into parts.

        The share `data.held_out` of them is held out by the hash of their text, as documents are. With `data.packed`, a
        training row holds several. Raises UsageError if no sentence is left to train on, or if the vocabulary lacks
        most words.
        """
        train, held_out = list[TaggedSentence](), list[TaggedSentence]()
        for one in sentences:
            text, _ = joined_words(one.words)
            (held_out if is_held_out([text], data.held_out) else train).append(one)
        if not train:
            raise UsageError(
                f"{Setting('objective.tags', path)} has {len(sentences):,} sentences, and all of them are held out by "
                f"{Setting('data.held_out', data.held_out)}; give more sentences, or lower that share"
            )
        built = [_instances(part, path, tokenizer, length) for part in (train, held_out)]
        if data.packed:
            lengths = np.diff(built[0].ends)
            built[0] = built[0].in_rows(best_fit(lengths, length, data.sequences_a_row(length)))
            built[1] = built[1].in_rows(np.arange(built[1].sequences))
        return cls(*built)

    @property
    def guessed_accuracy(self) -> float:
        """The accuracy on held-out words of the tag that most training words have; 0 if no word is held out."""
        learned, asked = (part.tags[part.tags != UNTAGGED] for part in self if part.tags is not None)
        return float(np.mean(asked == np.argmax(np.bincount(learned)))) if len(asked) and len(learned) else 0.0


class TaggedSource(InstanceSource):
    """Random access to the records of a split of a prepared text and, numbered after them, to the rows of a treebank,
    which are in memory."""

    def __init__(
        self, prepared: PreparedData, split: str, tagged: Instances, damaged: Literal["stop", "skip"] = "stop"
    ):
        super().__init__(prepared, split, damaged)
        assert tagged.tags is not None
        ends = tagged.ends[tagged.row_ends]
        self._tagged = list(encode_instances(tagged, self._dtype))
        self._tags = np.split(tagged.tags, ends[1:-1]) if self._tagged else []
        self.tagged = range(len(self), len(self) + len(self._tagged))
        """The numbers of the treebank's rows."""

    def read(self, numbers: Sequence[int]) -> Instances:
        """Reads records as `InstanceSource.read` does, with tags."""
        instances = super().read(numbers)
        sizes = np.diff(instances.ends[instances.row_ends])
        tags = [
            self._tags[number - len(self)] if number in self.tagged else np.full(size, UNTAGGED)
            for number, size in zip(numbers, sizes, strict=True)
        ]
        return instances._replace(tags=np.concatenate([np.zeros(0, int), *tags]))

    def _record(self, number: int) -> bytes:
        return self._tagged[number - len(self)] if number in self.tagged else super()._record(number)


def read_treebank(path: str, setting: str = "objective.tags") -> tuple[TaggedSentence, ...]:
    """The sentences of a treebank, CoNLL-U or columns of CoNLL. Raises UsageError, with the line, for a file that can't
    be read or has other columns or other tags. `setting`: the one that names the file, for messages."""
    format, shown = format_of(path), Setting(setting, path)
    if not place_of(path).exists():
        raise UsageError(f"{shown}: there is no such file; give a treebank in CoNLL-U")
    if format not in ("conllu", "conll"):
        raise UsageError(
            f"{shown}: expected a treebank, a file named .conllu with the ten columns of CoNLL-U, or .conll with the "
            "word first and the tag last; name it so"
        )
    column = "upos" if format == "conllu" else "tags"
    sentences = []
    for record in held_records(path, Counter(), RowFormat(format, label=column, named_by_task=False)):
        tags = record.value(column, "give a file that has the word first and the tag last")
        for word, tag in zip(record.values["words"], tags, strict=True):
            if tag not in _NUMBERS:
                raise UsageError(
                    f"{record.place}: {quoted(word)} has the tag {quoted(tag)}; expected a universal part of speech "
                    f"({' '.join(UNIVERSAL_TAGS)}) or _ for none; give a file that has them"
                )
        sentences.append(TaggedSentence(tuple(record.values["words"]), tuple(_NUMBERS[tag] for tag in tags)))
    if not any(tag != UNTAGGED for one in sentences for tag in one.tags):
        raise UsageError(f"{shown} has no word with a part of speech; give a treebank whose words have them")
    return tuple(sentences)


def treebank_hash(sentences: Iterable[TaggedSentence]) -> str:
    """Hash of the words and tags of all sentences."""
    return content_hash([tuple(one) for one in sentences])


def _instances(sentences: Sequence[TaggedSentence], path: str, tokenizer: Tokenizer, length: int) -> Instances:
    """The sentences as sequences in random order, in which no token is MASKABLE. Raises UsageError if the vocabulary
    lacks most words."""
    ids, tags, ends = list[int](), list[int](), [0]
    words = unknown = 0
    for one in sentences:
        spans, firsts = first_pieces(*joined_words(one.words), tokenizer)
        of_pieces = [UNTAGGED] * len(spans)
        for first, tag in zip(firsts, one.tags, strict=True):
            if first is not None and of_pieces[first] == UNTAGGED:  # a word may share the piece of the word before it
                of_pieces[first] = tag
        words += len(firsts)
        unknown += sum(first is None or spans[first].id == tokenizer.vocabulary.unknown_id for first in firsts)
        if spans:
            ids += [span.id for span in spans]
            tags += of_pieces
            ends.append(len(ids))
    if unknown > _MOST_UNKNOWN_WORDS * words:
        raise UsageError(
            f"{Setting('objective.tags', path)}: {unknown / words:.0%} of its words are unknown to the vocabulary; "
            "give a treebank in the language of the text, or a vocabulary that has its letters"
        )
    text = Sentences(np.array(ids, np.int32), np.array(ends), np.arange(len(ends)))
    segments = pack_sentences(text, length, 0.0, np.random.Generator(np.random.Philox(0)), across_documents=False)
    vocabulary, units = tokenizer.vocabulary, np.zeros(len(ids), np.uint8)
    built, of_tokens = (
        build_instances(segments, values, units, *frame, paired=False, class_token=vocabulary.class_token)
        for values, frame in (
            (text.tokens, (vocabulary.cls_id, vocabulary.sep_id)),
            (np.array(tags, np.int32), (UNTAGGED, UNTAGGED)),
        )
    )
    return built._replace(tags=of_tokens.ids)
