"""Baselines that compare the words of texts alone: tf-idf and BM25."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from bert_jax.batching.grouping import windows
from bert_jax.finetuning.retrieval import Retrieval, ranked, retrieval_metrics, similarity_metrics
from bert_jax.records.signatures import word_hashes

_SATURATION, _LENGTH_SHARE = 1.2, 0.75
"""k1 and b of BM25, as Lucene has them."""
_CHARACTERS_AT_ONCE = 1_000_000
"""Characters whose words are hashed at once; each takes about 50 bytes meanwhile."""
Matrix = Any
"""A sparse array of scipy with a row for each text and a column for each word."""


def retrieval_baselines(rows: Retrieval) -> dict[str, dict[str, float]]:
    """The metrics of `retrieval_metrics` for `tf-idf` and `BM25`; how rare a word is follows from the candidates."""
    counts = _word_counts([*rows.queries, *rows.candidates])
    queries, candidates = counts[: len(rows.queries)], counts[len(rows.queries) :]
    vectors = {"tf-idf": _tf_idf(candidates, queries, candidates), "BM25": (queries, _bm25_weights(candidates))}
    return {
        name: retrieval_metrics(ranked(ours, theirs, rows.relevant, rows.own))
        for name, (ours, theirs) in vectors.items()
    }


def similarity_baselines(pairs: Sequence[tuple[str, str]], scores: Sequence[float]) -> dict[str, dict[str, float]]:
    """The metrics of `similarity_metrics` for `tf-idf` and `BM25`; how rare a word is follows from all texts.

    BM25 compares a query with a document; here each text is both in turn, and the two scores are added.
    """
    firsts, seconds = zip(*pairs, strict=True)
    counts = _word_counts([*firsts, *seconds])
    weights = _bm25_weights(counts)
    size = len(pairs)
    vectors = _tf_idf(counts, counts[:size], counts[size:])
    found = {
        "tf-idf": _products(*vectors),
        "BM25": _products(counts[:size], weights[size:]) + _products(counts[size:], weights[:size]),
    }
    return {name: similarity_metrics(scores, values) for name, values in found.items()}


def _word_counts(texts: Sequence[str]) -> Matrix:
    """How often each word occurs in each text. In scripts without spaces each character is a word."""
    from scipy.sparse import csr_array

    hashes, sizes = [], []
    for some in windows(texts, len, _CHARACTERS_AT_ONCE):
        words, ends = word_hashes(some)
        hashes.append(words)
        sizes.append(np.diff(ends))
    columns = np.unique(np.concatenate(hashes), return_inverse=True)[1]
    rows = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    counts = csr_array((np.ones(len(columns)), columns, rows))
    counts.sum_duplicates()
    return counts


def _tf_idf(known: Matrix, *counts: Matrix) -> tuple[Matrix, ...]:
    """The normalised tf-idf vectors of `counts`, as scikit-learn weights words by how many texts of `known` have
    them."""
    from sklearn.feature_extraction.text import TfidfTransformer

    weigh = TfidfTransformer().fit(known)
    return tuple(weigh.transform(some) for some in counts)


def _bm25_weights(counts: Matrix) -> Matrix:
    """The weights of the words of documents: BM25's score is their product with the counts of a query's words.

    Robertson et al. 1994 with the idf of Lucene, which is never negative.
    """
    texts = counts.shape[0]
    having = np.bincount(counts.indices, minlength=counts.shape[1])
    rarity = np.log1p((texts - having + 0.5) / (having + 0.5))
    lengths = counts.sum(axis=1)
    limits = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * lengths / lengths.mean())
    weights = counts.copy()
    weights.data = rarity[counts.indices] * counts.data / (counts.data + np.repeat(limits, np.diff(counts.indptr)))
    return weights


def _products(ours: Matrix, theirs: Matrix) -> Float[np.ndarray, " N"]:
    """The product of each row with the same row of another matrix."""
    return np.asarray(ours.multiply(theirs).sum(axis=1)).ravel()
