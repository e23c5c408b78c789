"""Sentences to training instances: the original's pairing of segments (create_pretraining_data.py)."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt8

from bert_jax.data.sentences import Sentences
from bert_jax.system.batch import MASKABLE, WORD_START

SPECIAL_TOKENS = 3
"""[CLS] first [SEP] second [SEP]."""
OTHER_DOCUMENT_TRIES = 10
"""Draws for a random document that isn't the first segment's."""


class Span(NamedTuple):
    """Tokens begin to end - 1 of a Sentences' `tokens`."""

    begin: int
    end: int

    @property
    def length(self) -> int:
        """Tokens in the span."""
        return self.end - self.begin


class Pair(NamedTuple):
    """Two segments, neither of them empty."""

    first: Span
    second: Span
    label: int
    """0: second follows first; 1: second was drawn at random."""


class Instance(NamedTuple):
    """One sequence as it is stored: [CLS] first [SEP] second [SEP], unmasked."""

    ids: Int[np.ndarray, " n"]
    units: UInt8[np.ndarray, " n"]
    """Unit bits of each token (system/batch.py)."""
    first_length: int
    """Tokens up to the first [SEP], it included."""
    pair_label: int


def pair_segments(
    text: Sentences, length: int, short_sequence_probability: float, rng: np.random.Generator
) -> Iterator[tuple[Pair, int]]:
    """Every sentence of `text` in some pair of at most `length` - 3 tokens; with each the tokens cut to fit.

    Sentences of a document are gathered until a target length is reached; the first segment takes a random number of
    them; the second is the rest, or (half of the time, and always if there is no rest) sentences of another document,
    in which case the rest is gathered again. As the original does: the target is drawn once a document, and a random
    document may be the same one if ten draws give no other. Unlike there, it comes from the same chunk of text.
    """
    most = length - SPECIAL_TOKENS
    ends = text.ends.tolist()
    documents = text.documents.tolist()
    for document in rng.permutation(len(documents) - 1):
        target = most
        if rng.random() < short_sequence_probability:
            target = int(rng.integers(2, most, endpoint=True))
        begin, stop = documents[document], documents[document + 1]
        while begin < stop:
            end = _gather(ends, begin, stop, target)
            middle = begin + (int(rng.integers(1, end - begin)) if end - begin > 1 else 1)
            first = Span(ends[begin], ends[middle])
            if end - begin == 1 or rng.random() < 0.5:
                other = _another(int(document), len(documents) - 1, rng)
                start = int(rng.integers(documents[other], documents[other + 1]))
                second = Span(ends[start], ends[_gather(ends, start, documents[other + 1], target - first.length)])
                label, begin = 1, middle
            else:
                second = Span(ends[middle], ends[end])
                label, begin = 0, end
            excess = max(0, first.length + second.length - most)
            first, second = _truncate(first, second, excess, rng)
            yield Pair(first, second, label), excess


def _gather(ends: list[int], begin: int, stop: int, target: int) -> int:
    """The sentence after those from `begin` that together reach `target` tokens: at least one, at most to `stop`."""
    return bisect_left(ends, ends[begin] + target, begin + 1, stop)


def _another(document: int, count: int, rng: np.random.Generator) -> int:
    for _ in range(OTHER_DOCUMENT_TRIES):
        other = int(rng.integers(count))
        if other != document:
            break
    return other


def _truncate(first: Span, second: Span, excess: int, rng: np.random.Generator) -> tuple[Span, Span]:
    """Takes `excess` tokens off: each off the longer segment (the second if they are equal), at a random end.

    Token by token, that evens out the two and then takes turns, and each segment's share falls on its two ends by
    fair coins; here both are computed at once.
    """
    if not excess:
        return first, second
    difference = first.length - second.length
    even = min(excess, abs(difference))
    turns = excess - even
    from_first = turns // 2 + (even if difference > 0 else 0)
    return _shorten(first, from_first, rng), _shorten(second, excess - from_first, rng)


def _shorten(span: Span, tokens: int, rng: np.random.Generator) -> Span:
    front = int(rng.binomial(tokens, 0.5))
    return Span(span.begin + front, span.end - (tokens - front))


def build_instance(
    pair: Pair, tokens: Int[np.ndarray, " N"], starts_word: Bool[np.ndarray, " V"], cls_id: int, sep_id: int
) -> Instance:
    """Puts the special tokens round a pair and marks the words.

    A segment's first token always begins a word. (In the original's whole-word masking a ##piece after [SEP] joins
    the last word of the first segment.)
    """
    first, second = tokens[slice(*pair.first)], tokens[slice(*pair.second)]
    ids = np.concatenate([[cls_id], first, [sep_id], second, [sep_id]])
    units = np.where(starts_word[ids], MASKABLE | WORD_START, MASKABLE).astype(np.uint8)
    first_length = pair.first.length + 2
    units[[1, first_length]] |= WORD_START
    units[[0, first_length - 1, -1]] = 0
    return Instance(ids, units, first_length, pair.label)
