"""Documents as piece ids: flat arrays instead of lists of lists."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int


class Sentences(NamedTuple):
    """N tokens in S sentences in D documents. No sentence and no document is empty."""

    tokens: Int[np.ndarray, " N"]
    """Piece ids of all sentences, one after the other."""
    ends: Int[np.ndarray, " S+1"]
    """Sentence s is tokens[ends[s]:ends[s + 1]]."""
    documents: Int[np.ndarray, " D+1"]
    """Document d is the sentences documents[d] to documents[d + 1]."""


def encode_documents(
    documents: Iterable[Sequence[str]], encode_batch: Callable[[Sequence[str]], list[list[int]]]
) -> Sentences:
    """Encodes every sentence of `documents` (lists of sentences); those without a piece are left out."""
    sentences, sizes = [], []
    for document in documents:
        sentences.extend(document)
        sizes.append(len(document))
    encoded = encode_batch(sentences)
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    tokens = np.fromiter((token for sentence in encoded for token in sentence), np.int32, int(lengths.sum()))
    # A document's end, counted in sentences that have pieces.
    kept_before = np.concatenate([[0], np.cumsum(lengths > 0)])
    bounds = kept_before[np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])]
    return Sentences(
        tokens,
        np.concatenate([[0], np.cumsum(lengths[lengths > 0])]),
        np.unique(bounds),
    )
