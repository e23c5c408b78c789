"""One chunk of text to one shard: what a worker process does."""

import functools
import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from jaxtyping import Int, UInt64
from pydantic import Field

from bert_jax.config.data import DataConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.instances.checked_record import read_checked, write_checked
from bert_jax.instances.chunks import Chunk
from bert_jax.instances.full_sentences import pack_sentences
from bert_jax.instances.instances import build_instances
from bert_jax.instances.number_file import write_numbers
from bert_jax.instances.pairing import pair_segments
from bert_jax.instances.sentences import encode_documents
from bert_jax.instances.shards import ids_dtype, shard_path, write_shard
from bert_jax.instances.statistics import Count, Statistics
from bert_jax.system.files import FileSum, write_text
from bert_jax.system.json_file import Shape, as_shape
from bert_jax.text.sentences import split_sentences
from bert_jax.text.tokenizer import load_tokenizer

TRAIN, HELD_OUT = "train", "held_out"
SHARED_PARAGRAPH_CHARACTERS = 64
"""A paragraph at least so long counts when documents are compared; headings and the like are everywhere."""
LEAST_END_BYTES = 10_000
"""Text held out at the end of a document, where no whole document is, unless that is more than a tenth of it."""


class Recipe(NamedTuple):
    """All that turns text into instances."""

    data: DataConfig
    length: int
    seed: int
    tokenizer_directory: Path
    pair: str = ObjectiveConfig().pair
    """The objective's."""


class ChunkFiles(NamedTuple):
    """What a finished chunk leaves beside its shard, until the whole set is finished."""

    record: Path
    """Written last: the chunk is finished if it is there."""
    held_out: Path
    """Held-out documents, a JSON list of lines each."""
    paragraphs: Path
    """Hashes of the training paragraphs, without repetition."""
    piece_counts: Path
    """How often each piece occurs in training."""

    @classmethod
    def of(cls, directory: Path, index: int) -> "ChunkFiles":
        """The files of chunk `index` of the set in `directory`."""
        base = directory / "chunks" / f"{index:05d}"
        names = (".json", ".held_out.jsonl", ".paragraphs.npy", ".piece_counts.npy")
        return cls(*(base.with_suffix(name) for name in names))


class ChunkRecord(Shape):
    """What is written down of a finished chunk."""

    fingerprint: str
    """Of the settings."""
    text_crc32: Annotated[int, Field(ge=0, lt=1 << 32)]
    source: Count
    statistics: Statistics
    """Of the training documents."""
    held_out: Count
    """Documents set aside."""
    shard: FileSum
    held_out_file: FileSum
    paragraphs_file: FileSum
    piece_counts_file: FileSum

    def write(self, path: Path) -> None:
        """Writes it atomically as JSON, with a checksum of its own."""
        write_checked(path, self.model_dump(mode="json"))

    @classmethod
    def read(cls, path: Path) -> "ChunkRecord":
        """Reads it. Raises OSError where it can't be read, ValueError where it is damaged."""
        return as_shape(read_checked(path), cls)

    def changed_file(self, directory: Path, index: int) -> Path | None:
        """The first file of chunk `index` that isn't as it was written. Reads all of them."""
        files = ChunkFiles.of(directory, index)
        written = {
            shard_path(directory, TRAIN, index): self.shard,
            files.held_out: self.held_out_file,
            files.paragraphs: self.paragraphs_file,
            files.piece_counts: self.piece_counts_file,
        }
        return next((path for path in written if not path.is_file() or FileSum.of(path) != written[path]), None)


def prepare_chunk(
    chunk: Chunk, recipe: Recipe, directory: Path, fingerprint: str, ends_held_out: bool = False
) -> ChunkRecord:
    """Writes the shard of `chunk`'s training documents and sets its held-out ones aside, or with `ends_held_out` the
    end of each document."""
    files = ChunkFiles.of(directory, chunk.index)
    files.record.unlink(missing_ok=True)  # of other settings: it would vouch for what is written now
    train, held_out = (_without_ends if ends_held_out else _separated)(chunk, recipe.data)
    write_text(files.held_out, "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in held_out))
    statistics, shard, piece_counts = write_instances(train, recipe, directory, TRAIN, chunk.index, chunk.source)
    record = ChunkRecord(
        fingerprint=fingerprint,
        text_crc32=chunk.crc32,
        source=chunk.source,
        statistics=statistics,
        held_out=len(held_out),
        shard=shard,
        held_out_file=FileSum.of(files.held_out),
        paragraphs_file=write_numbers(files.paragraphs, np.unique(paragraph_hashes(train))),
        piece_counts_file=write_numbers(files.piece_counts, piece_counts),
    )
    record.write(files.record)
    return record


def _separated(chunk: Chunk, data: DataConfig) -> tuple[list[list[str]], list[list[str]]]:
    """Training and held-out documents."""
    parts: tuple[list[list[str]], list[list[str]]] = ([], [])
    for document in chunk.documents:
        parts[is_held_out(document, data.held_out)].append(document)
    return parts


def _without_ends(chunk: Chunk, data: DataConfig) -> tuple[list[list[str]], list[list[str]]]:
    """The documents without their ends, and the ends."""
    divided = [split_end(document, data, chunk.source) for document in chunk.documents]
    return [begin for begin, _ in divided], [end for _, end in divided if end]


def split_end(document: list[str], data: DataConfig, source: int) -> tuple[list[str], list[str]]:
    """A document from `source` divided into what is trained on and its end, by its text alone.

    The end is `data.held_out` of the text or, where that is less than LEAST_END_BYTES, as much as that but no more
    than a tenth. It is made of whole lines or, where even the last line is more than that, of whole sentences; empty
    where there is no sentence so short.
    """
    for lines in (document, as_sentences(document, data, source)):
        sizes = [len(line.encode()) + 1 for line in lines]
        wanted = max(data.held_out * sum(sizes), min(LEAST_END_BYTES, sum(sizes) / 10))
        cut = len(lines)
        while cut > 1 and sizes[cut - 1] <= wanted:
            cut -= 1
            wanted -= sizes[cut]
        if cut < len(lines):
            return list(lines[:cut]), list(lines[cut:])
    return document, []


def write_instances(
    documents: Sequence[Sequence[str]], recipe: Recipe, directory: Path, split: str, index: int, source: int
) -> tuple[Statistics, FileSum, Int[np.ndarray, " V"]]:
    """Writes shard `index` of `split` from text of one source.

    Returns what was seen, the shard's checksum and each piece's count.
    """
    tokenizer = _tokenizer(recipe.tokenizer_directory)
    vocabulary = tokenizer.vocabulary
    sentences = (as_sentences(document, recipe.data, source) for document in documents)
    text = encode_documents(sentences, tokenizer)
    piece_counts = np.bincount(text.tokens, minlength=len(vocabulary))
    statistics = Statistics(
        documents=len(text.documents) - 1,
        sentences=len(text.ends) - 1,
        tokens=len(text.tokens),
        unknown_tokens=int(piece_counts[vocabulary.unknown_id]),
    )
    paired = recipe.pair == "next_sentence"
    cut_up = pair_segments if paired else pack_sentences

    def instances():
        for one_pass in range(recipe.data.dupe_factor if split == TRAIN else 1):
            # Seeded by what the chunk is, so that it is the same in whatever process and order.
            seed = np.random.SeedSequence([recipe.seed, split == HELD_OUT, index, one_pass])
            rng = np.random.Generator(np.random.Philox(seed))
            segments = cut_up(text, recipe.length, recipe.data.short_sequence_probability, rng)
            made = build_instances(
                segments, text.tokens, tokenizer.starts_word, vocabulary.cls_id, vocabulary.sep_id, paired=paired
            )
            statistics.instances += made.count
            statistics.instance_tokens += len(made.ids)
            statistics.random_pairs += int(made.pair_label.sum())
            statistics.tokens_cut += segments.tokens_cut
            yield made

    shard = write_shard(shard_path(directory, split, index), instances(), ids_dtype(len(vocabulary)))
    return statistics, shard, piece_counts


def as_sentences(document: Sequence[str], data: DataConfig, source: int) -> Sequence[str]:
    """The sentences of a document from `source`: its lines, or what they are split into."""
    if data.layout == "sentences":
        return document
    language = data.languages[source]
    return [sentence for paragraph in document for sentence in split_sentences(paragraph, language)]


@functools.lru_cache(maxsize=1)
def _tokenizer(directory: Path):
    return load_tokenizer(directory)


def is_held_out(document: Iterable[str], share: float) -> bool:
    """Whether a document belongs to the held-out `share`: a property of its text alone, whatever seed and order."""
    digest = blake2b("\n".join(document).encode(), digest_size=8).digest()
    return int.from_bytes(digest) < share * 2**64


def paragraph_hashes(documents: Iterable[Iterable[str]]) -> UInt64[np.ndarray, " n"]:
    """A 64-bit hash of each long enough line of `documents`."""
    digests = (
        blake2b(line.encode(), digest_size=8).digest()
        for document in documents
        for line in document
        if len(line) >= SHARED_PARAGRAPH_CHARACTERS
    )
    return np.frombuffer(b"".join(digests), np.uint64)
