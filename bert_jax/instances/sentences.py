"""Sentences of documents, as text and as piece ids in flat arrays."""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from bert_jax.config.data import DataConfig
from bert_jax.text.scripts import TextCut, sets_no_spaces
from bert_jax.text.text_spans import split_marked

_Encoded = tuple[Int[np.ndarray, " N"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]
"""The concatenated piece ids of n texts, the number of ids of each text, and the number of characters of each text that
unknown pieces stand for."""
_MOST_CHARACTERS = 1 << 21
"""Words are remembered up to this sum of their characters: about 262,000 English words, which take 36 MB."""
_NONE = np.zeros(0, np.int32)


class Sentences(NamedTuple):
    """D documents with S sentences and N tokens in all. No sentence or document is empty."""

    tokens: Int[np.ndarray, " N"]
    """Piece ids of all sentences, concatenated."""
    ends: Int[np.ndarray, " S+1"]
    """Offsets of the sentences: sentence s is tokens[ends[s]:ends[s + 1]]."""
    documents: Int[np.ndarray, " D+1"]
    """Offsets of the documents: document d consists of the sentences documents[d] to documents[d + 1] - 1."""
    numbers: Int[np.ndarray, " S"] | None = None
    """Index of each sentence among all encoded sentences, from 0. Sentences without a piece are counted, too, although
    they are left out."""
    characters: int = 0
    """Characters of all encoded sentences, without spaces."""
    unknown_characters: int = 0
    """Number of these characters that unknown pieces stand for."""
    words: int = 0
    """Words of all encoded sentences, split at blanks."""


@runtime_checkable
class TextEncoder(Protocol):
    """The part of a tokenizer's interface that `encode_documents` uses."""

    def __hash__(self) -> int:
        """Identifies the tokenizer whose words are remembered."""

    @property
    def cuts(self) -> Sequence[TextCut]:
        """Cuts from coarse to fine; the first is at blanks. The ids of a text are the concatenated ids of its parts."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the piece ids of each text."""

    def unknown_characters(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> list[int]:
        """Returns how many characters of each text its unknown pieces stand for, given its piece ids."""


def as_sentences(document: Sequence[str], data: DataConfig, source: int) -> Sequence[str]:
    """The sentences of a document from `source`: its lines if the layout is "sentences", otherwise the sentences of its
    paragraphs.

    With `data.spans` the sentences contain the marks of their spans.
    """
    if data.layout == "sentences":
        return document
    from bert_jax.text.segmentation import split_sentences  # imports sentencex, which bench does without

    split = functools.partial(split_sentences, language=data.languages[source])
    if data.spans:
        split = functools.partial(split_marked, split=split)
    return [sentence for paragraph in document for sentence in split(paragraph)]


def with_blanks(document: Iterable[str]) -> Iterator[str]:
    """The sentences of a document, each but the first with the blank that stands before it in running text; a script
    without spaces between words has none there."""
    for number, sentence in enumerate(document):
        yield f" {sentence}" if number and sentence and not sets_no_spaces(sentence[0]) else sentence


def encode_documents(documents: Iterable[Sequence[str]], tokenizer: TextEncoder) -> Sentences:
    """Encodes `documents`, each a list of sentences. Leaves out sentences and documents without a piece."""
    sizes: list[int] = []

    def sized() -> Iterator[Sequence[str]]:
        for document in documents:
            sizes.append(len(document))
            yield document

    cut, *finer = tokenizer.cuts or (_whole,)
    numbers, parts = _distinct(sized(), cut)
    tokens, lengths, unknown = _joined(numbers, *_encode(parts, tokenizer, finer))
    # `parts` has each distinct part once, so its characters and words are multiplied by its number of occurrences.
    occurrences = np.bincount(numbers, minlength=len(parts) + 1)[1:]
    characters = np.fromiter((len(part) - part.count(" ") for part in parts), np.int64, len(parts))
    words = np.fromiter((len(part.split()) for part in parts), np.int64, len(parts))
    # Number of sentences with pieces before each sentence.
    kept_before = np.concatenate([[0], np.cumsum(lengths > 0)])
    bounds = kept_before[np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])]
    kept = np.flatnonzero(lengths)
    ends = np.concatenate([[0], np.cumsum(lengths[kept])])
    counts = (int(each) for each in (occurrences @ characters, unknown.sum(), occurrences @ words))
    return Sentences(tokens, ends, np.unique(bounds), kept, *counts)


def _whole(texts: Iterable[str]) -> list[str]:
    """The default cut for a tokenizer without `cuts`: each text is one part."""
    return [part for text in texts for part in (text.replace("\n", " "), "\n")]


def _distinct(groups: Iterable[Iterable[str]], cut: TextCut) -> tuple[Int[np.ndarray, " n"], list[str]]:
    """Cuts the texts of all groups into parts; returns the numbers of all parts in order, and the distinct parts.

    Parts are numbered from 1, and 0 ends a text.
    """
    number_of = _Numbers({"\n": 0})
    # Texts are cut one group at a time: a call for each text takes longer, and all parts at once take much memory.
    numbers = [number_of.of(cut(texts)) for texts in groups]
    _, *parts = number_of
    return np.concatenate([_NONE, *numbers]), parts


def _encode(texts: Sequence[str], tokenizer: TextEncoder, cuts: Sequence[TextCut]) -> _Encoded:
    """Encodes `texts`, each distinct part only once; for English words this takes a tenth of the time."""
    if cuts:
        numbers, parts = _distinct([texts], cuts[0])
        return _joined(numbers, *_encode(parts, tokenizer, cuts[1:]))
    return _words_of(tokenizer).encode(texts) if tokenizer.cuts else _encoded(texts, tokenizer)


def _encoded(texts: Sequence[str], tokenizer: TextEncoder) -> _Encoded:
    encoded = tokenizer.encode_batch(texts)
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    tokens = np.fromiter(itertools.chain.from_iterable(encoded), np.int32, int(lengths.sum()))
    return tokens, lengths, np.array(tokenizer.unknown_characters(texts, encoded), np.int64)


def _joined(
    numbers: Int[np.ndarray, " m"],
    pieces: Int[np.ndarray, " M"],
    lengths: Int[np.ndarray, " P"],
    unknown: Int[np.ndarray, " P"],
) -> _Encoded:
    """Encodes texts, given the encoding of their P distinct parts and the `numbers` that `_distinct` returns."""
    lengths, unknown = (np.concatenate([[0], each]) for each in (lengths, unknown))
    tokens, *counts = _looked_up(numbers, pieces, lengths, unknown)
    ends = numbers == 0
    text_lengths, text_unknown = (np.diff(np.cumsum(each)[ends], prepend=0) for each in counts)
    return tokens, text_lengths, text_unknown


def _looked_up(
    numbers: Int[np.ndarray, " m"],
    pieces: Int[np.ndarray, " M"],
    lengths: Int[np.ndarray, " P"],
    unknown: Int[np.ndarray, " P"],
) -> _Encoded:
    """Picks the texts with indices `numbers` from P encoded texts; returns the encoding of these m texts."""
    begins = (np.cumsum(lengths) - lengths)[numbers]
    return pieces[ranges(begins, lengths[numbers])], lengths[numbers], unknown[numbers]


def ranges(begin: Int[np.ndarray, " m"], sizes: Int[np.ndarray, " m"]) -> Int[np.ndarray, " n"]:
    """Concatenates the ranges of numbers from begin[i] to begin[i] + sizes[i] - 1, for each i."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(begin - before, sizes) + np.arange(int(sizes.sum()))


class _Words:
    """Encodes words and remembers them: half of a chunk's distinct English words occur in the chunks before it."""

    def __init__(self, tokenizer: TextEncoder):
        self._tokenizer = tokenizer
        self._forget()

    def _forget(self) -> None:
        self._numbers, self._characters = _Numbers(), 0
        self._known = _encoded([], self._tokenizer)

    def encode(self, words: Sequence[str]) -> _Encoded:
        if self._characters > _MOST_CHARACTERS:
            self._forget()
        numbers = self._numbers.of(words)
        unseen = list(itertools.islice(self._numbers, len(self._known[1]), None))
        self._characters += sum(map(len, unseen))
        pieces, lengths, unknown = map(np.concatenate, zip(self._known, _encoded(unseen, self._tokenizer), strict=True))
        self._known = pieces, lengths, unknown
        return _looked_up(numbers, pieces, lengths, unknown)


@functools.lru_cache(maxsize=1)
def _words_of(tokenizer: TextEncoder) -> _Words:
    return _Words(tokenizer)


def forget_words() -> None:
    """Frees the memory of the words that `encode_documents` remembers."""
    _words_of.cache_clear()


class _Numbers(dict[str, int]):
    """Numbers texts in the order in which they are first looked up."""

    def of(self, texts: Sequence[str]) -> Int[np.ndarray, " n"]:
        return np.fromiter(map(self.__getitem__, texts), np.int32, len(texts))

    def __missing__(self, text: str) -> int:
        self[text] = number = len(self)
        return number
