"""Sentences to pairs of segments, for next sentence prediction (the original's create_pretraining_data.py)."""

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np
from jaxtyping import Int

from bert_jax.instances.instances import Segments
from bert_jax.instances.sentences import Sentences

SPECIAL_TOKENS = 3
"""[CLS] first [SEP] second [SEP]."""
OTHER_DOCUMENT_TRIES = 10
"""Draws for a random document that isn't the first segment's."""
_DRAWS_AT_ONCE = 1 << 12


def pair_segments(
    text: Sentences, length: int, short_sequence_probability: float, rng: np.random.Generator
) -> Segments:
    """Every sentence of `text` in some pair of at most `length` - 3 tokens.

    Sentences of a document are gathered until a target length is reached; the first segment takes a random number of
    them; the second is the rest, or (half of the time, and always if there is no rest) sentences of another document,
    in which case the rest is gathered again. As the original does: the target is drawn once a document, and a random
    document may be the same one if ten draws give no other. Unlike there, it comes from the same chunk of text.
    He and Xu (2020), section 4, pair two sentences, cut so that they fill the length; BERT's code, and this, two runs
    of sentences, which may be shorter.
    """
    most = length - SPECIAL_TOKENS
    ends, documents = text.ends.tolist(), text.documents.tolist()
    pairs = []
    draws = _uniform(rng)
    for document in rng.permutation(len(documents) - 1).tolist():
        target = most
        if next(draws) < short_sequence_probability:
            target = 2 + int(next(draws) * (most - 1))
        begin, stop = documents[document], documents[document + 1]
        while begin < stop:
            end = _gather(ends, begin, stop, target)
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
    begin, end, cut = _truncate(columns[:, [0, 2]], columns[:, [1, 3]], most, rng)
    return Segments(begin.ravel(), end.ravel(), np.full(len(begin), 2), columns[:, 4], cut)


def _uniform(rng: np.random.Generator) -> Iterator[float]:
    """Endless numbers from [0, 1): drawn one by one they would cost more than all else here."""
    while True:
        yield from rng.random(_DRAWS_AT_ONCE).tolist()


def _gather(ends: list[int], begin: int, stop: int, target: int) -> int:
    """The sentence after those from `begin` that together reach `target` tokens: at least one, at most to `stop`."""
    return bisect_left(ends, ends[begin] + target, begin + 1, stop)


def _another(document: int, count: int, draws: Iterator[float]) -> int:
    for _ in range(OTHER_DOCUMENT_TRIES):
        other = int(next(draws) * count)
        if other != document:
            break
    return other


def _truncate(
    begin: Int[np.ndarray, "n 2"], end: Int[np.ndarray, "n 2"], most: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, "n 2"], Int[np.ndarray, "n 2"], int]:
    """Cuts pairs down to `most` tokens: each off the longer segment (the second if they are equal), at a random end.

    Token by token, that evens out the two and then takes turns, and each segment's share falls on its two ends by
    fair coins; here both are computed at once. Returns how many tokens went, too.
    """
    sizes = end - begin
    excess = np.maximum(sizes.sum(1) - most, 0)
    difference = sizes[:, 0] - sizes[:, 1]
    even = np.minimum(excess, np.abs(difference))
    from_first = (excess - even) // 2 + np.where(difference > 0, even, 0)
    tokens = np.stack([from_first, excess - from_first], axis=1)
    front = rng.binomial(tokens, 0.5)
    return begin + front, end - (tokens - front), int(excess.sum())
