"""The schemes of positions: how a model knows the order of its tokens. The table SCHEMES describes them."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from bert_jax.config.model import ModelConfig, Positions
from bert_jax.layout import Tokens
from bert_jax.model.kernels.elementwise import cosines_and_sines, recomputed
from bert_jax.model.parameter import Parameter
from bert_jax.model.relatives.bucketed_positions import BUCKETED_PARAMETERS, BucketedDistances, BucketedPositions
from bert_jax.model.relatives.disentangled_positions import (
    DISENTANGLED_PARAMETERS,
    DisentangledDistances,
    DisentangledPositions,
)
from bert_jax.model.relatives.relative_positions import (
    RELATIVE_PARAMETERS,
    RelativePositions,
    attended_segments,
)


class PositionScheme(NamedTuple):
    """Where the positions of tokens enter a model, and what that costs. By default they enter nowhere."""

    learns_vectors: bool = False
    """Whether a learned table of vectors by position is added to the embeddings."""
    fixed_vectors: Callable[[ModelConfig, int], Float[np.ndarray, "T E"]] | None = None
    """(config, length) -> the vectors of the first `length` positions, constants that are added to the embeddings."""
    turned: Callable[[ModelConfig, bool, Array, Array | None, int], Array] | None = None
    """(config, whether attention is local, queries or keys, their positions, tokens of a row) -> the queries or keys
    turned by their positions. See `rotated` for the last three arguments."""
    score_terms: type[nn.Module] | None = None
    """Class of a module, built from `config` in each block in the scope of its attention: (queries, keys, pattern,
    projected) -> the queries to multiply with keys, and terms [B, H, T, S] added to these products before the division
    by sqrt(K). `projected` gives the block's queries and keys [..., 2, H, K] of any vectors [..., D]."""
    segments: Callable[[ModelConfig, Tokens], Int[Array, "B T"] | None] = lambda config, tokens: None
    """(config, tokens) -> each token's segment; None if attention doesn't depend on segments."""
    distances: type[nn.Module] | None = None
    """Class of a module of the encoder, built from `config`: (number of keys S) -> the value of
    `AttentionPattern.distances`, which every block's `score_terms` reads."""
    products: int = 2
    """Number of products of length K (the head width) that attention computes for each query and key: with the key,
    with the value, and those of `score_terms`."""
    kept_scores: int = 0
    """Float32 numbers that `score_terms` keeps for the backward pass, for each query, key and head."""
    parameters: tuple[Parameter, ...] = ()
    """The parameters of `score_terms` and `distances`."""


def sinusoids(config: ModelConfig, length: int) -> Float[np.ndarray, "T D"]:
    """sin(t / 10000^(2i/D)) in column 2i and its cosine in column 2i + 1, for position t (Vaswani et al. 2017).

    The paper's positions have a root mean square of sqrt(1/2), beside words scaled by sqrt(D). Positions here have a
    root mean square of `initializer_range`, about that of a new learned table, so that they don't outweigh the words.
    """
    angles = np.arange(length)[:, None] / 10_000 ** (np.arange(0, config.table_size, 2) / config.table_size)
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, config.table_size)
    return (table * math.sqrt(2) * config.initializer_range).astype(np.float32)


def rotated(
    x: Float[Array, "B T H K"], positions: Int[Array, "B T"] | None, base: float, length: int
) -> Float[Array, "B T H K"]:
    """`x` with features i and i + K/2 of each vector turned as a pair by the angle position / base^(2i/K), in float32.

    So the inner product of a query and a key depends only on the distance between them (Su et al. 2021). `positions`:
    None if vector t of each row has position t; otherwise each is less than `length`. The pairing is that of
    transformers. Su et al. pair 2i with 2i + 1, which is the same up to the order of the features.
    """
    frequencies = (base ** -(np.arange(0, x.shape[-1], 2) / x.shape[-1])).astype(np.float32)
    cosines, sines = cosines_and_sines(frequencies, positions, length)
    cosines, sines = cosines[:, :, None], sines[:, :, None]  # the same for all heads

    @recomputed
    def turned(x, cosines, sines):
        first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
        parts = first * cosines - second * sines, second * cosines + first * sines
        return jnp.concatenate(parts, axis=-1).astype(x.dtype)

    return turned(x, cosines, sines)


def _rotated(
    config: ModelConfig, local: bool, x: Array, positions: Int[Array, "B T"] | None, length: int
) -> Float[Array, "B T H K"]:
    return rotated(x, positions, config.local_rotary_base if local else config.rotary_base, length)


SCHEMES: dict[Positions, PositionScheme] = {
    "learned": PositionScheme(learns_vectors=True),
    "sinusoidal": PositionScheme(fixed_vectors=sinusoids),
    "rotary": PositionScheme(turned=_rotated),
    "relative": PositionScheme(
        score_terms=RelativePositions,
        segments=attended_segments,
        products=4,  # two more: `score_terms` multiplies with 2 S distances for S keys
        kept_scores=2,
        parameters=RELATIVE_PARAMETERS,
    ),
    "bucketed": PositionScheme(
        learns_vectors=True,
        score_terms=BucketedPositions,
        distances=BucketedDistances,
        parameters=BUCKETED_PARAMETERS,
    ),
    "disentangled": PositionScheme(
        score_terms=DisentangledPositions,
        distances=DisentangledDistances,
        products=6,  # four more: queries and keys are each multiplied with 2 S distances for S keys
        parameters=DISENTANGLED_PARAMETERS,
    ),
    "none": PositionScheme(),
}
"""The schemes by the setting model.positions."""
