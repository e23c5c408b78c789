"""Static vectors of pieces, trained on the prepared text: pieces with like neighbours have like vectors."""

import math

import numpy as np
import scipy.linalg
import scipy.sparse
from jaxtyping import Float, Int

from bert_jax.instances.shards import InstanceSource

_WINDOW = 5
"""Neighbours on each side that count; one at distance d counts 1/d."""
_SMOOTHING = 0.75
"""Exponent of the neighbours' frequencies, so that rare ones don't dominate (Levy et al. 2015, section 3.2)."""
_WIDTH, _EXTRA, _ROUNDS = 256, 32, 3
"""Width of the vectors; further directions and rounds of the randomized factorization (Halko et al. 2011)."""
_MOST_TOKENS, _AT_ONCE = 8_000_000, 1 << 20
"""Most tokens whose neighbours are counted, in all and at once."""
FEWEST_TOKENS = 100_000
"""Fewest tokens of a text from which static vectors are trained: in less text, neighbours say little about a piece."""


def static_vectors(text: InstanceSource, vocabulary_size: int) -> Float[np.ndarray, "V D"] | None:
    """A unit vector for each piece; zeros for a piece that doesn't occur. None if the text has fewer than FEWEST_TOKENS
    tokens.

    The vectors are the scaled left singular vectors of the positive pointwise mutual information of pieces and their
    neighbours, which serves as well as word2vec on small texts (Levy et al. 2015). Special pieces count as others do.
    The same data give the same vectors on one machine.
    """
    if text.prepared.train.tokens < FEWEST_TOKENS:
        return None
    counts = _neighbours(text, vocabulary_size)
    of_piece = np.asarray(counts.sum(axis=1)).ravel()
    of_neighbour = np.maximum(of_piece, 1e-9) ** _SMOOTHING
    cells = counts.tocoo()
    log_ratio = np.log(cells.data * of_neighbour.sum() / (of_piece[cells.row] * of_neighbour[cells.col]))
    positive = log_ratio > 0
    information = scipy.sparse.csr_array(
        (log_ratio[positive].astype(np.float32), (cells.row[positive], cells.col[positive])), counts.shape
    )
    rng = np.random.default_rng(0)
    width = min(_WIDTH + _EXTRA, vocabulary_size)
    basis = rng.standard_normal((vocabulary_size, width), dtype=np.float32)
    for _ in range(_ROUNDS):
        basis = scipy.linalg.qr(information @ basis, mode="economic", check_finite=False)[0]
        basis = scipy.linalg.qr(information.T @ basis, mode="economic", check_finite=False)[0]
    left, values, _ = np.linalg.svd(information @ basis, full_matrices=False)
    vectors = left[:, :_WIDTH] * np.sqrt(values[:_WIDTH])
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def _neighbours(text: InstanceSource, vocabulary_size: int) -> scipy.sparse.csr_array:
    """Weighted counts [V, V] of each piece's neighbours, in training sequences spread evenly over the data set."""
    length = text.prepared.length
    step = math.ceil(len(text) * length / _MOST_TOKENS)
    numbers = np.arange(0, len(text), step)
    counts = scipy.sparse.csr_array((vocabulary_size, vocabulary_size), dtype=np.float32)
    for part in np.array_split(numbers, max(1, len(numbers) * length // _AT_ONCE)):
        instances = text.read(part.tolist())
        ids = instances.ids.astype(np.int32)
        owner = np.repeat(np.arange(instances.sequences), np.diff(instances.ends))
        for distance in range(1, _WINDOW + 1):
            near = owner[distance:] == owner[:-distance]
            pairs = ids[:-distance][near], ids[distance:][near]
            weights = np.full(len(pairs[0]), 1 / distance, np.float32)
            counts += scipy.sparse.csr_array((weights, pairs), counts.shape)
    return counts + counts.T


def sparsemax(scores: Float[np.ndarray, "N M"]) -> Float[np.ndarray, "N M"]:
    """The projection of each row onto the simplex: few shares, which add up to 1 (Martins and Astudillo 2016)."""
    descending = -np.sort(-scores, axis=1)
    sums = np.cumsum(descending, axis=1) - 1
    ranks = np.arange(1, scores.shape[1] + 1)
    support = np.sum(descending * ranks > sums, axis=1)
    threshold = np.take_along_axis(sums, support[:, None] - 1, axis=1) / support[:, None]
    return np.maximum(scores - threshold, 0.0)


def pursuit(
    wanted: Float[np.ndarray, "N D"], atoms: Float[np.ndarray, "M D"], count: int
) -> tuple[Int[np.ndarray, "N K"], Float[np.ndarray, "N K"]]:
    """Orthogonal matching pursuit: the numbers of `count` atoms and the coefficients with which they approximate each
    vector. In each round the unit vector closest to what is left is added, and all coefficients are fitted again."""
    chosen = np.zeros((len(wanted), 0), np.int64)
    rest, coefficients = wanted, np.zeros((len(wanted), 0), np.float32)
    for _ in range(min(count, *atoms.shape)):
        closeness = np.abs(rest @ atoms.T)
        np.put_along_axis(closeness, chosen, -1.0, axis=1)
        chosen = np.concatenate([chosen, closeness.argmax(axis=1)[:, None]], axis=1)
        own = atoms[chosen]
        gram = own @ own.swapaxes(1, 2) + 1e-4 * np.eye(chosen.shape[1], dtype=np.float32)
        coefficients = np.linalg.solve(gram, np.einsum("nkd,nd->nk", own, wanted)[..., None])[..., 0]
        rest = wanted - np.einsum("nk,nkd->nd", coefficients, own)
    return chosen, coefficients
