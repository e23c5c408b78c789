"""Cuts a text into the segments of its sequences, in pairs or without pairs."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from bert_jax.instances.sentences import Sentences

_ENDS = 2
"""Special tokens of a sequence besides the separators within a pair: [CLS], and [SEP] after the text."""
OTHER_DOCUMENT_TRIES = 10
"""Most draws of a random document that isn't the first segment's own."""
_DRAWS_AT_ONCE = 1 << 12
_Pair = tuple[int, int, int, int, int]
"""Begin and end of both segments, as indices of tokens, and the label."""


class Segments(NamedTuple):
    """n sequences with m segments in all; a segment is a non-empty range of a text's tokens."""

    begin: Int[np.ndarray, " m"]
    """Index of the first token of each segment, sequence after sequence."""
    end: Int[np.ndarray, " m"]
    """Index after the last token of each segment."""
    counts: Int[np.ndarray, " n"]
    """Number of segments of each sequence."""
    pair_label: Int[np.ndarray, " n"]
    """Label of a pair of segments: 0 if the second follows the first in the text; 1 if it was drawn at random or the
    two are swapped."""
    tokens_cut: int
    """Number of tokens that were removed to fit the length."""


def pair_segments(
    text: Sentences,
    length: int,
    short_sequence_probability: float,
    rng: np.random.Generator,
    separators: int = 1,
    ordered: bool = False,
) -> Segments:
    """Pairs up the sentences of `text`; each sentence is in some pair.

    A pair has at most `length` tokens, with [CLS], the `separators` between the segments, and [SEP].

    Sentences of a document are gathered until they reach a target length. The first segment takes a random number of
    them. The second segment takes the rest in half of the cases. In the other half, and if there is no rest, it takes
    sentences of a random other document; the rest is then gathered again. If `ordered`, the second segment is always
    the rest, and the two change places in half of the cases (Lan et al. 2020, section 3.1).

    As in the original BERT, the target length is drawn once per document, and the random document is the same one if
    ten draws give no other. Unlike in the original, the random document comes from the same chunk of text. He and Xu
    (2020), section 4, pair two single sentences, cut to fill the length; the original BERT and this function pair two
    runs of sentences, which may be shorter than the length.
    """
    most = length - _ENDS - separators
    ends, documents = text.ends.tolist(), text.documents.tolist()
    pairs: list[_Pair] = []
    draws = _uniform(rng)
    for document in rng.permutation(len(documents) - 1).tolist():
        target = most
        if next(draws) < short_sequence_probability:
            target = 2 + int(next(draws) * (most - 1))
        begin, stop = documents[document], documents[document + 1]
        while begin < stop:
            end = _gather(ends, begin, stop, target)
            if ordered:
                pairs += _ordered(ends, begin, end, draws)
                begin = end
                continue
            middle = begin + 1 + int(next(draws) * (end - begin - 1))
            first = ends[begin], ends[middle]
            if end - begin == 1 or next(draws) < 0.5:
                other = _another(document, len(documents) - 1, draws)
                start = documents[other] + int(next(draws) * (documents[other + 1] - documents[other]))
                until = _gather(ends, start, documents[other + 1], target - (first[1] - first[0]))
                pairs.append((*first, ends[start], ends[until], 1))
                begin = middle
            else:
                pairs.append((*first, ends[middle], ends[end], 0))
                begin = end
    columns = np.array(pairs, np.int64).reshape(-1, 5)
    begins, stops, cut = _truncate(columns[:, [0, 2]], columns[:, [1, 3]], most, rng)
    return Segments(begins.ravel(), stops.ravel(), np.full(len(pairs), 2), columns[:, 4], cut)


def _ordered(ends: list[int], begin: int, end: int, draws: Iterator[float]) -> list[_Pair]:
    """The sentences `begin` to `end` - 1 as two segments in text order or, in half of the cases, swapped.

    A single sentence is cut into two parts. (ALBERT's code pairs it with a segment of another document and calls that a
    swap.) A single token makes no pair.
    """
    places = range(ends[begin] + 1, ends[end]) if end - begin == 1 else ends[begin + 1 : end]
    if not places:
        return []
    middle = places[int(next(draws) * len(places))]
    if next(draws) < 0.5:
        return [(middle, ends[end], ends[begin], middle, 1)]
    return [(ends[begin], middle, middle, ends[end], 0)]


def _uniform(rng: np.random.Generator) -> Iterator[float]:
    """Yields uniform random numbers from [0, 1), drawn in blocks: single draws would dominate the running time."""
    while True:
        yield from rng.random(_DRAWS_AT_ONCE).tolist()


def _gather(ends: list[int], begin: int, stop: int, target: int) -> int:
    """The end of the shortest run of sentences from `begin` with `target` tokens, but `stop` at most."""
    return bisect_left(ends, ends[begin] + target, begin + 1, stop)


def _another(document: int, count: int, draws: Iterator[float]) -> int:
    """A random one of `count` documents, other than `document` if OTHER_DOCUMENT_TRIES draws give another."""
    for _ in range(OTHER_DOCUMENT_TRIES):
        other = int(next(draws) * count)
        if other != document:
            break
    return other


def _truncate(
    begin: Int[np.ndarray, "n 2"], end: Int[np.ndarray, "n 2"], most: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, "n 2"], Int[np.ndarray, "n 2"], int]:
    """Cuts each pair to `most` tokens; returns the new begins and ends, and the number of tokens removed.

    The original BERT removes one token at a time from the longer segment (the second if both are equally long), at a
    random end. This makes the segments equally long and then alternates between them, and fair coins divide the tokens
    of a segment between its two ends. This function computes the totals directly, with the same distribution.
    """
    sizes = end - begin
    excess = np.maximum(sizes.sum(1) - most, 0)
    difference = sizes[:, 0] - sizes[:, 1]
    even = np.minimum(excess, np.abs(difference))
    from_first = (excess - even) // 2 + np.where(difference > 0, even, 0)
    tokens = np.stack([from_first, excess - from_first], axis=1)
    front = rng.binomial(tokens, 0.5)
    return begin + front, end - (tokens - front), int(excess.sum())


def pack_sentences(
    text: Sentences,
    length: int,
    short_sequence_probability: float,
    rng: np.random.Generator,
    across_documents: bool = True,
    whole_sentences: bool = True,
) -> Segments:
    """Packs sentences into sequences of at most `length` tokens, each token of `text` exactly once.

    A sequence takes consecutive sentences while they fit. It continues in the next document after a [SEP]; its part of
    each document is a segment. Without `across_documents`, it ends with its document (DOC-SENTENCES of Liu et al. 2019,
    section 4.2). Documents are in random order. A sentence longer than a sequence is cut into parts, which count as
    sentences. Without `whole_sentences`, each token counts as a sentence, so that sequences are full. They lack at most
    one token, since continuing in the next document takes two: a [SEP] and a token. With probability
    `short_sequence_probability` a sequence has a random shorter target length, but takes at least one sentence.
    """
    most = length - _ENDS
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
