"""Packs sentences into sequences without segment pairs (FULL-SENTENCES of Liu et al. 2019, section 4.2)."""

from bisect import bisect_right

import numpy as np
from jaxtyping import Int

from bert_jax.instances.instances import Segments
from bert_jax.instances.sentences import Sentences

SPECIAL_TOKENS = 2
"""Special tokens per sequence: [CLS] sentences [SEP]."""


def pack_sentences(
    text: Sentences,
    length: int,
    short_sequence_probability: float,
    rng: np.random.Generator,
    across_documents: bool = True,
    whole_sentences: bool = True,
) -> Segments:
    """Packs sentences into sequences of at most `length` tokens, each token of `text` exactly once.

    A sequence takes consecutive sentences while they fit, and continues in the next document after a [SEP]; the part
    of each document is a segment. Unless `across_documents`, it ends with its document (DOC-SENTENCES of the same
    section). Documents are in random order. A sentence longer than a sequence is cut into parts, which count as
    sentences. Unless `whole_sentences`, each token counts as one, so that sequences are full (but for one token where
    the next document would need two: a [SEP] and its first). With probability `short_sequence_probability` a sequence
    has a random shorter target length, but takes at least one sentence.
    """
    most = length - SPECIAL_TOKENS
    order = rng.permutation(len(text.documents) - 1)
    begin, end, document = _pieces(text, order, most if whole_sentences else 1)
    # End offset of each sentence if all were concatenated with a [SEP] between documents.
    ends = np.cumsum(end - begin) + document
    starts = ends - (end - begin)
    targets = np.where(
        rng.random(len(ends)) < short_sequence_probability, rng.integers(1, most, len(ends), endpoint=True), most
    )
    stops = np.full(len(ends), len(ends)) if across_documents else np.searchsorted(document, document, side="right")
    firsts, first = [], 0
    while first < len(ends):
        firsts.append(first)
        first = bisect_right(ends, starts[first] + targets[len(firsts) - 1], first + 1, stops[first])
    # A segment begins at the start of each sequence and of each document.
    heads = np.union1d(firsts, np.flatnonzero(np.diff(document, prepend=-1))).astype(np.int64)
    tails = np.append(heads[1:], len(ends))[: len(heads)] - 1
    counts = np.bincount(np.searchsorted(firsts, heads, side="right") - 1, minlength=len(firsts))
    return Segments(begin[heads], end[tails], counts, np.zeros(len(firsts), np.int64), 0)


def _pieces(
    text: Sentences, order: Int[np.ndarray, " D"], most: int
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Begin token, end token and document (its position in `order`) of each sentence, cut to parts of `most` tokens."""
    counts = np.diff(text.documents)[order]
    document = np.repeat(np.arange(len(order)), counts)
    sentence = np.repeat(text.documents[order] - (np.cumsum(counts) - counts), counts) + np.arange(len(document))
    begin, end = text.ends[sentence], text.ends[sentence + 1]
    parts = -(-(end - begin) // most)
    part = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
    begin, end = np.repeat(begin, parts) + part * most, np.repeat(end, parts)
    return begin, np.minimum(begin + most, end), np.repeat(document, parts)
