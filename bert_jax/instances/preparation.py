"""Prepares a corpus as a data set, chunk by chunk and in parallel; an interrupted preparation can be resumed."""

import functools
import hashlib
import itertools
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt64

from bert_jax.config.data import DataConfig
from bert_jax.config.language import language_name
from bert_jax.corpora.corpus import Document, Mixture
from bert_jax.corpora.sample import sample_documents
from bert_jax.corpora.shown import counted
from bert_jax.instances.chunk_worker import (
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
from bert_jax.instances.chunks import Chunk, cut_chunks, text_hash
from bert_jax.instances.finished_chunks import held_out_documents, read_paragraphs, read_piece_counts
from bert_jax.instances.number_file import write_numbers
from bert_jax.instances.prepared_data import COUNTS_FILE, SMALL_FILES, PreparedData, fingerprint
from bert_jax.instances.shards import ids_dtype, shard_path
from bert_jax.instances.statistics import Statistics
from bert_jax.instances.store_metadata import write_metadata
from bert_jax.system.disk import disk_explained
from bert_jax.system.errors import UsageError
from bert_jax.system.files import FileSum, sync
from bert_jax.system.progress import say, stage, warn
from bert_jax.system.workers import available_cores, map_in_processes
from bert_jax.text.sentences import has_rules
from bert_jax.text.tokenizer import load_tokenizer

_EXAMPLES = 16
"""Number of example sentences that are kept."""
MOST_UNKNOWN = 0.05
"""Share of unknown pieces above which a warning is given; with a fitting vocabulary the share is about 0.001."""
HELD_OUT_BYTES = 16_000_000
"""Most held-out text that is used, in bytes: for a large corpus a sample measures as well as all of it."""


def prepare(corpus: Mixture, recipe: Recipe, directory: Path, processes: int | None = None) -> PreparedData:
    """Writes the data set to `directory`. Chunks that an interrupted attempt finished there are used again.

    Raises UsageError if a source has too little text, and RunError if the disk is full or a worker process dies.
    """
    shape = fingerprint(recipe)
    _say_missing_rules(recipe)
    with disk_explained(directory):
        (directory / "chunks").mkdir(parents=True, exist_ok=True)
    chunks = _chunks(corpus, recipe, directory, shape, processes or available_cores())
    sources = [_total(chunk for chunk in chunks if chunk.source == source) for source in range(len(corpus.parts))]
    train = sum(sources, Statistics())
    train.repairs.update(corpus.repairs)
    kept, dropped = _separate_held_out(directory, chunks, len(sources), least=_documents_needed(recipe))
    held_out, held_out_shards = _write_held_out(kept, recipe, directory)
    train_shards = {shard_path(directory, TRAIN, index).name: record.shard for index, record in enumerate(chunks)}
    shards = train_shards | held_out_shards
    for path in directory.glob("*.array_record"):
        if path.name not in shards:  # left by an earlier attempt on a longer corpus
            path.unlink()
    prepared = PreparedData(
        directory=directory,
        length=recipe.length,
        fingerprint=shape,
        corpus=corpus.stamp,
        revision=corpus.revision,
        text=text_hash((chunk.source, chunk.text_crc32) for chunk in chunks),
        sources=[seen.instances for seen in sources],
        train=train,
        held_out=sum(held_out, Statistics()),
        held_out_dropped=dropped,
        shards=shards,
        files=_write_small_files(recipe, directory, chunks, [seen.instances for seen in held_out]),
        example_sentences=_example_sentences(kept, recipe),
    )
    _warn_of_unknown_pieces(train)
    prepared.save()
    shutil.rmtree(directory / "chunks")
    return prepared


def _chunks(corpus: Mixture, recipe: Recipe, directory: Path, shape: str, processes: int) -> list[ChunkRecord]:
    """Prepares all chunks. If too few documents are held out, prepares them again with held-out ends of documents."""
    chunks = list(_chunk_records(corpus, recipe, directory, shape, processes))
    for source, name in enumerate(recipe.data.source):
        _check_enough(name, sum(chunk.statistics.documents for chunk in chunks if chunk.source == source), recipe)
    held_out = Counter()
    for chunk in chunks:
        held_out[chunk.source] += chunk.held_out
    if not recipe.data.held_out or max(held_out.values()) >= _documents_needed(recipe):
        return chunks
    say(
        f"{recipe.data.described} has too few documents to hold some out for evaluation: the end of each is held out "
        "instead (--data.held-out 0 trains on all of the text)"
    )
    return list(_chunk_records(corpus, recipe, directory, f"{shape}, ends held out", processes, ends_held_out=True))


def _write_small_files(
    recipe: Recipe, directory: Path, chunks: Sequence[ChunkRecord], held_out: Sequence[int]
) -> dict[str, FileSum]:
    """Writes the piece counts and the TFDS metadata; returns the checksum of each file by name.

    `held_out`: number of sequences of each held-out shard.
    """
    counts = sum(read_piece_counts(directory, index, chunk) for index, chunk in enumerate(chunks))
    write_numbers(directory / COUNTS_FILE, counts)
    lengths = {TRAIN: [chunk.statistics.instances for chunk in chunks], HELD_OUT: held_out}
    with disk_explained(directory):
        write_metadata(directory, lengths, ids_dtype(len(load_tokenizer(recipe.tokenizer_directory).vocabulary)))
        for name in SMALL_FILES:
            sync(directory / name)
    return {name: FileSum.of(directory / name) for name in SMALL_FILES}


def _say_missing_rules(recipe: Recipe) -> None:
    """Says for each language without sentence rules that other rules are used."""
    if recipe.data.layout == "sentences":
        return
    for code in dict.fromkeys(recipe.data.languages):
        if not has_rules(code):
            say(
                f"data.language={code}: there are no rules for sentences of {language_name(code)}; those of a related "
                "language or general ones are used"
            )


def _warn_of_unknown_pieces(seen: Statistics) -> None:
    """Warns if the share of unknown pieces is so large that the vocabulary seems to belong to other text."""
    if seen.unknown_share > MOST_UNKNOWN:
        warn(
            f"{seen.unknown_share:.1%} of the pieces of this text are unknown to the vocabulary: the model is "
            "asked about [UNK] instead of words; is it the right text, and the right vocabulary for its language?"
        )


def _total(chunks: Iterable[ChunkRecord]) -> Statistics:
    return sum((chunk.statistics for chunk in chunks), Statistics())


def _write_held_out(
    kept: Sequence[Sequence[Document]], recipe: Recipe, directory: Path
) -> tuple[list[Statistics], dict[str, FileSum]]:
    """Writes one held-out shard per source; returns the statistics of each, and the checksums by file name."""
    statistics, shards = [], {}
    with stage("Preparing held-out sequences", sum(map(len, kept)), "documents") as shown:
        for source, documents in enumerate(kept):
            seen, shard, _ = write_instances(documents, recipe, directory, HELD_OUT, source, source)
            statistics.append(seen)
            shards[shard_path(directory, HELD_OUT, source).name] = shard
            shown.advance(len(documents))
    return statistics, shards


def _documents_needed(recipe: Recipe) -> int:
    """Least number of documents per source: a random second segment needs another document."""
    return 2 if recipe.pair == "next_sentence" else 1


def _check_enough(source: str, documents: int, recipe: Recipe) -> None:
    if documents < _documents_needed(recipe):
        wanting = "next sentence prediction needs two" if documents else "one is needed"
        remedy = ", or set --objective.pair none, which needs no pairs" if documents else ""
        purpose = " for training" if recipe.data.held_out else ""  # without a held-out share, evaluate reads it, too
        raise UsageError(
            f"data.source={source!r} holds {counted(documents, 'document')}{purpose} and {wanting}; give more text, "
            f"with a blank line between documents{remedy}"
        )


def _chunk_records(
    corpus: Mixture, recipe: Recipe, directory: Path, shape: str, processes: int, ends_held_out: bool = False
) -> Iterator[ChunkRecord]:
    """Yields the records of all chunks in order, and prepares the chunks that aren't finished yet."""
    work = functools.partial(
        _prepare_unless_finished, recipe=recipe, directory=directory, fingerprint=shape, ends_held_out=ends_held_out
    )
    with stage(f"Preparing sequences of {recipe.length}", corpus.total, corpus.unit) as shown:
        finished, text, read = 0.0, 0, deque()

        def show():  # reading a chunk counts as half of its work
            note = f"{text / 1e6:,.0f} MB of text" if text and corpus.unit != "MB" else ""
            shown.advance((corpus.position + finished) / 2 - shown.done, note)

        def chunks():
            for chunk in cut_corpus(corpus, recipe.data, show):
                read.append((corpus.position, chunk.size))
                yield chunk

        for record, remark in map_in_processes(work, chunks(), processes):
            finished, size = read.popleft()
            text += size
            show()
            if remark:
                say(f"{remark}: this part of the data is prepared anew")
            yield record


def cut_corpus(corpus: Mixture, data: DataConfig, show: Callable[[], None]) -> Iterator[Chunk]:
    """Yields the chunks of a corpus; calls `show` after each document that is read."""

    def shown_while_read(documents: Iterable[Document]) -> Iterator[Document]:
        for document in documents:
            show()
            yield document

    return cut_chunks(map(shown_while_read, corpus.passes()), int(data.chunk_megabytes * 1e6))


def _prepare_unless_finished(
    chunk: Chunk, recipe: Recipe, directory: Path, fingerprint: str, ends_held_out: bool = False
) -> tuple[ChunkRecord, str | None]:
    """Prepares a chunk, or returns the record of an earlier attempt if its files are intact.

    The second result describes the damage if a finished chunk couldn't be used, or is None.
    """
    path, remark = ChunkFiles.of(directory, chunk.index).record, None
    try:
        record = ChunkRecord.read(path)
        same = (record.fingerprint, record.source, record.text_crc32) == (fingerprint, chunk.source, chunk.crc32)
        if same:
            changed = record.changed_file(directory, chunk.index)
            if not changed:
                return record, None
            remark = f"{changed} is not as it was written"
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        remark = f"{path} is damaged ({error})"
    return prepare_chunk(chunk, recipe, directory, fingerprint, ends_held_out), remark


def _separate_held_out(
    directory: Path, chunks: Sequence[ChunkRecord], sources: int, least: int
) -> tuple[list[list[Document]], int]:
    """The held-out documents of each source that share no long paragraph with training, and how many were dropped.

    A source with fewer than `least` documents left gets none.
    """
    documents = sample_documents(held_out_documents(directory, chunks), HELD_OUT_BYTES)
    hashes = [paragraph_hashes([document]) for _, document in documents]
    shared = _seen_in_training(np.unique(np.concatenate([*hashes, np.zeros(0, np.uint64)])), directory, chunks)
    kept: list[list[Document]] = [[] for _ in range(sources)]
    for (source, document), own in zip(documents, hashes):
        if not np.isin(own, shared).any():
            kept[source].append(document)
    dropped = len(documents) - sum(map(len, kept))
    return [group if len(group) >= least else [] for group in kept], dropped


def _example_sentences(kept: Sequence[Sequence[Document]], recipe: Recipe) -> list[str]:
    """The first well-formed sentence of each document, at most _EXAMPLES, in the order of their hashes."""
    found = []
    for source, documents in enumerate(kept):
        for document in documents:
            found.extend(itertools.islice(filter(_reads_well, as_sentences(document, recipe.data, source)), 1))
    found.sort(key=lambda sentence: hashlib.blake2b(sentence.encode()).digest())
    return found[:_EXAMPLES]


def _reads_well(sentence: str) -> bool:
    """Whether a sentence is of medium length, ends with a stop and is mostly letters: no table, code or heading."""
    if not 30 <= len(sentence) <= 120 or sentence[-1] not in ".!?。！？।؟":
        return False
    return sum(character.isalpha() or character.isspace() for character in sentence) >= 0.93 * len(sentence)


def _seen_in_training(
    held_out: UInt64[np.ndarray, " n"], directory: Path, chunks: Sequence[ChunkRecord]
) -> UInt64[np.ndarray, " m"]:
    """The hashes in `held_out` of paragraphs that also occur in training. Only one chunk's hashes are in memory."""
    shared = [np.intersect1d(held_out, read_paragraphs(directory, index, chunk)) for index, chunk in enumerate(chunks)]
    return np.concatenate([*shared, np.zeros(0, np.uint64)])
