"""Exact search of texts by the cosines of their vectors: a matrix product with each block of the corpus."""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from bert_jax.batching.grouping import ahead
from bert_jax.finetuning.dataset import say_repairs
from bert_jax.finetuning.judged_texts import JudgedTexts
from bert_jax.finetuning.retrieval import DOCUMENTS_AT_ONCE, BestDocuments
from bert_jax.inference.batches import Text
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.feature_files import name_of, read_texts
from bert_jax.inference.features import check_count
from bert_jax.inference.vector_file import VectorFile, check_origin
from bert_jax.model.task import normalised
from bert_jax.records.python_values import Texts, python_texts
from bert_jax.run.results import Results
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.progress import stage

ROWS_IN_BLOCK = 2048
"""Maximum rows in a block, chosen so that its vectors fit a CPU's cache."""
_EMPTY = "empty texts left out"
_ROLE = "document"
"""Role of the texts that are searched."""
_QUERIES_AT_ONCE = 256
"""Number of queries whose scores of a block are in memory at once."""
_DECIMALS = 6
"""Decimals of a score. Equal texts may differ by less than this, because of rounding in float32."""


def judged_results(embedder: Embedder, judged: JudgedTexts) -> Results:
    """How well a model's vectors find judged texts in their corpus. Shows progress."""
    with stage("search", len(judged.documents), "documents") as progress_bar:
        results = judged.measure(
            lambda texts, role: (vectors for _, vectors in embedder.batches(texts, None, DOCUMENTS_AT_ONCE, role)),
            embedder.widths,
            progress_bar.advance,
        )
    return results.updated({"task": judged.name})


class CorpusBlock(NamedTuple):
    """Rows of a corpus that are searched together; empty texts are left out."""

    rows: Sequence[int]
    """The rows' numbers in the corpus, from 1, ascending."""
    vectors: Float[np.ndarray, "N D"]
    texts: Sequence[Text] | None
    """None if the corpus has vectors alone."""
    ids: Sequence[str] | None = None
    """The rows' ids; None if the corpus has vectors alone."""


class SearchCorpus:
    """A corpus that is read once, in bounded memory."""

    def __init__(
        self, source: str | os.PathLike | Texts, columns: Sequence[str] = (), lines: str | os.PathLike | None = None
    ):
        """`source`: texts or pairs; a file with a text on each line; a table with texts or pairs in one or two
        `columns`; or a .npz file of vectors, for which `lines` names the file with the texts of these vectors, in the
        same order.

        Raises UsageError if the arguments don't fit each other, or if a .npz file has no vectors of texts.
        """
        file = os.fspath(source) if isinstance(source, str | os.PathLike) else None
        self.name = name_of(file) if file else "the corpus"
        """The corpus' file, or "the corpus", for messages."""
        self.texts_from = self.name if lines is None else name_of(os.fspath(lines))
        """The file of the corpus' texts, for messages."""
        self.repairs = Counter[str]()
        """What was mended or left out, with counts."""
        self._vectors, self._texts, self._ids = None, None, deque[str]()
        if file is not None and file.endswith(".npz"):
            self._vectors = VectorFile(place_of(file))
            if lines is not None:
                self._texts = read_texts(os.fspath(lines), tuple(columns), self.repairs, self._ids)
            elif columns:
                raise UsageError(
                    f"{self.name} has no columns of texts; add {Setting('lines', 'FILE')}, the file that has them"
                )
        elif lines is not None:
            raise UsageError(
                f"{self.name} has texts itself, and {Setting('lines', lines)} is for a .npz file; leave it out"
            )
        elif file is not None:
            self._texts = read_texts(file, tuple(columns), self.repairs, self._ids)
        else:
            if len(columns) > 2:
                raise UsageError(f"columns={list(columns)} are {len(columns)}; give one, or a pair's two")
            self._texts = python_texts(source, "search", columns=tuple(columns), ids=self._ids)

    @property
    def size(self) -> int | None:
        """Number of rows; None if it is known only after all are read."""
        return self._vectors.rows if self._vectors else None

    def blocks(self, embedder: Embedder, width: int | None) -> Iterator[CorpusBlock]:
        """Yields the corpus in order, with vectors of at least `width` components (None: the model's width).

        Empty texts are counted in `repairs`. Raises UsageError at once for vectors of another model or width, and later
        for files that can't be read, and for vectors and texts of different number.
        """
        if self._vectors is None:
            return self._embedded(embedder, width)
        check_origin(self.name, self._vectors.origin, embedder.origin(embedder.choice(width), embedder.prompt(_ROLE)))
        has = self._vectors.width
        if has not in (width, embedder.width):
            remedy = f"search with {Setting('width', has)}, or " if has < embedder.width and width is None else ""
            raise UsageError(
                f"{self.name} has vectors of {has} numbers, and those of this search have {width or embedder.width}; "
                f"{remedy}give a file that bert-jax features wrote with this run"
            )
        return self._stored(self._vectors)

    def _embedded(self, embedder: Embedder, width: int | None) -> Iterator[CorpusBlock]:
        rows, ids = deque[int](), deque[str]()

        def nonempty() -> Iterator[Text]:
            for row, text in enumerate(self._texts or (), 1):
                name = self._ids.popleft() if self._ids else ""
                if _is_empty(text):
                    self.repairs[_EMPTY] += 1
                else:
                    rows.append(row)
                    ids.append(name)
                    yield text

        for texts, vectors in embedder.batches(nonempty(), width, ROWS_IN_BLOCK, _ROLE):
            yield CorpusBlock([rows.popleft() for _ in texts], vectors, texts, [ids.popleft() for _ in texts])

    def _stored(self, file: VectorFile) -> Iterator[CorpusBlock]:
        begin = 1
        for vectors in file.blocks(ROWS_IN_BLOCK):
            rows = range(begin, begin + len(vectors))
            begin += len(vectors)
            if self._texts is None:
                yield CorpusBlock(rows, vectors, None)
                continue
            texts = list(islice(self._texts, len(vectors)))
            ids = [self._ids.popleft() if self._ids else "" for _ in texts]
            if len(texts) < len(vectors):
                raise self._unequal(f"only {rows[0] - 1 + len(texts):,}")
            filled = [place for place, text in enumerate(texts) if not _is_empty(text)]
            self.repairs[_EMPTY] += len(texts) - len(filled)
            kept = [(rows[place], texts[place], ids[place]) for place in filled]
            yield CorpusBlock(
                [row for row, _, _ in kept], vectors[filled], [text for _, text, _ in kept], [name for *_, name in kept]
            )
        if self._texts is not None and next(self._texts, None) is not None:
            raise self._unequal("more")

    def _unequal(self, texts: str) -> UsageError:
        return UsageError(
            f"{self.name} has {self.size:,} vectors and {self.texts_from} has {texts} texts; give the file "
            "that the vectors were computed of"
        )


def _is_empty(text: Text) -> bool:
    """Whether a text, or each text of a pair, has no character but spaces."""
    parts = (text,) if isinstance(text, str) else text
    return not any(part.strip() for part in parts)


class Hit(NamedTuple):
    """A text of a corpus, with its score for a query."""

    row: int
    """Its number in the corpus, from 1: the line of a file of lines, the row of a table or of a .npz file."""
    score: float
    """Cosine of its vector and the query's, from -1 to 1, rounded to 6 decimals."""
    text: Text | None
    """None if the corpus has vectors alone."""
    id: str = ""
    """The value of its column `_id` or `id`; "" if the corpus has none."""


def search(
    embedder: Embedder,
    queries: Sequence[str],
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


def _check(queries: Sequence[str], top: int) -> None:
    """Raises UsageError for an empty query, or none, and for a `top` below 1."""
    check_count("top", top)
    if not queries:
        raise UsageError("there is no query; give a text to search for")
    for number, query in enumerate(queries, 1):
        if not query.strip():
            which = f"query {number}" if len(queries) > 1 else "the query"
            raise UsageError(f"{which} is empty; give some words")


class _BestRows:
    """The best rows so far for each query."""

    def __init__(self, queries: Float[np.ndarray, "Q W"], top: int, corpus: str):
        if not np.isfinite(queries).all():
            raise UsageError("the model gives vectors that aren't finite, so its training diverged; give another step")
        begins = range(0, len(queries), _QUERIES_AT_ONCE)
        self._queries = [queries[begin : begin + _QUERIES_AT_ONCE] for begin in begins]
        self._best = [BestDocuments(len(some), top) for some in self._queries]
        self._corpus = corpus

    @property
    def hits(self) -> list[list[Hit]]:
        """The best rows for each query, best first."""
        ranked = [each for best in self._best for each in best.ranked]
        return [
            [Hit(-row, round(score, _DECIMALS), text, name) for score, (row, text, name) in each] for each in ranked
        ]

    def add(self, block: CorpusBlock) -> None:
        """Compares the next rows with every query. Raises UsageError if a vector isn't finite."""
        count = len(block.rows)
        # All blocks have one shape, so that JAX compiles once.
        vectors = np.pad(block.vectors, ((0, ROWS_IN_BLOCK - count), (0, 0)))
        texts: Sequence[Text | None] = block.texts or [None] * count
        keys = [(-row, *named) for row, *named in zip(block.rows, texts, block.ids or [""] * count, strict=True)]
        for queries, best in zip(self._queries, self._best, strict=True):
            exact, finite = (np.asarray(each)[:count] for each in _scores(queries, vectors))
            if not finite.all():
                row = block.rows[int(np.argmin(finite))]
                raise UsageError(
                    f"{self._corpus}: the vector of row {row:,} has a number that isn't finite, or a very large one; "
                    "write the vectors again"
                )
            best.add(keys, np.round(exact, _DECIMALS).T)


@jax.jit
def _scores(
    queries: Float[Array, "Q W"], vectors: Float[Array, "N D"]
) -> tuple[Float[Array, "N Q"], Bool[Array, " N"]]:
    """The cosine of each vector's first W components and each normalised query, and whether the vector is finite."""
    cut = vectors[:, : queries.shape[1]]
    scores = jnp.matmul(normalised(cut), queries.T, precision=jax.lax.Precision.HIGHEST)
    return scores, jnp.isfinite(jnp.sum(jnp.square(cut), axis=-1))
