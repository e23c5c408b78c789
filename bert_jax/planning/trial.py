"""The preparation of a sample, done in earnest: sequences, padding, pairs, pieces, and the time that it takes."""

import functools
import itertools
import operator
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from bert_jax.config.run import RunConfig
from bert_jax.instances.chunk_worker import Target, encode_text, write_instances
from bert_jax.instances.chunks import Chunk, cut_chunks
from bert_jax.instances.held_out import divided, is_held_out, paragraph_hashes, training_documents
from bert_jax.instances.preparation import check_enough, documents_needed
from bert_jax.instances.prepared_data import TRAIN, Recipe
from bert_jax.instances.statistics import Statistics
from bert_jax.pretraining.vocabulary import existing_tokenizer, learned_tokenizer
from bert_jax.records.corpus import Document
from bert_jax.system import facts
from bert_jax.system.facts import Facts
from bert_jax.system.workers import available_cores, map_in_processes
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import VocabularySizeError

_GIVEN, _LEARNED = "given", "trained on this text"
LENGTHS = (128, 512)
"""Tokens of a sequence that are tried beside those of the config."""
_PASSES = 16
"""How often a sample is cut into sequences: which documents give short ones is drawn anew in each pass, and among a few
thousand documents one draw says little. A text that is tried as a whole is cut as often as the preparation does it."""
_ATTEMPTS = 4
"""Sizes of a vocabulary that are tried if the text can't give the first."""


class Cut(Facts):
    """The sequences that a text gives at one length."""

    length: int
    packed: bool
    sequences: int
    rows: int
    tokens: int
    """Tokens in sequences, with special tokens and without padding."""
    padding: facts.Share
    """Share of the positions of all rows that hold no token."""
    random_pairs: Annotated[float, facts.Unit("{:.1%}".format), "random second segments"]
    """Share of the sequences whose second segment doesn't follow the first; next sentence prediction wants a half."""

    @classmethod
    def of(cls, length: int, packed: bool, seen: Statistics, fill: float, scale: float) -> "Cut":
        """The cut of a text whose preparation gives `scale` times these statistics, in rows filled to `fill`."""
        return cls(
            length=length,
            packed=packed,
            sequences=round(scale * seen.instances),
            rows=round(scale * seen.instance_tokens / (fill * length)),
            tokens=round(scale * seen.instance_tokens),
            padding=1 - fill,
            random_pairs=seen.random_pairs / max(seen.instances, 1),
        )


class Pieces(Facts):
    """How a vocabulary splits the text."""

    vocabulary: str
    pieces: int
    pieces_a_word: Annotated[float, facts.Unit("{:.3f}".format), "pieces a word"]
    """Words as masking takes them: punctuation counts, and in scripts without spaces each piece is a word."""
    unknown: Annotated[float, facts.Unit("{:.3%}".format), "unknown pieces"]

    @classmethod
    def of(cls, name: str, tokenizer: Tokenizer, seen: Statistics) -> "Pieces":
        """The figures of a text with these statistics."""
        words = max(seen.units["words"], 1)
        share = seen.tokens / words
        return cls(vocabulary=name, pieces=len(tokenizer.vocabulary), pieces_a_word=share, unknown=seen.unknown_share)


_Key = tuple[int, bool]
"""A length, and whether rows are packed."""


class _Seen(NamedTuple):
    """What the preparation of some chunks showed; several are added up."""

    statistics: dict[_Key, Statistics]
    shard_bytes: int
    """Bytes of the shards of the config's lengths."""
    seconds: float
    """Time of their preparation."""

    def __add__(self, other: "_Seen") -> "_Seen":  # type: ignore[override]
        statistics = {key: one + other.statistics[key] for key, one in self.statistics.items()}
        return _Seen(statistics, self.shard_bytes + other.shard_bytes, self.seconds + other.seconds)


class Trial(NamedTuple):
    """What the preparation of a sample showed."""

    cut_statistics: dict[_Key, Statistics]
    """Of `passes` passes, where rows aren't packed, and of one where they are."""
    passes: float
    """Passes over the text, for each of the preparation's."""
    pieces: list[Pieces]
    """Of the given vocabulary, if there is one, and of one trained on the sample."""
    statistics: Statistics
    """Of the config's first length."""
    bytes: int
    """Bytes of text of the sample."""
    shard_bytes: int
    """Bytes of the shards of the config's lengths."""
    seconds: float
    """Time that one core needs to prepare the sample for the lengths of the config."""
    vocabulary_seconds: float
    """Time to train a vocabulary on the sample; 0 if one is given."""
    vocabulary_size: int | None
    """The size of the trained vocabulary, if it isn't the one that the config asks for."""

    def cuts(self, scale: float) -> list[Cut]:
        """The sequences, by length, of a text that is `scale` times as large as the sample."""
        return [
            Cut.of(length, packed, self.cut_statistics[length, False], seen.fill(length), scale / self.passes)
            for (length, packed), seen in sorted(self.cut_statistics.items())
        ]


def try_preparation(documents: Sequence[Document], config: RunConfig, whole: bool) -> Trial:
    """Prepares documents of the only source of `config` in a temporary folder.

    `whole`: whether they are all documents of the source. Raises UsageError if the vocabulary that the config names
    can't be read, or if the text is too little for a vocabulary or a sequence.
    """
    given = existing_tokenizer(config)
    size = len(given.vocabulary) if given else config.vocabulary.size
    train = [document for _, document in training_documents(((0, document) for document in documents), config.data)]
    held_out = sum(is_held_out(document, config.data.held_out) for document in documents)
    few = min(held_out, len(documents) - held_out) < documents_needed(config.objective.pair)
    ends = few and config.data.held_out > 0 and (whole or held_out == len(documents))
    passes = config.data.dupe_factor if whole else _PASSES
    began = time.perf_counter()
    learned = _learned([line for document in train for line in document], config, size)
    trained_in = time.perf_counter() - began
    chunks = list(cut_chunks([(0, documents)], config.data.chunk_bytes))
    names = [_GIVEN, _LEARNED] if given else [_LEARNED]
    tokenizers = dict(zip(names, [given, learned] if given else [learned], strict=True))
    with tempfile.TemporaryDirectory() as directory:
        seen = {}
        for name, tokenizer in tokenizers.items():
            tokenizer.save(folder := Path(directory) / name)
            seen[name] = _prepared(chunks, work := _Work(config, folder, ends, passes))
    used, own = seen[names[0]], work.own[0]
    statistics = used.statistics[own]
    check_enough(config.data.source[0], statistics.documents, work.recipe(own, 1))
    return Trial(
        cut_statistics=used.statistics,
        passes=passes / config.data.dupe_factor,
        pieces=[Pieces.of(name, tokenizers[name], seen[name].statistics[own]) for name in names],
        statistics=statistics,
        bytes=sum(chunk.size for chunk in chunks),
        shard_bytes=used.shard_bytes,
        seconds=used.seconds,
        vocabulary_seconds=0.0 if given else trained_in,
        vocabulary_size=len(learned.vocabulary) if not given and len(learned.vocabulary) != size else None,
    )


class _Work(NamedTuple):
    """What is done with each chunk."""

    config: RunConfig
    tokenizer: Path
    """Folder of the tokenizer; shards are written into it."""
    ends: bool
    """Whether the end of each document is held out."""
    passes: int

    @property
    def own(self) -> list[_Key]:
        """The lengths of the config, and its packing."""
        return list(dict.fromkeys((phase.length, self.config.data.packed) for phase in self.config.phases))

    def recipe(self, key: _Key, passes: int) -> Recipe:
        """The recipe for a length and a packing, with so many passes over the text."""
        data = self.config.data.replace(packed=key[1], dupe_factor=passes)
        return Recipe(data, key[0], self.config.seed, self.tokenizer, self.config.objective.pair)


def _prepared(chunks: Sequence[Chunk], work: _Work) -> _Seen:
    processes = work.config.preparation.processes or available_cores()
    prepared = map_in_processes(functools.partial(_prepare, work=work), chunks, min(processes, len(chunks)))
    return functools.reduce(operator.add, prepared)


def _prepare(chunk: Chunk, work: _Work) -> _Seen:
    """Does what `prepare_chunk` does for the config's lengths, with a clock; then cuts the text again in many passes,
    for all lengths, without writing."""
    recipe = work.recipe(work.own[0], work.config.data.dupe_factor)
    began, size = time.perf_counter(), 0
    train, _ = divided(chunk, recipe.data, work.ends)
    np.unique(paragraph_hashes(train))
    text, marks = encode_text(train, recipe, chunk.source)
    for key in work.own:
        target = Target(work.recipe(key, work.config.data.dupe_factor), work.tokenizer, fingerprint="")
        _, shard = write_instances(text, marks, target, TRAIN, chunk.index)
        size += sum(file.size for file in shard.values())
    seconds = time.perf_counter() - began
    statistics = {}
    for key in itertools.product({*LENGTHS, *dict(work.own)}, (False, True)):
        passes = 1 if key[1] else work.passes  # packing takes long and fills rows to nearly the same share in each
        target = Target(work.recipe(key, passes), work.tokenizer, fingerprint="")
        statistics[key], _ = write_instances(text, marks, target, TRAIN, chunk.index)
    return _Seen(statistics, size, seconds)


def _learned(texts: list[str], config: RunConfig, size: int) -> Tokenizer:
    """A vocabulary trained on the texts, of `size` pieces or of one near it that they can give."""
    for _ in range(_ATTEMPTS):
        try:
            return learned_tokenizer(texts, config.vocabulary.replace(size=size), config.data.languages)
        except VocabularySizeError as error:
            refusal, size = error, error.size
    raise refusal
