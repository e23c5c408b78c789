"""Turns one chunk of text into one shard, in a worker process."""

import functools
import itertools
import json
import time
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.batching.packing import best_fit
from bert_jax.config.data import DataConfig
from bert_jax.instances.chunks import (
    DOCUMENTS,
    NUMBERS,
    PARAGRAPHS,
    PIECE_COUNTS,
    SUMMARY,
    Chunk,
    FinishedChunk,
    chunk_file,
    write_numbers,
)
from bert_jax.instances.held_out import divided, paragraph_hashes
from bert_jax.instances.instances import Instances, build_instances
from bert_jax.instances.marks import Marker, Marks
from bert_jax.instances.prepared_data import HELD_OUT, TRAIN, Recipe
from bert_jax.instances.segments import pack_sentences, pair_segments
from bert_jax.instances.sentences import Sentences, as_sentences, encode_documents, with_blanks
from bert_jax.instances.shards import ids_dtype, shard_path, write_shard
from bert_jax.instances.statistics import Statistics
from bert_jax.system.bucket import Place
from bert_jax.system.files import FileSum
from bert_jax.system.sealed import first_damaged
from bert_jax.text.text_spans import SpannedSentence, spanned
from bert_jax.text.tokenizer import Tokenizer, load_tokenizer
from bert_jax.text.vocabulary import Vocabulary


class PendingSet(NamedTuple):
    """A data set that is being prepared.

    All targets of one preparation encode the text in the same way, and differ only in how it is cut into sequences.
    """

    recipe: Recipe
    directory: Place
    """The directory of its files. It is on this machine, or in a bucket for workers on other machines."""
    fingerprint: str
    """Fingerprint of the settings, by which a resumed preparation recognizes finished chunks."""
    place: Place | None = None
    """Where the finished set goes if not to `directory`: a place in a bucket."""


def preparation_title(targets: Sequence[PendingSet]) -> str:
    """The title of the stage that prepares `targets`, with their sequence lengths."""
    lengths = " and ".join(dict.fromkeys(str(target.recipe.length) for target in targets))
    return f"Preparing sequences of {lengths}"


def prepare_unless_finished(
    chunk: Chunk, targets: Sequence[PendingSet], ends_held_out: Collection[int] = ()
) -> list[tuple[FinishedChunk, str | None]]:
    """Prepares a chunk for the targets that have no intact files of it from an earlier attempt.

    Returns for each target the finished chunk, and a message about the damage if a finished chunk couldn't be used.
    `ends_held_out`: indices of the sources for which the end of each document is held out instead of whole documents.
    """
    ends = chunk.source in ends_held_out
    if ends:
        targets = [target._replace(fingerprint=f"{target.fingerprint}, ends held out") for target in targets]
    earlier = [_finished(chunk, target) for target in targets]
    unfinished = [target for target, (finished, _) in zip(targets, earlier, strict=True) if not finished]
    built = iter(prepare_chunk(chunk, unfinished, ends) if unfinished else ())
    return [
        (finished or next(built), damage and f"{damage}: this part of the data is prepared anew")
        for finished, damage in earlier
    ]


def _finished(chunk: Chunk, target: PendingSet) -> tuple[FinishedChunk | None, str | None]:
    """The chunk as an earlier attempt finished it, if its files are intact; otherwise None and the damage to them."""
    path = chunk_file(target.directory, chunk.index, SUMMARY)
    try:
        finished = FinishedChunk.read(path, directory=target.directory, index=chunk.index)
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError) as error:
        return None, f"{path} is damaged ({error})"
    if (finished.fingerprint, finished.source, finished.text_crc32) != (target.fingerprint, chunk.source, chunk.crc32):
        return None, None
    if changed := first_damaged(target.directory, finished.files):
        return None, f"{target.directory / changed} is not as it was written"
    return finished, None


def prepare_chunk(chunk: Chunk, targets: Sequence[PendingSet], ends_held_out: bool = False) -> list[FinishedChunk]:
    """Writes the shard and the other files of a chunk for each target; returns the finished chunks.

    The text is split into sentences and encoded once. Held-out documents are left out of the shards. With
    `ends_held_out`, the end of each document is left out instead.
    """
    for target in targets:  # an old summary would mark the files as finished while they are rewritten
        chunk_file(target.directory, chunk.index, SUMMARY).unlink(missing_ok=True)
    began, recipe = time.perf_counter(), targets[0].recipe
    train, held_out = divided(chunk, recipe.data, ends_held_out)
    text, marks = encode_text(train, recipe, chunk.source)
    vocabulary = tokenizer_in(recipe.tokenizer_directory).vocabulary
    arrays = {
        PARAGRAPHS: np.unique(paragraph_hashes(train)),
        PIECE_COUNTS: np.bincount(text.tokens, minlength=len(vocabulary)),
        DOCUMENTS: np.frombuffer(json.dumps(held_out).encode(), np.uint8),
    }
    text_seconds, finished = time.perf_counter() - began, []
    for target in targets:
        began = time.perf_counter()
        statistics, shard = write_instances(text, marks, target, TRAIN, chunk.index)
        numbers = chunk_file(target.directory, chunk.index, NUMBERS)
        write_numbers(numbers, arrays)
        summary = FinishedChunk(
            directory=target.directory,
            index=chunk.index,
            fingerprint=target.fingerprint,
            text_crc32=chunk.crc32,
            source=chunk.source,
            statistics=statistics,
            held_out=len(held_out),
            text_seconds=text_seconds,
            cutting_seconds=time.perf_counter() - began,
            files=shard | {numbers.relative_to(target.directory).as_posix(): FileSum.of(numbers)},
        )
        summary.write(chunk_file(target.directory, chunk.index, SUMMARY))
        finished.append(summary)
    return finished


def write_instances(
    text: Sentences, marks: Marks, target: PendingSet, split: str, index: int
) -> tuple[Statistics, dict[str, FileSum]]:
    """Writes shard `index` of `split` of `target`; returns the statistics, and the shard's checksum by its name."""
    recipe, vocabulary = target.recipe, tokenizer_in(target.recipe.tokenizer_directory).vocabulary
    statistics = Statistics(
        documents=len(text.documents) - 1,
        sentences=len(text.ends) - 1,
        tokens=len(text.tokens),
        unknown_tokens=int((text.tokens == vocabulary.unknown_id).sum()),
        characters=text.characters,
        unknown_characters=text.unknown_characters,
        words=text.words,
        units=marks.counts,
        unit_sizes=marks.sizes,
    )
    passes = range(recipe.data.dupe_factor if split == TRAIN else 1)
    # The seed depends on the chunk alone, so the result is the same in any process and any order.
    seeds = (np.random.SeedSequence([recipe.seed, split == HELD_OUT, index, one_pass]) for one_pass in passes)
    instances = (_cut(text, marks, recipe, vocabulary, split, seed, statistics) for seed in seeds)
    path = shard_path(target.directory, split, index)
    shard = write_shard(path, instances, ids_dtype(len(vocabulary)))
    return statistics, {path.name: shard}


def _cut(
    text: Sentences,
    marks: Marks,
    recipe: Recipe,
    vocabulary: Vocabulary,
    split: str,
    seed: np.random.SeedSequence,
    statistics: Statistics,
) -> Instances:
    """The instances of one pass over a text. Their counts are added to `statistics`."""
    data, rng = recipe.data, np.random.Generator(np.random.Philox(seed))
    if recipe.pair == "none":
        whole, across = data.whole_sentences, data.across_documents
        segments = pack_sentences(text, recipe.length, data.short_sequence_probability, rng, across, whole)
    else:
        ordered, separators = recipe.pair == "sentence_order", vocabulary.separators
        segments = pair_segments(text, recipe.length, data.short_sequence_probability, rng, separators, ordered)
    built = build_instances(
        segments,
        text.tokens,
        marks.units,
        vocabulary.cls_id,
        vocabulary.sep_id,
        paired=recipe.pair != "none",
        separators=vocabulary.separators,
        class_token=vocabulary.class_token,
    )
    if data.packed:
        # Each held-out sequence has a row to itself, so that evaluation is the same with and without packing.
        most = data.sequences_a_row(recipe.length)
        lengths = np.diff(built.ends)
        rows = best_fit(lengths, recipe.length, most) if split == TRAIN else np.arange(built.sequences)
        built = built.in_rows(rows)
    statistics.instances += built.sequences
    statistics.rows += len(built.row_ends) - 1
    statistics.instance_tokens += len(built.ids)
    pairs = int(built.pair_label.sum())
    statistics.random_pairs += pairs if recipe.pair == "next_sentence" else 0
    statistics.swapped_pairs += pairs if recipe.pair == "sentence_order" else 0
    statistics.tokens_cut += segments.tokens_cut
    return built


def encode_text(documents: Iterable[Sequence[str]], recipe: Recipe, source: int) -> tuple[Sentences, Marks]:
    """The sentences of documents from `source` as piece ids, with their units.

    The result doesn't depend on the sequence length.
    """
    marker = _marker(recipe.tokenizer_directory, recipe.data)
    with_spans: dict[int, SpannedSentence] = {}
    numbers = itertools.count()

    def unmarked(sentence: str) -> str:
        number, whole = next(numbers), spanned(sentence)
        if whole.spans or whole.cut:
            with_spans[number] = whole
        return whole.text

    tokenizer = tokenizer_in(recipe.tokenizer_directory)
    sentences = (as_sentences(document, recipe.data, source) for document in documents)
    if not tokenizer.sets_leading_blank:
        sentences = ([*with_blanks(of_document)] for of_document in sentences)
    if recipe.data.spans:
        sentences = ([*map(unmarked, of_document)] for of_document in sentences)
    text = encode_documents(sentences, tokenizer)
    return text, marker.mark(text, with_spans)


@functools.lru_cache(maxsize=1)
def _marker(tokenizer_directory: Place, data: DataConfig) -> Marker:
    return Marker(tokenizer_in(tokenizer_directory), data)


@functools.lru_cache(maxsize=1)
def tokenizer_in(directory: Place) -> Tokenizer:
    """The tokenizer in `directory`, cached for the next chunk."""
    return load_tokenizer(directory)
