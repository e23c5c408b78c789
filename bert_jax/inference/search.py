"""Exact search of texts by the cosines of their vectors: a matrix product with each block of the corpus."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from bert_jax.batching.grouping import ahead
from bert_jax.finetuning.dataset import say_repairs
from bert_jax.inference.batches import Text
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.search_corpus import ROWS_IN_BLOCK, Block, SearchCorpus
from bert_jax.model.vectors import normalised
from bert_jax.system.errors import Setting, UsageError, quoted

_QUERIES_AT_ONCE = 256
"""Number of queries whose scores of a block are in memory at once."""
_DECIMALS = 6
"""Decimals of a score. Equal texts may differ by less than this, because of rounding in float32."""


class Hit(NamedTuple):
    """A text of a corpus, with its score for a query."""

    row: int
    """Its number in the corpus, from 1: the line of a file of lines, the row of a table or of a .npz file."""
    score: float
    """Cosine of its vector and the query's, from -1 to 1, rounded to 6 decimals."""
    text: Text | None
    """None if the corpus has vectors alone."""


def search(
    embedder: Embedder,
    queries: Sequence[Any],
    corpus: SearchCorpus,
    top: int = 10,
    width: int | None = None,
    on_rows_read: Callable[[int], None] = lambda rows: None,
) -> list[list[Hit]]:
    """For each query the `top` rows of the corpus with the highest scores, or all of a smaller corpus.

    Rows of equal scores are in the order of the corpus, and equal texts are all returned. Memory doesn't grow with the
    corpus. `width`: the first components of each vector that are compared; None: all. `on_rows_read` is called
    with the number of rows that were read since the last call.

    Raises UsageError for an empty query, for a `top` below 1, for a corpus without text, and as `SearchCorpus.blocks`.
    """
    _check(queries, top)
    blocks = corpus.blocks(embedder, width)
    best = _BestRows(
        np.stack([feature.vectors for feature in embedder.features(queries, width, role="query")]), top, corpus.name
    )
    # A single worker thread searches the blocks in order while this thread reads the next one.
    read = 0
    for block, _ in ahead(best.add, blocks, threads=1):
        if block.rows:
            on_rows_read(block.rows[-1] - read)
            read = block.rows[-1]
    say_repairs(corpus.texts_from, corpus.repairs)
    if not best.hits[0]:
        raise UsageError(f"{corpus.name} has nothing to search; give a corpus with texts")
    return best.hits


def _check(queries: Sequence[Any], top: int) -> None:
    """Raises UsageError for an empty query, or none, and for a `top` below 1."""
    if top < 1:
        raise UsageError(f"{Setting('top', top)} was given; it must be 1 or more")
    if not queries:
        raise UsageError("there is no query; give a text to search for")
    for query in queries:
        if not isinstance(query, str):
            raise UsageError(f"the query {quoted(query)} is no text; give some words")
        if not query.strip():
            raise UsageError("the query is empty; give some words")


class _BestRows:
    """The best rows so far for each query."""

    def __init__(self, queries: Float[np.ndarray, "Q W"], top: int, corpus: str):
        if not np.isfinite(queries).all():
            raise UsageError("the model gives vectors that aren't finite, so its training diverged; give another step")
        self._queries, self._top, self._corpus = queries, top, corpus
        self._least = np.full(len(queries), -np.inf, np.float32)
        """Score that a later row must exceed."""
        self.hits: list[list[Hit]] = [[] for _ in queries]
        """The best rows for each query, best first."""

    def add(self, block: Block) -> None:
        """Compares the next rows with every query. Raises UsageError if a vector isn't finite."""
        count = len(block.rows)
        # All blocks have one shape, so that JAX compiles once.
        vectors = np.pad(block.vectors, ((0, ROWS_IN_BLOCK - count), (0, 0)))
        for begin in range(0, len(self._queries), _QUERIES_AT_ONCE):
            here = slice(begin, begin + _QUERIES_AT_ONCE)
            exact, finite = (np.asarray(each)[:count] for each in _scores(self._queries[here], vectors))
            if not finite.all():
                row = block.rows[int(np.argmin(finite))]
                raise UsageError(
                    f"{self._corpus}: the vector of row {row:,} has a number that isn't finite, or a very large one; "
                    "write the vectors again"
                )
            scores = np.round(exact, _DECIMALS)
            better = scores > self._least[here]
            for number in np.flatnonzero(better.any(axis=0)).tolist():
                self._merge(block, begin + number, np.flatnonzero(better[:, number]), scores[:, number])

    def _merge(self, block: Block, query: int, places: np.ndarray, scores: np.ndarray) -> None:
        """Adds the rows at `places` of a block, in ascending order, to the best ones of a query."""
        # Stable sorting keeps rows of equal scores in their order.
        places = places[np.argsort(-scores[places], kind="stable")[: self._top]]
        found = [
            Hit(block.rows[place], round(float(scores[place]), _DECIMALS), block.texts[place] if block.texts else None)
            for place in places.tolist()
        ]
        best = sorted([*self.hits[query], *found], key=lambda hit: -hit.score)[: self._top]
        self.hits[query] = best
        if len(best) == self._top:
            self._least[query] = best[-1].score


@jax.jit
def _scores(
    queries: Float[Array, "Q W"], vectors: Float[Array, "N D"]
) -> tuple[Float[Array, "N Q"], Bool[Array, " N"]]:
    """The cosine of each vector's first W components and each normalised query, and whether the vector is finite."""
    cut = vectors[:, : queries.shape[1]]
    scores = jnp.matmul(normalised(cut), queries.T, precision=jax.lax.Precision.HIGHEST)
    return scores, jnp.isfinite(jnp.sum(jnp.square(cut), axis=-1))
