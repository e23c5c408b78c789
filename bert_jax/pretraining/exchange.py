"""The initial rows of the tables over a vocabulary that replaces the vocabulary of a trained model."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bert_jax.config.data import InitialRows
from bert_jax.config.wording import counted
from bert_jax.instances.shards import InstanceSource
from bert_jax.pretraining.static_vectors import FEWEST_TOKENS, pursuit, sparsemax, static_vectors
from bert_jax.run.hosts import of_first
from bert_jax.system.progress import say, stage
from bert_jax.system.reading import Fact, Reading
from bert_jax.text.shared_pieces import ABSENT, shared_pieces
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.word_splits import word_splits

_ATOMS = 16
"""Most shared pieces that a pursuit combines into one row."""
_MOST_MIXED = 64
"""Most shared pieces of a mixture; the pieces with the largest shares are taken."""
_AT_ONCE = 1024
"""Pieces whose similarities to all shared pieces are held in memory at once."""
_SAMPLED = 500
"""Number of sequences from which the mean number of pieces of a word is estimated."""
_FEWEST_SHARED = 100
"""If fewer shared pieces have a vector, no rows are combined from them."""
_OTHERWISE = "other rows begin as means of the old pieces that spell them, or at random where none does"


class Combinations(NamedTuple):
    """Each piece's initial row as a combination of rows of the model's old tables."""

    numbers: Int[np.ndarray, "V K"]
    """Ids of old pieces."""
    coefficients: Float[np.ndarray, "V K"]
    """The coefficients of these pieces; 0 in unused columns."""
    random: Bool[np.ndarray, " V"]
    """Whether the row is drawn at random, with the mean and the variance of the old rows: by the method "random", or
    because no old piece spells the piece."""
    reading: Reading
    """How many rows begin in which way."""

    def on_all_hosts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The first host's `numbers`, `coefficients` and `random`. Other hosts may compute sums that differ in the last
        bits."""
        return of_first((self.numbers, self.coefficients, self.random))


def combinations(
    old: Tokenizer, new: Tokenizer, method: InitialRows, text: InstanceSource | None = None
) -> Combinations:
    """The initial rows of the pieces of `new`, as combinations of rows of a model whose tokenizer is `old`.

    Pieces that both vocabularies have keep their rows. `method` says how the other rows begin: see the setting
    `vocabulary.initial_rows`. `text`: sequences in pieces of `new`, from which static vectors are trained. Methods that
    need static vectors fall back to the mean, with a printed line, if `text` is None, if it is too small, or if the
    vocabularies share too few pieces.
    """
    shared, size = shared_pieces(old, new), len(new.vocabulary)
    kept = shared != ABSENT
    rows = {number: ([old_number], [1.0]) for number, old_number in enumerate(shared.tolist()) if kept[number]}
    if method in ("mixture", "pursuit"):
        rows |= _by_vectors(shared, new.vocabulary.special_ids, method, text)
    combined = len(rows) - int(kept.sum())
    if method != "random":
        for number in sorted({*range(size)} - rows.keys()):
            if spelled := _spelled(new, number, old):
                rows[number] = spelled, [1 / len(spelled)] * len(spelled)
    spelled_rows = len(rows) - int(kept.sum()) - combined
    longest = max((len(numbers) for numbers, _ in rows.values()), default=1)
    numbers, coefficients = np.zeros((size, longest), np.int32), np.zeros((size, longest), np.float32)
    for number, (of_old, shares) in rows.items():
        numbers[number, : len(of_old)], coefficients[number, : len(shares)] = of_old, shares
    random = np.logical_not(coefficients.any(axis=1))
    counts = {
        "kept": (int(kept.sum()), "rows of pieces that both vocabularies have"),
        "combined": (combined, f"{method} of kept rows"),
        "mean": (spelled_rows, "of the rows of the old pieces that spell them"),
        "random": (int(random.sum()), "with the mean and variance of the old rows"),
    }
    facts = [Fact(name=name, value=f"{count:,} of {size:,}: {how}") for name, (count, how) in counts.items() if count]
    if text is not None:
        facts.append(_pieces_a_word(text, old, new))
    return Combinations(
        numbers, coefficients, random, Reading(subject="vocabulary in place of the model's", facts=facts)
    )


def _pieces_a_word(source: InstanceSource, old: Tokenizer, new: Tokenizer) -> Fact:
    """The mean number of pieces of a word in both vocabularies, for a sample of the training sequences, decoded by
    `new`. Words without a letter or digit aren't counted: a WordPiece decodes punctuation with spaces around it."""
    sample = source.read(np.linspace(0, len(source) - 1, min(_SAMPLED, len(source)), dtype=int).tolist())
    ordinary = sample.ids[~np.isin(sample.ids, new.vocabulary.special_ids)]
    words = Counter(word for word in new.decode(ordinary.tolist()).split() if any(map(str.isalnum, word)))
    of_new, of_old = (word_splits(tokenizer, words).pieces_a_word for tokenizer in (new, old))
    return Fact(
        name="pieces a word",
        value=f"{of_new:.2f} in place of {of_old:.2f}",
        known_by="training sequences, without words of punctuation",
    )


def _spelled(new: Tokenizer, number: int, old: Tokenizer) -> list[int]:
    """The ids of the pieces of `old` that spell piece `number` of `new`; unknown ones are left out. (A piece
    that continues a word is encoded as if it began one, which changes only the first of its pieces.)"""
    text = new.text_bytes(number).decode("utf-8", "ignore").strip()
    return [piece for piece in old.encode(text) if piece != old.vocabulary.unknown_id]


def _by_vectors(
    shared: Int[np.ndarray, " V"],
    special: Sequence[int],
    method: InitialRows,
    text: InstanceSource | None,
) -> dict[int, tuple[list[int], list[float]]]:
    """For each piece that isn't shared and occurs in the text, the ids and coefficients of the old pieces that are
    combined into its row, chosen by static vectors. The pieces `special` are left out, since they are near all others.
    """
    vectors, size = None, len(shared)
    if text is not None:
        with stage("Static vectors of the pieces", None, "pieces") as progress:
            vectors = static_vectors(text, size)
            progress.advance(size)
    if vectors is None:
        lacks = f"the text has fewer than {FEWEST_TOKENS:,} pieces, too few" if text is not None else "there is no text"
        say(f"{lacks} for static vectors: {_OTHERWISE}")
        return {}
    occurs = np.asarray(vectors.any(axis=1))
    occurs[[*special]] = False
    atoms = np.flatnonzero((shared != ABSENT) & occurs)
    if len(atoms) < _FEWEST_SHARED:
        say(f"the vocabularies share {counted(len(atoms), 'pieces')} of this text: {_OTHERWISE}")
        return {}
    combined: dict[int, tuple[list[int], list[float]]] = {}
    absent = np.flatnonzero((shared == ABSENT) & occurs)
    for part in np.array_split(absent, max(1, len(absent) // _AT_ONCE)):
        if method == "pursuit":
            chosen, shares = pursuit(vectors[part], vectors[atoms], _ATOMS)
        else:
            all_shares = sparsemax(vectors[part] @ vectors[atoms].T)
            chosen = np.argpartition(-all_shares, min(_MOST_MIXED, len(atoms) - 1), axis=1)[:, :_MOST_MIXED]
            shares = np.take_along_axis(all_shares, chosen, axis=1)
            shares /= shares.sum(axis=1, keepdims=True)
        for number, of_new, coefficients in zip(part, chosen, shares, strict=True):
            used = coefficients != 0
            combined[int(number)] = shared[atoms[of_new[used]]].tolist(), coefficients[used].tolist()
    return combined
