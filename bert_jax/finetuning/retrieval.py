"""How well vectors of texts find the texts that belong to a query, and how well they order pairs with scores.

Judged documents are measured as trec_eval measures them. The baselines tf-idf and BM25 compare words alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num, UInt64

from bert_jax.batching.grouping import windows
from bert_jax.finetuning.metrics import number_metrics
from bert_jax.finetuning.task import MOST_ERRORS, mistake_of
from bert_jax.records.signatures import word_hashes
from bert_jax.run.results import Mistake
from bert_jax.system.errors import check_installed

_SCORES_AT_ONCE = 1 << 22
"""Scores of queries and candidates that are in memory at once. The candidates of one query may be more."""
_TIE = 1e-6
"""Scores that differ by less are equal. A float32 product rounds equal texts differently at different positions."""
_FIRST = 10
"""Number of ranks that are measured."""
_DISCOUNTS = 1 / np.log2(np.arange(2, _FIRST + 2))
"""What a gain counts at each of the first ranks."""
RANKED = 100
"""Number of ranks of judged documents that recall is measured at."""
DOCUMENTS_AT_ONCE = 2048
"""Judged texts whose vectors or scores are in memory at once."""
_SATURATION, _LENGTH_SHARE = 1.2, 0.75
"""The parameters k1 and b of BM25, with Lucene's values."""
_CHARACTERS_AT_ONCE = 1_000_000
"""Characters whose words are hashed at once, in about 50 bytes of memory for each character."""
Matrix = Any
"""A sparse array of scipy with a row for each text and a column for each word."""


class Retrieval(NamedTuple):
    """Queries and the texts that are searched, each text once."""

    queries: list[str]
    candidates: list[str]
    relevant: list[list[int]]
    """For each query, the numbers of the candidates that belong to it, at least one."""
    query_copies: list[int]
    """For each query, the number of the candidate that has its text without belonging to it. This candidate is left out
    of the query's ranking. -1: there is none."""


class Ranking(NamedTuple):
    """The ranks of the candidates that belong to each query."""

    ranks: list[Int[np.ndarray, " _"]]
    """For each query, the ranks, from 1, of the best ten candidates that belong to it, in ascending order."""
    relevant: Int[np.ndarray, " Q"]
    """For each query, how many candidates belong to it."""
    best_right: Int[np.ndarray, " Q"]
    """For each query, the best candidate that belongs to it."""
    best_wrong: Int[np.ndarray, " Q"]
    """For each query, the best candidate that doesn't belong to it. The number is meaningless if all other
    candidates belong to it."""


def retrieval_of(pairs: Iterable[tuple[str, str]]) -> Retrieval:
    """The queries and candidates of (query, positive) pairs. The positives of all pairs with the same query belong to
    it, and the candidates are the positives of all pairs."""
    queries: dict[str, list[int]] = {}
    candidates: dict[str, int] = {}
    for query, positive in pairs:
        number = candidates.setdefault(positive, len(candidates))
        of_query = queries.setdefault(query, [])
        if number not in of_query:
            of_query.append(number)
    own = [candidates.get(query, -1) for query in queries]
    own = [-1 if number in relevant else number for number, relevant in zip(own, queries.values(), strict=True)]
    return Retrieval(list(queries), list(candidates), list(queries.values()), own)


def ranked(
    queries: Num[Any, "Q D"],
    candidates: Num[Any, "C D"],
    relevant: Sequence[Sequence[int]],
    query_copies: Sequence[int] | None = None,
) -> Ranking:
    """Ranks all candidates for each query by the product of their vectors, which are arrays or scipy's sparse arrays.

    If scores are equal or not a number, candidates that don't belong to the query rank before those that do. A model
    with the same vector for every text thus finds nothing. `relevant` and `query_copies` are defined in
    `Retrieval`; without `query_copies`, no candidate is left out. In bounded memory, only some queries are compared
    with all candidates at once.
    """
    block = max(_SCORES_AT_ONCE // candidates.shape[0], 1)
    ranks, best_right, best_wrong = [], [], []
    for begin in range(0, queries.shape[0], block):
        scores = queries[begin : begin + block] @ candidates.T
        scores = np.asarray(scores if isinstance(scores, np.ndarray) else scores.toarray())
        for number, row in enumerate(scores, begin):
            right = np.asarray(relevant[number])
            order = np.argsort(-row[right], kind="stable")[:_FIRST]
            best = row[right[order]]
            row[right] = -np.inf
            if query_copies is not None and query_copies[number] >= 0:
                row[query_copies[number]] = -np.inf
            before = [np.count_nonzero(~(row <= score - _TIE)) for score in best]  # also counts NaN
            ranks.append(np.sort(before + np.arange(1, len(best) + 1)))
            best_right.append(right[order[0]])
            best_wrong.append(row.argmax())
    sizes = np.array([len(numbers) for numbers in relevant], int)
    return Ranking(ranks, sizes, np.array(best_right, int), np.array(best_wrong, int))


def retrieval_metrics(ranking: Ranking) -> dict[str, float]:
    """Means over the queries of `ndcg@10`, `recall@1` and `recall@10`.

    In `ndcg@10`, each candidate that belongs to the query has a gain of 1. `recall@k` is the number of the query's
    candidates among the first k, divided by the number of all of them or by k, whichever is less. The values equal
    pytrec_eval's, except `recall@k` of a query with more than k candidates, whose best value is 1 here.
    """
    ndcg: list[float] = []
    recall: dict[int, list[float]] = {1: [], _FIRST: []}
    for ranks, size in zip(ranking.ranks, ranking.relevant, strict=True):
        gains = np.isin(np.arange(1, _FIRST + 1), ranks).astype(float)
        ndcg.append(_ndcg(gains, np.ones(size)))
        for first, shares in recall.items():
            shares.append(np.count_nonzero(ranks <= first) / min(size, first))
    return {
        f"ndcg@{_FIRST}": float(np.mean(ndcg)),
        **{f"recall@{first}": float(np.mean(shares)) for first, shares in recall.items()},
    }


def _ndcg(gains: Float[np.ndarray, " N"], ideal: Float[np.ndarray, " M"]) -> float:
    """Normalized discounted cumulative gain of the first ten of N ranked documents. `ideal`: the gains of the M
    relevant ones, greatest first."""
    dcg, best = (values[:_FIRST] @ _DISCOUNTS[: len(values)] for values in (gains, ideal))
    return float(dcg / best)


class BestDocuments:
    """For each query, the documents with the highest scores in float32. Among equal scores, greater keys rank first."""

    def __init__(self, queries: int, most: int):
        """`queries`: the number of queries. `most`: the number of documents that are kept for each query."""
        self.ranked: list[list[tuple[float, Any]]] = [[] for _ in range(queries)]
        """For each query, the scores and keys of its best documents so far, the best first."""
        self._most, self._least = most, np.full(queries, np.finfo(np.float32).min)
        """`_least`: the score that a later document must reach."""

    def add(self, keys: Sequence[Any], scores: Num[np.ndarray, "Q N"]) -> None:
        """Ranks the next N documents. A document whose score is not a number, or minus infinity, is never ranked."""
        scores = scores.astype(np.float32)
        good = scores >= self._least[:, None]
        for query in np.flatnonzero(good.any(axis=1)).tolist():
            places = np.flatnonzero(good[query]).tolist()
            found = zip(scores[query, places].tolist(), [keys[place] for place in places], strict=True)
            self.ranked[query] = best = nlargest(self._most, [*self.ranked[query], *found])
            if len(best) == self._most:
                self._least[query] = best[-1][0]


def judged_metrics(rankings: Sequence[Sequence[str]], judgments: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Means over the queries of `ndcg@10`, `recall@100` and `mrr@10`.

    They are trec_eval's ndcg_cut_10 (the gain is the grade), recall_100, and recip_rank of the first ten. `rankings`:
    the names of each query's documents, the best first. `judgments`: the grades of documents by name; those above 0 are
    relevant. A query without a relevant document has 0 in each.
    """
    sums = np.zeros(3)
    for names, grades in zip(rankings, judgments, strict=True):
        gains = np.array([max(grades.get(name, 0), 0) for name in names[:RANKED]], float)
        ideal = np.array(sorted((grade for grade in grades.values() if grade > 0), reverse=True), float)
        if len(ideal):
            first = np.flatnonzero(gains[:_FIRST])[:1]
            sums += _ndcg(gains, ideal), np.count_nonzero(gains) / len(ideal), (1 / (first + 1)).sum()
    means = (sums / len(judgments)).tolist()
    return dict(zip((f"ndcg@{_FIRST}", f"recall@{RANKED}", f"mrr@{_FIRST}"), means, strict=True))


def similarity_metrics(scores: Sequence[float], cosines: Float[np.ndarray, " N"]) -> dict[str, float]:
    """`spearman` and `pearson` correlations of N pairs' scores with their cosines.

    They are 0 if all scores or all cosines are equal, or if a cosine is not a number.
    """
    if not np.isfinite(cosines).all():
        return {"spearman": 0.0, "pearson": 0.0}
    correlations = number_metrics(list(scores), [float(cosine) for cosine in cosines])
    return {name: correlations[name] for name in ("spearman", "pearson")}


def retrieval_errors(rows: Retrieval, ranking: Ranking) -> list[Mistake]:
    """The worst ten of the queries for which a wrong candidate is ranked first.

    A mistake has the query's text, the best right candidate with its rank as `right`, and the candidate that is ranked
    first as `predicted`.
    """
    first = np.array([ranks[0] for ranks in ranking.ranks])
    worst = [number for number in np.argsort(-first, kind="stable")[:MOST_ERRORS] if first[number] > 1]
    return [
        mistake_of(
            rows.queries[number],
            f"rank {first[number]:,}: {rows.candidates[ranking.best_right[number]]}",
            rows.candidates[ranking.best_wrong[number]],
        )
        for number in worst
    ]


def similarity_errors(
    pairs: Sequence[tuple[str, str]], scores: Sequence[float], cosines: Float[np.ndarray, " N"]
) -> list[Mistake]:
    """The ten of N pairs whose rank by cosine differs most from their rank by score.

    A mistake has the pair's texts, the score as `right`, and the cosine as `predicted`, each with the share of pairs
    below it.
    """
    right, predicted = _shares_below(np.asarray(scores, float)), _shares_below(np.asarray(cosines, float))
    distances = np.abs(right - predicted)
    worst = [number for number in np.argsort(-distances, kind="stable")[:MOST_ERRORS] if distances[number] > 0]
    return [
        mistake_of(
            " | ".join(pairs[number]),
            f"score {scores[number]:g}, above {right[number]:.0%} of the pairs",
            f"cosine {cosines[number]:.3f}, above {predicted[number]:.0%}",
        )
        for number in worst
    ]


def _shares_below(values: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """For each value, the share of all values below it. Equal values count half, as in mean ranks."""
    ordered = np.sort(values)
    below = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") - 1
    return below / (2 * max(len(values) - 1, 1))


def retrieval_baselines(rows: Retrieval) -> dict[str, dict[str, float]]:
    """The metrics of `retrieval_metrics` for `tf-idf` and `BM25`. The candidates determine how rare a word is."""
    texts = [*rows.queries, *rows.candidates]
    counts = _word_counts(texts, _all_words(texts))
    queries, candidates = counts[: len(rows.queries)], counts[len(rows.queries) :]
    vectors = {"tf-idf": _tf_idf(candidates, queries, candidates), "BM25": (queries, _bm25_weights(candidates))}
    return {
        name: retrieval_metrics(ranked(first, second, rows.relevant, rows.query_copies))
        for name, (first, second) in vectors.items()
    }


def similarity_baselines(pairs: Sequence[tuple[str, str]], scores: Sequence[float]) -> dict[str, dict[str, float]]:
    """The metrics of `similarity_metrics` for `tf-idf` and `BM25`. All texts determine how rare a word is.

    BM25 compares a query with a document. Here each text is the query in turn, and the two scores are added.
    """
    firsts, seconds = zip(*pairs, strict=True)
    counts = _word_counts([*firsts, *seconds], _all_words([*firsts, *seconds]))
    weights, size = _bm25_weights(counts), len(pairs)
    similarities = {
        "tf-idf": _products(*_tf_idf(counts, counts[:size], counts[size:])),
        "BM25": _products(counts[:size], weights[size:]) + _products(counts[size:], weights[:size]),
    }
    return {name: similarity_metrics(scores, values) for name, values in similarities.items()}


def bm25_scores(queries: Sequence[str], documents: Iterable[str]) -> Iterator[Float[np.ndarray, "Q N"]]:
    """Yields the BM25 scores of all queries for a block of documents at a time, in order; minus infinity for a query
    and a document without a common word.

    Memory holds 12 bytes for each different word of the queries in each document. Raises UsageError if scipy isn't
    installed.
    """
    check_installed("BM25 is computed by scipy", "scipy", "tasks")
    words = _all_words(queries)
    of_queries, weights = _word_counts(queries, words), _bm25_weights(_word_counts(documents, words))
    for begin in range(0, weights.shape[0], DOCUMENTS_AT_ONCE):
        scores = (of_queries @ weights[begin : begin + DOCUMENTS_AT_ONCE].T).toarray()
        yield np.where(scores > 0, scores, -np.inf)


def _all_words(texts: Iterable[str]) -> UInt64[np.ndarray, " W"]:
    """The hash of each different word, in ascending order."""
    return np.unique(np.concatenate([word_hashes(some)[0] for some in windows(texts, len, _CHARACTERS_AT_ONCE)]))


def _word_counts(texts: Iterable[str], known: UInt64[np.ndarray, " W"]) -> Matrix:
    """How often each of the `known` words occurs in each text; one more column counts all other words together.

    In scripts without spaces each character counts as a word.
    """
    from scipy.sparse import csr_array, vstack

    counts = []
    for some in windows(texts, len, _CHARACTERS_AT_ONCE):
        words, ends = word_hashes(some)
        columns = np.searchsorted(known, words)
        columns[known[columns.clip(max=len(known) - 1)] != words] = len(known)
        counts.append(csr_array((np.ones(len(words)), columns, ends), (len(some), len(known) + 1)))
        counts[-1].sum_duplicates()
    return vstack(counts, "csr")


def _tf_idf(known: Matrix, *counts: Matrix) -> tuple[Matrix, ...]:
    """The normalised tf-idf vectors of `counts`, with scikit-learn's weights.

    `known` has the texts that determine how rare a word is.
    """
    from sklearn.feature_extraction.text import TfidfTransformer

    weigh = TfidfTransformer().fit(known)
    return tuple(weigh.transform(some) for some in counts)


def _bm25_weights(counts: Matrix) -> Matrix:
    """The weights of the words in documents. BM25's score is their product with the counts of a query's words.

    The formula is that of Robertson et al. 1994, with Lucene's idf, which is never negative.
    """
    texts = counts.shape[0]
    having = np.bincount(counts.indices, minlength=counts.shape[1])
    rarity = np.log1p((texts - having + 0.5) / (having + 0.5))
    lengths = counts.sum(axis=1)
    limits = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * lengths / lengths.mean())
    weights = counts.copy()
    weights.data = rarity[counts.indices] * counts.data / (counts.data + np.repeat(limits, np.diff(counts.indptr)))
    return weights


def _products(first: Matrix, second: Matrix) -> Float[np.ndarray, " N"]:
    """The product of each row of `first` with the same row of `second`."""
    return np.asarray(first.multiply(second).sum(axis=1)).ravel()
