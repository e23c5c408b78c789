"""A corpus to a prepared data set: chunk by chunk, in parallel, taken up again where it stopped."""

import functools
import hashlib
import itertools
import json
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt64

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
from bert_jax.data.corpus import Corpus
from bert_jax.data.sample import sample_documents
from bert_jax.data.statistics import Statistics
from bert_jax.data.store import ids_dtype, shard_path, write_metadata
from bert_jax.data.workers import available_cores, map_in_processes
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.files import FileSum, full_disk_explained, replacing, write_json
from bert_jax.system.progress import stage
from bert_jax.text.tokenizer import load_tokenizer

_FORMAT = 1
"""Counts up when the same settings would give other records."""
_RECORD = "prepared.json"
_EXAMPLES = 16
HELD_OUT_BYTES = 16_000_000
"""Held-out text that is used at most: a sample of a large corpus' held-out documents measures as well as all."""


class PreparedData(NamedTuple):
    """A finished data set."""

    directory: Path
    length: int
    """Tokens of a full sequence."""
    fingerprint: str
    """Of all that shaped it but the text ..."""
    corpus: str
    """... and the text's stamp."""
    train: Statistics
    held_out: Statistics
    held_out_dropped: int
    """Held-out documents left out because they share a long paragraph with a training document."""
    shards: dict[str, FileSum]
    """Every shard by file name."""
    example_sentences: list[str]
    """A few held-out sentences of middling length, to show what the model makes of them."""

    @property
    def piece_counts(self) -> Int[np.ndarray, " V"]:
        """How often each piece occurs in the training documents. Raises RunError where the file is damaged."""
        try:
            return np.load(self.directory / "piece_counts.npy")
        except (OSError, ValueError) as error:
            raise damaged(self.directory / "piece_counts.npy", error) from None

    def save(self) -> None:
        """Writes prepared.json: the set is finished with it."""
        value = {
            "format": _FORMAT,
            "length": self.length,
            "fingerprint": self.fingerprint,
            "corpus": self.corpus,
            "train": self.train.as_json(),
            "held_out": self.held_out.as_json(),
            "held_out_dropped": self.held_out_dropped,
            "shards": self.shards,
            "example_sentences": self.example_sentences,
        }
        write_json(self.directory / _RECORD, value)

    @classmethod
    def open(cls, directory: Path) -> "PreparedData | None":
        """The finished set in `directory`, or None. Raises RunError where a shard is missing or cut short."""
        try:
            value = json.loads((directory / _RECORD).read_text(encoding="utf-8"))
            del value["format"]
            shards = {name: FileSum(*total) for name, total in value["shards"].items()}
            value["train"] = Statistics.from_json(value["train"])
            value["held_out"] = Statistics.from_json(value["held_out"])
            found = cls(**value | {"shards": shards, "directory": directory})
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise damaged(directory / _RECORD, error) from None
        for name, expected in shards.items():
            path = directory / name
            size = path.stat().st_size if path.exists() else 0
            if size != expected.size:
                raise RunError(
                    f"{path} has {size:,} bytes and should have {expected.size:,}; delete {directory} and give "
                    "the same command again to prepare it anew"
                )
        return found


def damaged(path: Path, error: Exception) -> RunError:
    """What is said of a damaged file of a data set."""
    return RunError(
        f"{path} is damaged ({str(error).partition(chr(10))[0]}); delete {path.parent} and give the same command again "
        "to prepare it anew"
    )


def discard(directory: Path) -> None:
    """Deletes the data set in `directory`, its record first: half a deletion leaves none."""
    (directory / _RECORD).unlink(missing_ok=True)
    shutil.rmtree(directory)


def fingerprint(recipe: Recipe) -> str:
    """A hash of all that shapes the records, but for the text itself."""
    tokenizer = [path.read_text(encoding="utf-8") for path in sorted(recipe.tokenizer_directory.iterdir())]
    shape = [_FORMAT, recipe.data.model_dump(), recipe.length, recipe.seed, tokenizer]
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()


def prepare(corpus: Corpus, recipe: Recipe, directory: Path, processes: int | None = None) -> PreparedData:
    """Writes the data set to `directory`; what an interrupted attempt finished there is used.

    Raises UsageError where the corpus has too little text, RunError where the disk is full or a worker dies.
    """
    shape = fingerprint(recipe)
    with full_disk_explained(directory):
        (directory / "chunks").mkdir(parents=True, exist_ok=True)
    chunks = list(_chunk_records(corpus, recipe, directory, shape, processes or available_cores()))
    train = sum((record.statistics for record in chunks), Statistics())
    train.repairs.update(corpus.repairs)
    if train.documents < 2:
        raise UsageError(
            f"data.source={recipe.data.source!r} holds {train.documents} documents for training and next sentence "
            "prediction needs two; give more text, with a blank line between documents"
        )
    kept, dropped = _separate_held_out(directory, len(chunks))
    with stage("Preparing held-out sequences", len(kept), "documents") as shown:
        held_out, held_out_shard, _ = write_instances(kept, recipe, directory, HELD_OUT, 0)
        shown.advance(len(kept))
    shards = {shard_path(directory, TRAIN, index).name: record.shard for index, record in enumerate(chunks)}
    shards[shard_path(directory, HELD_OUT, 0).name] = held_out_shard
    for path in directory.glob("*.array_record"):
        if path.name not in shards:  # of an attempt on a longer corpus
            path.unlink()
    with replacing(directory / "piece_counts.npy") as temporary, open(temporary, "wb") as file:
        np.save(file, sum(_arrays(directory, index)["piece_counts"] for index in range(len(chunks))))
    with full_disk_explained(directory):
        lengths = {TRAIN: [record.instances for record in chunks], HELD_OUT: [held_out.instances]}
        write_metadata(directory, lengths, ids_dtype(len(load_tokenizer(recipe.tokenizer_directory).vocabulary)))
    examples = _example_sentences(kept, recipe)
    prepared = PreparedData(directory, recipe.length, shape, corpus.stamp, train, held_out, dropped, shards, examples)
    prepared.save()
    shutil.rmtree(directory / "chunks")
    return prepared


def _chunk_records(
    corpus: Corpus, recipe: Recipe, directory: Path, shape: str, processes: int
) -> Iterator[ChunkRecord]:
    """Records of all chunks in order, those that are finished already and those that this makes."""
    work = functools.partial(_prepare_unless_finished, recipe=recipe, directory=directory, fingerprint=shape)
    with stage(f"Preparing sequences of {recipe.length}", corpus.total, corpus.unit) as shown:
        finished, ends = 0.0, deque()

        def show():  # a chunk is half done when it has been read
            shown.advance((corpus.position + finished) / 2 - shown.done)

        def documents():
            for document in corpus.documents():
                show()
                yield document

        def chunks():
            for chunk in cut_chunks(documents(), int(recipe.data.chunk_megabytes * 1e6)):
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
        same = (record.fingerprint, record.text_crc32) == (fingerprint, chunk.crc32)
        if same and record.shard == FileSum.of(shard):
            return record
    except FileNotFoundError:
        pass
    return prepare_chunk(chunk, recipe, directory, fingerprint)


def _separate_held_out(directory: Path, chunks: int) -> tuple[list[list[str]], int]:
    """Held-out documents that share no long paragraph with training, and how many do."""
    documents = sample_documents(_held_out_documents(directory, chunks), HELD_OUT_BYTES)
    hashes = [paragraph_hashes([document]) for document in documents]
    shared = _seen_in_training(np.unique(np.concatenate([*hashes, np.zeros(0, np.uint64)])), directory, chunks)
    kept = [document for document, own in zip(documents, hashes) if not np.isin(own, shared).any()]
    return kept if len(kept) > 1 else [], len(documents) - len(kept)  # a pair takes two documents


def _held_out_documents(directory: Path, chunks: int) -> Iterator[list[str]]:
    for index in range(chunks):
        with open(ChunkFiles.of(directory, index).held_out, encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _example_sentences(documents: Iterable[Sequence[str]], recipe: Recipe) -> list[str]:
    """The first sentence of each document that a person would read as one, in the order of their hashes."""
    found = []
    for document in documents:
        found.extend(itertools.islice(filter(_reads_well, as_sentences(document, recipe.data)), 1))
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
