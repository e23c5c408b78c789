"""One chunk of text to one shard: what a worker process does."""

import functools
import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt64

from bert_jax.config.data import DataConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.data.chunks import Chunk
from bert_jax.data.full_sentences import pack_sentences
from bert_jax.data.instances import build_instances
from bert_jax.data.pairing import pair_segments
from bert_jax.data.sentences import encode_documents
from bert_jax.data.shards import ids_dtype, shard_path, write_shard
from bert_jax.data.statistics import Statistics
from bert_jax.system.files import FileSum, replacing, write_json, write_text
from bert_jax.text.sentences import split_sentences
from bert_jax.text.tokenizer import load_tokenizer

TRAIN, HELD_OUT = "train", "held_out"
SHARED_PARAGRAPH_CHARACTERS = 64
"""A paragraph at least so long counts when documents are compared; headings and the like are everywhere."""


class Recipe(NamedTuple):
    """All that turns text into instances."""

    data: DataConfig
    length: int
    seed: int
    tokenizer_directory: Path
    pair: str = ObjectiveConfig().pair
    """The objective's."""


class ChunkRecord(NamedTuple):
    """What is written down of a finished chunk or of the held-out set."""

    fingerprint: str
    text_crc32: int
    instances: int
    shard: FileSum
    statistics: Statistics
    source: int = 0

    def write(self, path: Path) -> None:
        """Writes it atomically as JSON."""
        write_json(path, self._asdict() | {"shard": self.shard, "statistics": self.statistics.as_json()})

    @classmethod
    def read(cls, path: Path) -> "ChunkRecord":
        """Reads it. Raises FileNotFoundError."""
        value = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            **value | {"shard": FileSum(*value["shard"]), "statistics": Statistics.from_json(value["statistics"])}
        )


class ChunkFiles(NamedTuple):
    """What a finished chunk leaves beside its shard, until the whole set is finished."""

    record: Path
    """Written last: the chunk is finished if it is there."""
    held_out: Path
    """Held-out documents, a JSON list of lines each."""
    arrays: Path
    """`paragraphs`: hashes of the training paragraphs; `piece_counts`: how often each piece occurs in training."""

    @classmethod
    def of(cls, directory: Path, index: int) -> "ChunkFiles":
        """The files of chunk `index` of the set in `directory`."""
        base = directory / "chunks" / f"{index:05d}"
        return cls(base.with_suffix(".json"), base.with_suffix(".held_out.jsonl"), base.with_suffix(".npz"))


def prepare_chunk(chunk: Chunk, recipe: Recipe, directory: Path, fingerprint: str) -> ChunkRecord:
    """Writes the shard of `chunk`'s training documents and sets its held-out ones aside."""
    files = ChunkFiles.of(directory, chunk.index)
    files.record.unlink(missing_ok=True)  # of other settings: it would vouch for what is written now
    train, held_out = [], []
    for document in chunk.documents:
        (held_out if is_held_out(document, recipe.data.held_out) else train).append(document)
    write_text(files.held_out, "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in held_out))
    statistics, shard, piece_counts = write_instances(train, recipe, directory, TRAIN, chunk.index, chunk.source)
    with replacing(files.arrays) as temporary, open(temporary, "wb") as file:
        np.savez(file, paragraphs=np.unique(paragraph_hashes(train)), piece_counts=piece_counts)
    record = ChunkRecord(fingerprint, chunk.crc32, statistics.instances, shard, statistics, chunk.source)
    record.write(files.record)
    return record


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
