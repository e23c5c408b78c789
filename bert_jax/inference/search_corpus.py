"""What is searched: texts, or a .npz file of their vectors."""

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from bert_jax.inference.batches import Text
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.feature_files import name_of, texts_of
from bert_jax.inference.origin import check_origin
from bert_jax.inference.vector_file import VectorFile
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import Setting, UsageError

ROWS_IN_BLOCK = 2048
"""Maximum rows in a block, chosen so that its vectors fit a CPU's cache."""
_EMPTY = "empty texts left out"
_ROLE = "document"
"""Role of the texts that are searched."""


class Block(NamedTuple):
    """Rows of a corpus that are searched together; empty texts are left out."""

    rows: Sequence[int]
    """Their numbers in the corpus, from 1, ascending."""
    vectors: Float[np.ndarray, "N D"]
    texts: Sequence[Text] | None
    """None if the corpus has vectors alone."""


class SearchCorpus:
    """A corpus that is read once, in bounded memory."""

    def __init__(
        self,
        source: str | os.PathLike | Iterable[Any],
        columns: Sequence[str] = (),
        lines: str | os.PathLike | None = None,
    ):
        """`source`: texts or pairs; a file with a text a line; a table with them in one or two `columns`; or a .npz
        file of vectors, beside which `lines` is the file with the texts of these vectors, in the same order.

        Raises UsageError if these don't fit each other, or if a .npz file has no vectors of texts.
        """
        file = os.fspath(source) if isinstance(source, str | os.PathLike) else None
        self.name = name_of(file) if file else "the corpus"
        """Its file, for messages."""
        self.texts_from = self.name if lines is None else name_of(os.fspath(lines))
        """The file of its texts, for messages."""
        self.repairs = Counter[str]()
        """What was mended or left out, with counts."""
        self._vectors, self._texts = None, None
        if file is not None and file.endswith(".npz"):
            self._vectors = VectorFile(place_of(file))
            if lines is not None:
                self._texts = texts_of(os.fspath(lines), tuple(columns), self.repairs)
            elif columns:
                raise UsageError(
                    f"{self.name} has no columns of texts; add {Setting('lines', 'FILE')}, the file that has them"
                )
        elif lines is not None:
            raise UsageError(
                f"{self.name} has texts itself, and {Setting('lines', lines)} is for a .npz file; leave it out"
            )
        elif file is not None:
            self._texts = texts_of(file, tuple(columns), self.repairs)
        elif not isinstance(source, str | os.PathLike):
            self._texts = iter(source)

    @property
    def has_texts(self) -> bool:
        """Whether its texts are known."""
        return self._texts is not None

    @property
    def size(self) -> int | None:
        """Number of rows; None if it is known only after all are read."""
        return self._vectors.rows if self._vectors else None

    def blocks(self, embedder: Embedder, width: int | None) -> Iterator[Block]:
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

    def _embedded(self, embedder: Embedder, width: int | None) -> Iterator[Block]:
        rows = deque[int]()

        def nonempty() -> Iterator[Text]:
            for row, text in enumerate(self._texts or (), 1):
                if _is_empty(text):
                    self.repairs[_EMPTY] += 1
                else:
                    rows.append(row)
                    yield text

        for texts, vectors in embedder.batches(nonempty(), width, ROWS_IN_BLOCK, _ROLE):
            yield Block([rows.popleft() for _ in texts], vectors, texts)

    def _stored(self, file: VectorFile) -> Iterator[Block]:
        begin = 1
        for vectors in file.blocks(ROWS_IN_BLOCK):
            rows = range(begin, begin + len(vectors))
            begin += len(vectors)
            if self._texts is None:
                yield Block(rows, vectors, None)
                continue
            texts = list(islice(self._texts, len(vectors)))
            if len(texts) < len(vectors):
                raise self._unequal(f"only {rows[0] - 1 + len(texts):,}")
            filled = [place for place, text in enumerate(texts) if not _is_empty(text)]
            self.repairs[_EMPTY] += len(texts) - len(filled)
            yield Block([rows[place] for place in filled], vectors[filled], [texts[place] for place in filled])
        if self._texts is not None and next(self._texts, None) is not None:
            raise self._unequal("more")

    def _unequal(self, texts: str) -> UsageError:
        return UsageError(
            f"{self.name} has {self.size:,} vectors and {self.texts_from} has {texts} texts; give the file "
            "that the vectors were computed of"
        )


def _is_empty(text: object) -> bool:
    """Whether a text, or each text of a pair, has no character but spaces."""
    parts = text if isinstance(text, tuple | list) and text else (text,)
    return all(isinstance(part, str) and not part.strip() for part in parts)
