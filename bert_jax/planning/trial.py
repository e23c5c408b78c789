"""The preparation of a sample, done in earnest: sequences, padding, pairs, pieces, and the time that it takes."""

import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from bert_jax.config.run import RunConfig
from bert_jax.corpora.corpus import Document
from bert_jax.instances.chunk_text import Recipe, divided, encode_text, is_held_out, paragraph_hashes
from bert_jax.instances.chunk_worker import Target, write_instances
from bert_jax.instances.chunks import Chunk, cut_chunks
from bert_jax.instances.shards import TRAIN
from bert_jax.instances.statistics import Statistics
from bert_jax.pretraining.vocabulary import existing_tokenizer, learned_tokenizer
from bert_jax.system import facts
from bert_jax.system.errors import UsageError
from bert_jax.system.facts import Facts
from bert_jax.system.workers import available_cores, map_in_processes
from bert_jax.text.tokenizer import Tokenizer

_GIVEN, _LEARNED = "given", "trained on this text"
LENGTHS = (128, 512)
"""Tokens of a sequence that are tried beside those of the config."""
_PASSES = 2
"""How often the sample is cut into sequences: which documents give short ones is drawn anew in each pass, and among a
few hundred documents one draw says little."""
_LEAST_PIECES = 300
"""Smallest vocabulary that is tried if the text can't give the size that is asked for."""


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
    bytes: Annotated[int, facts.Unit(facts.bytes_moved), "on disk"]

    @classmethod
    def of(cls, length: int, packed: bool, seen: Statistics, size: int) -> "Cut":
        """The figures of a preparation with these statistics and `size` bytes of shards."""
        return cls(
            length=length,
            packed=packed,
            sequences=seen.instances,
            rows=seen.rows,
            tokens=seen.instance_tokens,
            padding=1 - seen.fill(length),
            random_pairs=seen.random_pairs / max(seen.instances, 1),
            bytes=size,
        )

    def scaled(self, factor: float) -> "Cut":
        """The figures of a text `factor` times as large."""
        sizes = {name: round(factor * getattr(self, name)) for name in ("sequences", "rows", "tokens", "bytes")}
        return self.model_copy(update=sizes)


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
    """What the preparation of some chunks showed, with the seconds that each part took; several are added up."""

    statistics: dict[_Key, Statistics]
    bytes: dict[_Key, int]
    """Bytes of the shards."""
    encoding: float
    writing: dict[_Key, float]

    def __add__(self, other: "_Seen") -> "_Seen":  # type: ignore[override]
        return _Seen(
            {key: one + other.statistics[key] for key, one in self.statistics.items()},
            {key: one + other.bytes[key] for key, one in self.bytes.items()},
            self.encoding + other.encoding,
            {key: one + other.writing[key] for key, one in self.writing.items()},
        )


class Trial(NamedTuple):
    """What the preparation of a sample showed."""

    cuts: list[Cut]
    """The sequences of the sample, by length."""
    pieces: list[Pieces]
    """Of the given vocabulary, if there is one, and of one trained on the sample."""
    statistics: Statistics
    """Of the config's first length."""
    bytes: int
    """Bytes of text of the sample."""
    seconds: float
    """Time that one core needs to prepare the sample for the lengths of the config."""
    vocabulary_seconds: float
    """Time to train a vocabulary on the sample; 0 if one is given."""
    vocabulary_size: int | None
    """The size of the trained vocabulary, if the sample can't give the size that the config asks for."""


def tried(documents: Sequence[Document], config: RunConfig, directory: Path, whole: bool) -> Trial:
    """Prepares documents of the only source of `config`, in the empty folder `directory`.

    `whole`: whether they are all documents of the source. Raises UsageError if the vocabulary that the config names
    can't be read, or if the text gives no sequence.
    """
    given = existing_tokenizer(config)
    size = len(given.vocabulary) if given else config.vocabulary.size
    began = time.perf_counter()
    learned = _learned([line for document in documents for line in document], config, size)
    trained_in = time.perf_counter() - began
    held_out = sum(is_held_out(document, config.data.held_out) for document in documents)
    ends = whole and config.data.held_out > 0 and held_out < (2 if config.objective.pair == "next_sentence" else 1)
    chunks = list(cut_chunks([(0, documents)], config.data.chunk_bytes))
    own = [(phase.length, config.data.packed) for phase in config.phases]
    keys = sorted({*own, *((length, packed) for length in {*LENGTHS, *dict(own)} for packed in (False, True))})
    seen = _prepared(chunks, config, _saved(given or learned, directory / _GIVEN), keys, ends)
    statistics = seen.statistics[own[0]]
    if not statistics.instances:
        raise UsageError("the text gives no sequence; give two documents or more, with a blank line between them")
    pieces = [Pieces.of(_GIVEN if given else _LEARNED, given or learned, statistics)]
    if given:
        others = _prepared(chunks[:1], config, _saved(learned, directory / _LEARNED), keys[:1], ends)
        pieces.append(Pieces.of(_LEARNED, learned, others.statistics[keys[0]]))
    passes = config.data.dupe_factor / _PASSES
    return Trial(
        cuts=[Cut.of(*key, seen.statistics[key], seen.bytes[key]).scaled(passes) for key in keys],
        pieces=pieces,
        statistics=statistics,
        bytes=sum(chunk.size for chunk in chunks),
        seconds=seen.encoding + passes * sum(seen.writing[key] for key in set(own)),
        vocabulary_seconds=0.0 if given else trained_in,
        vocabulary_size=len(learned.vocabulary) if not given and len(learned.vocabulary) < size else None,
    )


def _prepared(chunks: Sequence[Chunk], config: RunConfig, tokenizer: Path, keys: Sequence[_Key], ends: bool) -> _Seen:
    """Prepares the chunks for each length and packing, in folders beside the tokenizer's."""
    targets = {}
    for length, packed in keys:
        data = config.data.replace(packed=packed, dupe_factor=_PASSES)
        recipe = Recipe(data, length, config.seed, tokenizer, config.objective.pair)
        folder = tokenizer.parent / f"{tokenizer.name}-{length}-{packed}"
        folder.mkdir()
        targets[length, packed] = Target(recipe, folder, fingerprint="")
    work = functools.partial(_prepare_chunk, targets=targets, ends=ends)
    first, *rest = map_in_processes(work, chunks, min(available_cores(), len(chunks)))
    return sum(rest, start=first)


def _prepare_chunk(chunk: Chunk, targets: Mapping[_Key, Target], ends: bool) -> _Seen:
    """Does what `prepare_chunk` does, with a clock, and encodes the text once for all targets."""
    recipe = next(iter(targets.values())).recipe
    began = time.perf_counter()
    train, _ = divided(chunk, recipe.data, ends)
    np.unique(paragraph_hashes(train))
    text, marks = encode_text(train, recipe, chunk.source)
    encoding = time.perf_counter() - began
    statistics, sizes, writing = {}, {}, {}
    for key, target in targets.items():
        began = time.perf_counter()
        statistics[key], shard = write_instances(text, marks, target, TRAIN, chunk.index)
        writing[key] = time.perf_counter() - began
        sizes[key] = sum(file.size for file in shard.values())
        for name in shard:
            (target.directory / name).unlink()
    return _Seen(statistics, sizes, encoding, writing)


def _saved(tokenizer: Tokenizer, directory: Path) -> Path:
    tokenizer.save(directory)
    return directory


def _learned(texts: list[str], config: RunConfig, size: int) -> Tokenizer:
    """A vocabulary of `size` pieces trained on the texts, or of half of that, and so on, if they can't give as many."""
    while True:
        try:
            return learned_tokenizer(texts, config.vocabulary.replace(size=size))
        except UsageError:
            if size // 2 < _LEAST_PIECES:
                raise
            size //= 2
