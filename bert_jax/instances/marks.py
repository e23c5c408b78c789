"""Marks the units of encoded text: where words, phrases and entities begin."""

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt8

from bert_jax.config.data import DataConfig
from bert_jax.instances.sentences import Sentences
from bert_jax.layout import ENTITY_START, MASKABLE, PHRASE_START, WORD_START
from bert_jax.system.progress import say
from bert_jax.text.lexicon import Lexicon, LexiconFile, Speller
from bert_jax.text.segmentation import Segmenter, open_segmenter
from bert_jax.text.text_spans import SpannedSentence, tokens_of
from bert_jax.text.tokenizer import Tokenizer

_BITS = {"phrases": PHRASE_START, "entities": ENTITY_START}
_NAMES = {"phrase": "phrases", "entity": "entities"}


class Marks(NamedTuple):
    """The units of a text of N tokens."""

    units: UInt8[np.ndarray, " N"]
    """Unit bits of each token (bert_jax/layout.py)."""
    counts: Counter[str]
    """Number of units and of lexicon entries, by their names in tables."""
    sizes: Counter[str]
    """Number of units by kind and size in tokens, such as "words 3"."""


class Marker:
    """Finds the units of encoded text. The settings of the data say which."""

    def __init__(self, tokenizer: Tokenizer, data: DataConfig):
        """Raises UsageError for a segmenter that can't be imported, and for a file that is no lexicon."""
        self._tokenizer, self._starts = tokenizer, tokenizer.starts_word
        self._segmenter = open_segmenter(data.words) if data.words else None
        self._files = {name: LexiconFile.read(path, f"data.{name}") for name, path in data.lexicons.items()}
        self._lexicons = {name: Lexicon(file.entries, self._speller) for name, file in self._files.items()}

    @cached_property
    def _speller(self) -> Speller:
        return Speller(self._tokenizer)

    def report_unused_entries(self) -> None:
        """Reports for each lexicon how many lines are left out, and why."""
        for name, lexicon in self._lexicons.items():
            file = self._files[name]
            useless = {
                "blank": file.blank,
                "doubled": file.doubled,
                "which the tokenizer treats as an earlier one": lexicon.duplicates,
                "with pieces that the vocabulary doesn't know": lexicon.unknown,
            }
            left_out = ", ".join(f"{count:,} {kind}" for kind, count in useless.items() if count)
            if left_out:
                say(f"data.{name}={file.path} has {len(file.entries):,} entries; lines that are left out: {left_out}")

    def mark(self, text: Sentences, spanned: Mapping[int, SpannedSentence] | None = None) -> Marks:
        """The units of all tokens of `text`. Raises UsageError where a segmenter fails.

        `spanned`: the sentences that have spans, by their number among all encoded sentences (`text.numbers`).
        """
        words, counts = self._starts[text.tokens], Counter[str]()
        begins = np.zeros(len(words), bool)
        begins[text.ends[:-1]] = True
        words |= begins  # the first piece of a sentence looks like the middle of a word if no blank is set before it
        if self._segmenter:
            words, counts["word boundaries inside a piece, not taken"] = self._segmented(self._segmenter, text, begins)
        stretches = {}
        if self._lexicons:
            spelled = self._speller.marked(text.tokens, begins)
            stretches = {name: lexicon.matches(spelled) for name, lexicon in self._lexicons.items()}
        for name, of_spans in self._of_spans(text, spanned or {}, counts).items():
            others = stretches.get(name, of_spans[:0])
            stretches[name] = np.concatenate([of_spans, others[~_overlapping(others, of_spans, len(words))]])
        for stretch in stretches.values():  # a phrase cuts a segmenter's words at its ends
            edges = stretch.ravel()
            words[edges[edges < len(words)]] = True
        units, sizes = np.where(words, np.uint8(MASKABLE | WORD_START), np.uint8(MASKABLE)), Counter[str]()
        for name, stretch in stretches.items():
            inner = _covered(stretch[:, 0] + 1, stretch[:, 1], len(words))
            units[words & ~inner] |= np.uint8(_BITS[name])
            counts[name] = len(stretch)
            counts[f"tokens in {name}"] = int(np.diff(stretch).sum())
            sizes += _counted(name, np.diff(stretch).ravel())
        counts["words"] = int(words.sum())
        sizes += _counted("words", np.diff(np.append(np.flatnonzero(words), len(words))))
        return Marks(units, counts, sizes)

    def _of_spans(
        self, text: Sentences, spanned: Mapping[int, SpannedSentence], counts: Counter[str]
    ) -> dict[str, Int[np.ndarray, "_ 2"]]:
        """First token, and token after the last, of each span, by kind. Spans left out are counted in `counts`."""
        stretches: dict[str, list[np.ndarray]] = {}
        for at, number in enumerate(text.numbers.tolist() if spanned and text.numbers is not None else ()):
            if number not in spanned:
                continue
            sentence, (begin, end) = spanned[number], text.ends[at : at + 2]
            pieces = self._tokenizer.encode_spans(sentence.text)
            counts["spans across sentences, not taken"] += sentence.cut
            for kind in {span.kind for span in sentence.spans}:
                spans = [span for span in sentence.spans if span.kind == kind]
                tokens = tokens_of(spans, pieces, self._starts[text.tokens[begin:end]])
                counts["spans that are not whole words, not taken"] += len(spans) - len(tokens)
                stretches.setdefault(_NAMES[kind], []).append(begin + tokens)
        return {name: np.concatenate(parts) for name, parts in stretches.items()}

    def _segmented(
        self, segmenter: Segmenter, text: Sentences, begins: Bool[np.ndarray, " N"]
    ) -> tuple[Bool[np.ndarray, " N"], int]:
        """Where the segmenter lets words begin; and how many of its boundaries are inside a piece and so ignored."""
        plain = self._speller.plain(text.tokens, begins)
        edges = np.append(plain.places[text.ends[:-1]], len(plain.text)).tolist()
        boundary = np.zeros(len(plain.text) + 1, bool)
        for begin, end in pairwise(edges):
            boundary[[begin + place for place in segmenter(plain.text[begin:end])]] = True
        allowed = np.zeros(len(boundary), bool)
        allowed[plain.places] = allowed[plain.places - plain.after_space] = allowed[-1] = True
        return boundary[plain.places] | begins | plain.after_space, int((boundary & ~allowed).sum())


def _counted(name: str, sizes: Int[np.ndarray, " n"]) -> Counter[str]:
    """The number of units by kind and size."""
    counts = np.bincount(sizes)
    return Counter({f"{name} {size}": int(counts[size]) for size in np.flatnonzero(counts)})


def _overlapping(
    stretches: Int[np.ndarray, "n 2"], others: Int[np.ndarray, "m 2"], size: int
) -> Bool[np.ndarray, " n"]:
    """Whether each of `stretches` shares a token with one of `others`; the text has `size` tokens."""
    covered = np.concatenate([[0], np.cumsum(_covered(others[:, 0], others[:, 1], size))])
    return covered[stretches[:, 1]] > covered[stretches[:, 0]]


def _covered(begins: Int[np.ndarray, " n"], ends: Int[np.ndarray, " n"], size: int) -> Bool[np.ndarray, " N"]:
    """Whether each of `size` tokens is in one of the ranges from `begins` to `ends` (exclusive)."""
    change = np.zeros(size + 1, np.int64)
    np.add.at(change, begins, 1)
    np.add.at(change, ends, -1)
    return np.cumsum(change)[:size] > 0
