"""A corpus to a prepared data set: chunk by chunk, in parallel, taken up again where it stopped."""

import functools
import hashlib
import itertools
import json
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt64

from bert_jax.data.chunk_worker import (
    HELD_OUT,
    TRAIN,
    ChunkFiles,
    ChunkRecord,
    Recipe,
    as_sentences,
    paragraph_hashes,
    prepare_chunk,
    write_instances,
)
from bert_jax.data.chunks import Chunk, cut_chunks
from bert_jax.data.corpus import Document, Mixture
from bert_jax.data.prepared_data import PreparedData, fingerprint
from bert_jax.data.sample import sample_documents
from bert_jax.data.shards import ids_dtype, shard_path
from bert_jax.data.statistics import Statistics
from bert_jax.data.store import write_metadata
from bert_jax.data.workers import available_cores, map_in_processes
from bert_jax.system.errors import UsageError
from bert_jax.system.files import FileSum, full_disk_explained, replacing
from bert_jax.system.progress import stage
from bert_jax.text.tokenizer import load_tokenizer

_EXAMPLES = 16
HELD_OUT_BYTES = 16_000_000
"""Held-out text that is used at most: a sample of a large corpus' held-out documents measures as well as all."""


def prepare(corpus: Mixture, recipe: Recipe, directory: Path, processes: int | None = None) -> PreparedData:
    """Writes the data set to `directory`; what an interrupted attempt finished there is used.

    Raises UsageError where a source has too little text, RunError where the disk is full or a worker dies.
    """
    shape = fingerprint(recipe)
    with full_disk_explained(directory):
        (directory / "chunks").mkdir(parents=True, exist_ok=True)
    chunks = list(_chunk_records(corpus, recipe, directory, shape, processes or available_cores()))
    sources = [_total(chunk for chunk in chunks if chunk.source == source) for source in range(len(corpus.parts))]
    for source, seen in zip(recipe.data.source, sources):
        _check_enough(source, seen.documents, recipe)
    train = sum(sources, Statistics())
    train.repairs.update(corpus.repairs)
    kept, dropped = _separate_held_out(directory, chunks, len(sources), least=_documents_needed(recipe))
    held_out, held_out_shards = _write_held_out(kept, recipe, directory)
    train_shards = {shard_path(directory, TRAIN, index).name: record.shard for index, record in enumerate(chunks)}
    shards = train_shards | held_out_shards
    for path in directory.glob("*.array_record"):
        if path.name not in shards:  # of an attempt on a longer corpus
            path.unlink()
    with replacing(directory / "piece_counts.npy") as temporary, open(temporary, "wb") as file:
        np.save(file, sum(_arrays(directory, index)["piece_counts"] for index in range(len(chunks))))
    with full_disk_explained(directory):
        lengths = {TRAIN: [record.instances for record in chunks], HELD_OUT: [seen.instances for seen in held_out]}
        write_metadata(directory, lengths, ids_dtype(len(load_tokenizer(recipe.tokenizer_directory).vocabulary)))
    prepared = PreparedData(
        directory=directory,
        length=recipe.length,
        fingerprint=shape,
        corpus=corpus.stamp,
        sources=[seen.instances for seen in sources],
        train=train,
        held_out=sum(held_out, Statistics()),
        held_out_dropped=dropped,
        shards=shards,
        example_sentences=_example_sentences(kept, recipe),
    )
    prepared.save()
    shutil.rmtree(directory / "chunks")
    return prepared


def _total(chunks: Iterable[ChunkRecord]) -> Statistics:
    return sum((chunk.statistics for chunk in chunks), Statistics())


def _write_held_out(
    kept: Sequence[Sequence[Document]], recipe: Recipe, directory: Path
) -> tuple[list[Statistics], dict[str, FileSum]]:
    """A shard for the held-out documents of each source: what was seen, and the shards by name."""
    statistics, shards = [], {}
    with stage("Preparing held-out sequences", sum(map(len, kept)), "documents") as shown:
        for source, documents in enumerate(kept):
            seen, shard, _ = write_instances(documents, recipe, directory, HELD_OUT, source, source)
            statistics.append(seen)
            shards[shard_path(directory, HELD_OUT, source).name] = shard
            shown.advance(len(documents))
    return statistics, shards


def _documents_needed(recipe: Recipe) -> int:
    """A random pair takes two documents."""
    return 2 if recipe.pair == "next_sentence" else 1


def _check_enough(source: str, documents: int, recipe: Recipe) -> None:
    if documents < _documents_needed(recipe):
        wanting = "next sentence prediction needs two" if documents else "one is needed at least"
        raise UsageError(
            f"data.source={source!r} holds {documents} documents for training and {wanting}; give more "
            "text, with a blank line between documents"
            + (", or set --objective.pair none, which needs no pairs" if documents else "")
        )


def _chunk_records(
    corpus: Mixture, recipe: Recipe, directory: Path, shape: str, processes: int
) -> Iterator[ChunkRecord]:
    """Records of all chunks in order, those that are finished already and those that this makes."""
    work = functools.partial(_prepare_unless_finished, recipe=recipe, directory=directory, fingerprint=shape)
    with stage(f"Preparing sequences of {recipe.length}", corpus.total, corpus.unit) as shown:
        finished, ends = 0.0, deque()

        def show():  # a chunk is half done when it has been read
            shown.advance((corpus.position + finished) / 2 - shown.done)

        def shown_while_read(documents):
            for document in documents:
                show()
                yield document

        def chunks():
            sources = map(shown_while_read, corpus.passes())
            for chunk in cut_chunks(sources, int(recipe.data.chunk_megabytes * 1e6)):
                ends.append(corpus.position)
                yield chunk

        for record in map_in_processes(work, chunks(), processes):
            finished = ends.popleft()
            show()
            yield record


def _prepare_unless_finished(chunk: Chunk, recipe: Recipe, directory: Path, fingerprint: str) -> ChunkRecord:
    try:
        record = ChunkRecord.read(ChunkFiles.of(directory, chunk.index).record)
        shard = shard_path(directory, TRAIN, chunk.index)
        same = (record.fingerprint, record.source, record.text_crc32) == (fingerprint, chunk.source, chunk.crc32)
        if same and record.shard == FileSum.of(shard):
            return record
    except FileNotFoundError:
        pass
    return prepare_chunk(chunk, recipe, directory, fingerprint)


def _separate_held_out(
    directory: Path, chunks: Sequence[ChunkRecord], sources: int, least: int
) -> tuple[list[list[Document]], int]:
    """Held-out documents of each source that share no long paragraph with training, and how many do.

    A source of which fewer than `least` are left has none.
    """
    documents = sample_documents(_held_out_documents(directory, chunks), HELD_OUT_BYTES)
    hashes = [paragraph_hashes([document]) for _, document in documents]
    shared = _seen_in_training(np.unique(np.concatenate([*hashes, np.zeros(0, np.uint64)])), directory, len(chunks))
    kept: list[list[Document]] = [[] for _ in range(sources)]
    for (source, document), own in zip(documents, hashes):
        if not np.isin(own, shared).any():
            kept[source].append(document)
    dropped = len(documents) - sum(map(len, kept))
    return [group if len(group) >= least else [] for group in kept], dropped


def _held_out_documents(directory: Path, chunks: Sequence[ChunkRecord]) -> Iterator[tuple[int, Document]]:
    """Each with the number of its source."""
    for index, chunk in enumerate(chunks):
        with open(ChunkFiles.of(directory, index).held_out, encoding="utf-8") as lines:
            for line in lines:
                yield chunk.source, json.loads(line)


def _example_sentences(kept: Sequence[Sequence[Document]], recipe: Recipe) -> list[str]:
    """The first sentence of each document that a person would read as one, in the order of their hashes."""
    found = []
    for source, documents in enumerate(kept):
        for document in documents:
            found.extend(itertools.islice(filter(_reads_well, as_sentences(document, recipe.data, source)), 1))
    found.sort(key=lambda sentence: hashlib.blake2b(sentence.encode()).digest())
    return found[:_EXAMPLES]


def _reads_well(sentence: str) -> bool:
    """Of middling length, with a stop at its end, and made of words: no table, no code, no heading."""
    if not 30 <= len(sentence) <= 120 or sentence[-1] not in ".!?。！？।؟":
        return False
    return sum(character.isalpha() or character.isspace() for character in sentence) >= 0.93 * len(sentence)


def _seen_in_training(held_out: UInt64[np.ndarray, " n"], directory: Path, chunks: int) -> UInt64[np.ndarray, " m"]:
    """Those of the held-out paragraphs that some chunk has in training. Memory: one chunk's hashes."""
    shared = [np.intersect1d(held_out, _arrays(directory, index)["paragraphs"]) for index in range(chunks)]
    return np.concatenate([*shared, np.zeros(0, np.uint64)])


def _arrays(directory: Path, index: int) -> dict[str, np.ndarray]:
    with np.load(ChunkFiles.of(directory, index).arrays) as arrays:
        return dict(arrays)
