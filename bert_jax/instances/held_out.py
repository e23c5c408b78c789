"""Chooses the text that is held out for evaluation: whole documents by their hashes, or the ends of documents."""

import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

import numpy as np
from jaxtyping import UInt64

from bert_jax.config.data import DataConfig
from bert_jax.instances.chunks import PARAGRAPHS, Chunk, FinishedChunk
from bert_jax.instances.sentences import as_sentences
from bert_jax.records.corpus import PARAGRAPH_CHARACTERS, Document
from bert_jax.records.sample import sample_documents
from bert_jax.text.text_spans import plain

LEAST_END_BYTES = 10_000
"""Least bytes of a document's held-out end, unless this is more than a tenth of the document.

Ends are held out if a source has too few documents to hold out whole ones."""
HELD_OUT_BYTES = 16_000_000
"""Most bytes of held-out text that are used: in a large corpus a sample measures as well as the whole."""


def divided(chunk: Chunk, data: DataConfig, ends: bool) -> tuple[list[Document], list[Document]]:
    """The training documents of a chunk and its held-out ones. With `ends`, the end of each document is held out."""
    if ends:
        parts = [split_end(document, data, chunk.source) for document in chunk.documents]
        return [begin for begin, _ in parts], [end for _, end in parts if end]
    train: list[Document] = []
    held_out: list[Document] = []
    for document in chunk.documents:
        (held_out if is_held_out(document, data.held_out) else train).append(document)
    return train, held_out


def training_documents(documents: Iterable[tuple[int, Document]], data: DataConfig) -> Iterator[tuple[int, Document]]:
    """Yields the documents that aren't held out, with the index of their source.

    If all documents of a source are held out, it yields their beginnings. A source with a few documents of which none
    is held out gives them whole, also their ends, which preparation holds out.
    """
    for source, of_source in itertools.groupby(documents, key=operator.itemgetter(0)):
        only: list[Document] | None = []
        for _, document in of_source:
            if not is_held_out(document, data.held_out):
                only = None
                yield source, document
            elif only is not None:
                only.append(document)
        for document in only or ():
            yield source, split_end(document, data, source)[0]


def split_end(document: Document, data: DataConfig, source: int) -> tuple[Document, Document]:
    """Splits a document from `source` into a training part and a held-out end. The split depends on the text alone.

    The end has at most the larger of two sizes: the share `data.held_out` of the bytes, and the smaller of
    LEAST_END_BYTES and a tenth of the document. It consists of whole lines, or of whole sentences if the last line
    alone is too long. It is empty if the last sentence is too long, too.
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


def is_held_out(document: Iterable[str], share: float) -> bool:
    """Whether a document belongs to the held-out `share`, by a hash of its text alone: seed and order don't matter."""
    return document_hash(document) < share * 2**64


def document_hash(document: Iterable[str]) -> int:
    """The 64-bit hash of a document's text without marks. Documents with small hashes are held out."""
    return int.from_bytes(blake2b(plain("\n".join(document)).encode(), digest_size=8).digest())


def paragraph_hashes(documents: Iterable[Iterable[str]]) -> UInt64[np.ndarray, " n"]:
    """A 64-bit hash of each line of `documents` that has at least PARAGRAPH_CHARACTERS characters."""
    digests = (
        blake2b(line.encode(), digest_size=8).digest()
        for document in documents
        for line in map(plain, document)
        if len(line) >= PARAGRAPH_CHARACTERS
    )
    return np.frombuffer(b"".join(digests), np.uint64)


def separate_held_out(chunks: Sequence[FinishedChunk], sources: int, least: int) -> tuple[list[list[Document]], int]:
    """The held-out documents of each source that share no long paragraph with training; and how many were dropped
    because they share one.

    A source with fewer than `least` documents left keeps none. Only one chunk's hashes of paragraphs are in memory.
    """
    held_out = ((chunk.source, document) for chunk in chunks for document in chunk.held_out_documents())
    documents = sample_documents(held_out, HELD_OUT_BYTES)
    hashes = [paragraph_hashes([document]) for _, document in documents]
    nothing = np.zeros(0, np.uint64)
    every = np.unique(np.concatenate([*hashes, nothing]))
    in_training = [np.intersect1d(every, chunk.numbers(PARAGRAPHS, np.uint64)) for chunk in chunks]
    shared = np.concatenate([*in_training, nothing])
    by_source: list[list[Document]] = [[] for _ in range(sources)]
    for (source, document), own in zip(documents, hashes, strict=True):
        if not np.isin(own, shared, kind="sort").any():
            by_source[source].append(document)
    dropped = len(documents) - sum(map(len, by_source))
    return [group if len(group) >= least else [] for group in by_source], dropped
