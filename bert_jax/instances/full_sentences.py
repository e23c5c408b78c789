"""Sentences packed to sequences where no pair is asked about (FULL-SENTENCES of Liu et al. 2019, section 4.2)."""

from bisect import bisect_right

import numpy as np
from jaxtyping import Int

from bert_jax.instances.instances import Segments
from bert_jax.instances.sentences import Sentences

SPECIAL_TOKENS = 2
"""[CLS] sentences [SEP]."""


def pack_sentences(
    text: Sentences, length: int, short_sequence_probability: float, rng: np.random.Generator
) -> Segments:
    """Every token of `text` once, in sequences of whole sentences that hold at most `length` tokens.

    A sequence takes sentences as long as they fit and goes on with the next document, a [SEP] between the two: each
    document's part is a segment of its own. Documents come in random order. A sentence that is longer than a sequence
    is cut into pieces, which count as sentences. With `short_sequence_probability` a sequence has a random shorter
    target, and takes one sentence at least.
    """
    most = length - SPECIAL_TOKENS
    order = rng.permutation(len(text.documents) - 1)
    begin, end, document = _pieces(text, order, most)
    # Where each piece ends if all of them stood in a row, a [SEP] between documents.
    place = np.cumsum(end - begin) + document
    ends = place.tolist()
    starts = (place - (end - begin)).tolist()
    targets = np.where(
        rng.random(len(ends)) < short_sequence_probability, rng.integers(1, most, len(ends), endpoint=True), most
    ).tolist()
    firsts, first = [], 0
    while first < len(ends):
        firsts.append(first)
        first = bisect_right(ends, starts[first] + targets[len(firsts) - 1], first + 1)
    # A segment begins with each sequence and with each document.
    heads = np.union1d(firsts, np.flatnonzero(np.diff(document, prepend=-1))).astype(np.int64)
    tails = np.append(heads[1:], len(ends))[: len(heads)] - 1
    counts = np.bincount(np.searchsorted(firsts, heads, side="right") - 1, minlength=len(firsts))
    return Segments(begin[heads], end[tails], counts, np.zeros(len(firsts), np.int64), 0)


def _pieces(
    text: Sentences, order: Int[np.ndarray, " D"], most: int
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """First token, last token + 1 and document (numbered by `order`) of each sentence, none longer than `most`."""
    counts = np.diff(text.documents)[order]
    document = np.repeat(np.arange(len(order)), counts)
    sentence = np.repeat(text.documents[order] - (np.cumsum(counts) - counts), counts) + np.arange(len(document))
    begin, end = text.ends[sentence], text.ends[sentence + 1]
    parts = -(-(end - begin) // most)
    part = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
    begin, end = np.repeat(begin, parts) + part * most, np.repeat(end, parts)
    return begin, np.minimum(begin + most, end), np.repeat(document, parts)
