"""Turns one chunk of text into one shard, in a worker process."""

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.instances.checked_files import PARAGRAPHS, PIECE_COUNTS, write_numbers
from bert_jax.instances.chunk_files import DOCUMENTS, NUMBERS, RECORD, ChunkRecord, chunk_file
from bert_jax.instances.chunk_text import Recipe, divided, encode_text, paragraph_hashes, tokenizer_in
from bert_jax.instances.chunks import Chunk
from bert_jax.instances.full_sentences import pack_sentences
from bert_jax.instances.instances import Instances, Segments, build_instances
from bert_jax.instances.marks import Marks
from bert_jax.instances.packing import best_fit
from bert_jax.instances.pairing import pair_segments
from bert_jax.instances.sentences import Sentences
from bert_jax.instances.shards import HELD_OUT, TRAIN, ids_dtype, shard_path, write_shard
from bert_jax.instances.statistics import Statistics
from bert_jax.system.files import FileSum, write_text
from bert_jax.system.sealed import first_damaged


class Target(NamedTuple):
    """A data set that is being prepared. The recipes of all targets of one preparation differ in their length alone."""

    recipe: Recipe
    directory: Path
    fingerprint: str
    """Fingerprint of the settings, by which a resumed preparation recognizes finished chunks."""


def prepare_unless_finished(
    chunk: Chunk, targets: Sequence[Target], ends_held_out: Collection[int] = ()
) -> list[tuple[ChunkRecord, str | None]]:
    """Prepares a chunk for the targets whose earlier attempt didn't finish it or whose files of it aren't intact.

    Returns for each target the chunk's record, and a description of the damage if a finished chunk couldn't be used.
    `ends_held_out`: the sources of which the end of each document is held out, rather than whole documents.
    """
    ends = chunk.source in ends_held_out
    if ends:
        targets = [target._replace(fingerprint=f"{target.fingerprint}, ends held out") for target in targets]
    earlier = [_finished(chunk, target) for target in targets]
    unfinished = [target for target, (record, _) in zip(targets, earlier, strict=True) if not record]
    built = iter(prepare_chunk(chunk, unfinished, ends) if unfinished else ())
    return [(record or next(built), remark) for record, remark in earlier]


def _finished(chunk: Chunk, target: Target) -> tuple[ChunkRecord | None, str | None]:
    """The record of an earlier attempt if it finished the chunk and the files are intact; the damage if they aren't."""
    path = chunk_file(target.directory, chunk.index, RECORD)
    try:
        record = ChunkRecord.read(path, directory=target.directory, index=chunk.index)
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError) as error:
        return None, f"{path} is damaged ({error})"
    if (record.fingerprint, record.source, record.text_crc32) != (target.fingerprint, chunk.source, chunk.crc32):
        return None, None
    if changed := first_damaged(target.directory, record.files):
        return None, f"{target.directory / changed} is not as it was written"
    return record, None


def prepare_chunk(chunk: Chunk, targets: Sequence[Target], ends_held_out: bool = False) -> list[ChunkRecord]:
    """Writes the shard of a chunk's training documents and the files beside it for each target; returns the records.

    The text is split into sentences and encoded once. Held-out documents are left out of the shards; with
    `ends_held_out`, the end of each document is instead.
    """
    for target in targets:  # an old record would mark the files as finished while they are rewritten
        chunk_file(target.directory, chunk.index, RECORD).unlink(missing_ok=True)
    recipe = targets[0].recipe
    train, held_out = divided(chunk, recipe.data, ends_held_out)
    held_out_lines = "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in held_out)
    paragraphs = np.unique(paragraph_hashes(train))
    text, marks = encode_text(train, recipe, chunk.source)
    piece_counts = np.bincount(text.tokens, minlength=len(tokenizer_in(recipe.tokenizer_directory).vocabulary))
    records = []
    for target in targets:
        documents, numbers = (chunk_file(target.directory, chunk.index, kind) for kind in (DOCUMENTS, NUMBERS))
        write_text(documents, held_out_lines)
        statistics, shard = write_instances(text, marks, target, TRAIN, chunk.index)
        write_numbers(numbers, {PARAGRAPHS: paragraphs, PIECE_COUNTS: piece_counts})
        beside = {path.relative_to(target.directory).as_posix(): FileSum.of(path) for path in (documents, numbers)}
        record = ChunkRecord(
            directory=target.directory,
            index=chunk.index,
            fingerprint=target.fingerprint,
            text_crc32=chunk.crc32,
            source=chunk.source,
            statistics=statistics,
            held_out=len(held_out),
            files=beside | shard,
        )
        record.write(chunk_file(target.directory, chunk.index, RECORD))
        records.append(record)
    return records


def write_instances(
    text: Sentences, marks: Marks, target: Target, split: str, index: int
) -> tuple[Statistics, dict[str, FileSum]]:
    """Writes shard `index` of `split` of `target` from a text; returns the statistics, and the shard's sum by name."""
    recipe, statistics = target.recipe, Statistics()
    path = shard_path(target.directory, split, index)
    vocabulary = tokenizer_in(recipe.tokenizer_directory).vocabulary
    instances = cut_instances(text, marks, recipe, split, index, statistics)
    return statistics, {path.name: write_shard(path, instances, ids_dtype(len(vocabulary)))}


def cut_instances(
    text: Sentences, marks: Marks, recipe: Recipe, split: str, index: int, statistics: Statistics
) -> Iterator[Instances]:
    """Yields the instances of shard `index` of `split`, pass by pass; adds what they hold to `statistics`."""
    vocabulary = tokenizer_in(recipe.tokenizer_directory).vocabulary
    statistics.documents += len(text.documents) - 1
    statistics.sentences += len(text.ends) - 1
    statistics.tokens += len(text.tokens)
    statistics.units.update(marks.counts)
    statistics.unit_sizes.update(marks.sizes)
    statistics.unknown_tokens += int((text.tokens == vocabulary.unknown_id).sum())
    statistics.characters += text.characters
    statistics.unknown_characters += text.unknown_characters
    for one_pass in range(recipe.data.dupe_factor if split == TRAIN else 1):
        # The seed depends on the chunk alone, so the result is the same in any process and any order.
        seed = np.random.SeedSequence([recipe.seed, split == HELD_OUT, index, one_pass])
        rng = np.random.Generator(np.random.Philox(seed))
        segments = _segments(text, recipe, vocabulary.separators, rng)
        built = build_instances(
            segments,
            text.tokens,
            marks.units,
            vocabulary.cls_id,
            vocabulary.sep_id,
            paired=recipe.pair != "none",
            separators=vocabulary.separators,
        )
        if recipe.data.packed:
            # Held-out sequences keep rows of their own: an evaluation is the same with and without packing.
            most = recipe.data.sequences_a_row(recipe.length)
            lengths = np.diff(built.ends)
            rows = best_fit(lengths, recipe.length, most) if split == TRAIN else np.arange(built.sequences)
            built = built.in_rows(rows)
        statistics.instances += built.sequences
        statistics.rows += len(built.row_ends) - 1
        statistics.instance_tokens += len(built.ids)
        count = int(built.pair_label.sum())
        statistics.random_pairs += count if recipe.pair == "next_sentence" else 0
        statistics.swapped_pairs += count if recipe.pair == "sentence_order" else 0
        statistics.tokens_cut += segments.tokens_cut
        yield built


def _segments(text: Sentences, recipe: Recipe, separators: int, rng: np.random.Generator) -> Segments:
    data = recipe.data
    if recipe.pair == "none":
        whole, across = data.whole_sentences, data.across_documents
        return pack_sentences(text, recipe.length, data.short_sequence_probability, rng, across, whole)
    ordered = recipe.pair == "sentence_order"
    return pair_segments(text, recipe.length, data.short_sequence_probability, rng, separators, ordered)
