"""Sentences of documents, as text and as piece ids in flat arrays."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from bert_jax.config.data import DataConfig
from bert_jax.text.text_spans import split_marked


class Sentences(NamedTuple):
    """D documents with S sentences and N tokens in all. No sentence or document is empty."""

    tokens: Int[np.ndarray, " N"]
    """Piece ids of all sentences, concatenated."""
    ends: Int[np.ndarray, " S+1"]
    """Offsets of the sentences: sentence s is tokens[ends[s]:ends[s + 1]]."""
    documents: Int[np.ndarray, " D+1"]
    """Offsets of the documents: document d consists of the sentences documents[d] to documents[d + 1] - 1."""
    numbers: Int[np.ndarray, " S"] | None = None
    """Index of each sentence among all encoded sentences, from 0. It also counts those without a piece, which are left
    out."""
    characters: int = 0
    """Characters of all encoded sentences, without spaces."""
    unknown_characters: int = 0
    """Number of these characters that are behind unknown pieces."""
    words: int = 0
    """Words of all encoded sentences, split at blanks."""


@runtime_checkable
class TextEncoder(Protocol):
    """The part of a tokenizer's interface that `encode_documents` uses."""

    @property
    def cuts(self) -> Sequence[Callable[[Iterable[str]], list[str]]]:
        """Functions that cut texts into parts, from coarse to fine, with "\\n" after each text's parts.

        The ids of a text are the concatenated ids of its parts."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the piece ids of each text."""

    def unknown_characters(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> list[int]:
        """Returns the number of characters behind unknown pieces in each text, given its piece ids."""


def as_sentences(document: Sequence[str], data: DataConfig, source: int) -> Sequence[str]:
    """The sentences of a document from `source`: its lines if the layout is "sentences", otherwise the sentences of its
    paragraphs.

    With `data.spans` they hold the marks of their spans.
    """
    if data.layout == "sentences":
        return document
    from bert_jax.text.segmentation import split_sentences  # imports sentencex, which bench does without

    split = functools.partial(split_sentences, language=data.languages[source])
    if data.spans:
        split = functools.partial(split_marked, split=split)
    return [sentence for paragraph in document for sentence in split(paragraph)]


def encode_documents(documents: Iterable[Sequence[str]], tokenizer: TextEncoder) -> Sentences:
    """Encodes `documents`, each a list of sentences. Leaves out sentences and documents without a piece."""
    sizes, characters, words = [], 0, 0

    def counted() -> Iterator[Sequence[str]]:
        nonlocal characters, words
        for document in documents:
            sizes.append(len(document))
            characters += sum(len(sentence) - sentence.count(" ") for sentence in document)
            words += sum(len(sentence.split()) for sentence in document)
            yield document

    tokens, lengths, unknown = _encode(counted(), tokenizer, tokenizer.cuts)
    # Number of sentences with pieces before each sentence.
    kept_before = np.concatenate([[0], np.cumsum(lengths > 0)])
    bounds = kept_before[np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])]
    numbers = np.flatnonzero(lengths)
    ends = np.concatenate([[0], np.cumsum(lengths[numbers])])
    return Sentences(tokens, ends, np.unique(bounds), numbers, characters, int(unknown.sum()), words)


def _encode(
    groups: Iterable[Sequence[str]], tokenizer: TextEncoder, cuts: Sequence[Callable[[Iterable[str]], list[str]]]
) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Returns the concatenated piece ids of the texts of all groups.

    Also returns for each text its number of ids, and its number of characters behind unknown pieces.

    Each distinct part, such as a word, is encoded only once; for English this takes a tenth of the time.
    """
    if not cuts:
        texts = [text for group in groups for text in group]
        encoded = tokenizer.encode_batch(texts)
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        tokens = np.fromiter(itertools.chain.from_iterable(encoded), np.int32, int(lengths.sum()))
        return tokens, lengths, np.array(tokenizer.unknown_characters(texts, encoded), np.int64)
    number_of = _Numbers({"\n": 0})
    # Texts are cut one group at a time: a call for each text takes longer, and all parts at once take much memory.
    numbers = np.fromiter(map(number_of.__getitem__, itertools.chain.from_iterable(map(cuts[0], groups))), np.int32)
    _, *parts = number_of
    pieces, *counts = _encode([parts], tokenizer, cuts[1:])
    lengths, unknown = (np.concatenate([[0], count]) for count in counts)
    sizes = lengths[numbers]
    tokens = pieces[ranges((np.cumsum(lengths) - lengths)[numbers], sizes)]
    ends = numbers == 0
    return tokens, *(np.diff(np.cumsum(each)[ends], prepend=0) for each in (sizes, unknown[numbers]))


def ranges(begin: Int[np.ndarray, " m"], sizes: Int[np.ndarray, " m"]) -> Int[np.ndarray, " n"]:
    """Concatenates the ranges of numbers from begin[i] to begin[i] + sizes[i] - 1, for each i."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(begin - before, sizes) + np.arange(int(sizes.sum()))


class _Numbers(dict[str, int]):
    """Numbers texts in the order in which they are first looked up."""

    def __missing__(self, text: str) -> int:
        self[text] = number = len(self)
        return number
