"""The text of a chunk: what is held out of it, its sentences, and their pieces and units."""

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt64

from bert_jax.config.data import DataConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.instances.chunks import Chunk
from bert_jax.instances.marks import Marker, Marks
from bert_jax.instances.sentences import Sentences, encode_documents
from bert_jax.text.segmentation import split_sentences
from bert_jax.text.text_spans import SpannedSentence, plain, spanned, split_marked
from bert_jax.text.tokenizer import Tokenizer, load_tokenizer

SHARED_PARAGRAPH_CHARACTERS = 64
"""Shortest paragraph that is compared between held-out and training documents; headings recur in many documents."""
LEAST_END_BYTES = 10_000
"""Least size of a held-out end of a document, unless this is more than a tenth of the document.

Ends are held out if there are too few documents to hold out whole ones."""


class Recipe(NamedTuple):
    """All settings that determine how text becomes instances."""

    data: DataConfig
    length: int
    seed: int
    tokenizer_directory: Path
    pair: str = ObjectiveConfig().pair
    """The value of objective.pair."""


def divided(chunk: Chunk, data: DataConfig, ends: bool) -> tuple[list[list[str]], list[list[str]]]:
    """The training documents of a chunk and the held-out ones; with `ends`, the end of each document is held out."""
    if ends:
        parts = [split_end(document, data, chunk.source) for document in chunk.documents]
        return [begin for begin, _ in parts], [end for _, end in parts if end]
    train: list[list[str]] = []
    held_out: list[list[str]] = []
    for document in chunk.documents:
        (held_out if is_held_out(document, data.held_out) else train).append(document)
    return train, held_out


def training_documents(documents: Iterable[tuple[int, list[str]]], data: DataConfig) -> Iterator[tuple[int, list[str]]]:
    """Yields the documents that aren't held out, with the index of their source. Of a source that has no others, the
    beginnings of the held-out ones."""
    for source, of_source in itertools.groupby(documents, key=operator.itemgetter(0)):
        only: list[list[str]] | None = []
        for _, document in of_source:
            if not is_held_out(document, data.held_out):
                only = None
                yield source, document
            elif only is not None:
                only.append(document)
        for document in only or ():
            yield source, split_end(document, data, source)[0]


def split_end(document: list[str], data: DataConfig, source: int) -> tuple[list[str], list[str]]:
    """Splits a document from `source` into a training part and a held-out end. Depends on its text alone.

    The end is the share `data.held_out` of the bytes, but at least LEAST_END_BYTES or a tenth of the document,
    whichever is less; this is an upper limit. It consists of whole lines, or of whole sentences if the last line alone
    is too long. It is empty if the last sentence is too long, too.
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


def as_sentences(document: Sequence[str], data: DataConfig, source: int) -> Sequence[str]:
    """The sentences of a document from `source`: its lines, if the layout is "sentences", or else split paragraphs.

    With `data.spans` they hold the marks of their spans."""
    if data.layout == "sentences":
        return document
    split = functools.partial(split_sentences, language=data.languages[source])
    if data.spans:
        split = functools.partial(split_marked, split=split)
    return [sentence for paragraph in document for sentence in split(paragraph)]


def encode_text(documents: Iterable[Sequence[str]], recipe: Recipe, source: int) -> tuple[Sentences, Marks]:
    """The sentences of documents from `source` as piece ids, with their units; they don't depend on the recipe's
    length."""
    marker = _marker(recipe.tokenizer_directory, recipe.data)
    with_spans: dict[int, SpannedSentence] = {}
    numbers = itertools.count()

    def unmarked(sentence: str) -> str:
        number, whole = next(numbers), spanned(sentence)
        if whole.spans or whole.cut:
            with_spans[number] = whole
        return whole.text

    sentences = (as_sentences(document, recipe.data, source) for document in documents)
    if recipe.data.spans:
        sentences = ([*map(unmarked, of_document)] for of_document in sentences)
    text = encode_documents(sentences, tokenizer_in(recipe.tokenizer_directory))
    return text, marker.mark(text, with_spans)


@functools.lru_cache(maxsize=1)
def _marker(tokenizer_directory: Path, data: DataConfig) -> Marker:
    return Marker(tokenizer_in(tokenizer_directory), data)


@functools.lru_cache(maxsize=1)
def tokenizer_in(directory: Path) -> Tokenizer:
    """The tokenizer in `directory`; it is kept for the next chunk."""
    return load_tokenizer(directory)


def is_held_out(document: Iterable[str], share: float) -> bool:
    """Whether a document belongs to the held-out `share`, by a hash of its text: independent of seed and order."""
    return document_hash(document) < share * 2**64


def document_hash(document: Iterable[str]) -> int:
    """The 64-bit hash of a document's text, without marks; the smallest ones are held out."""
    return int.from_bytes(blake2b(plain("\n".join(document)).encode(), digest_size=8).digest())


def paragraph_hashes(documents: Iterable[Iterable[str]]) -> UInt64[np.ndarray, " n"]:
    """A 64-bit hash of each line of `documents` that has at least SHARED_PARAGRAPH_CHARACTERS characters."""
    digests = (
        blake2b(line.encode(), digest_size=8).digest()
        for document in documents
        for line in map(plain, document)
        if len(line) >= SHARED_PARAGRAPH_CHARACTERS
    )
    return np.frombuffer(b"".join(digests), np.uint64)
