"""DeBERTa's attention (He et al. 2021, section 3.1): products of the query, and of the key, with vectors of their
distance, which all blocks share."""

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from bert_jax.config.model import ModelConfig
from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.kernels.products import heads_first, inner_products, rows_of
from bert_jax.model.linear import LayerNorm, initial_weights
from bert_jax.model.parameter import Parameter, norm_rows
from bert_jax.model.relatives.relative_positions import by_distance, of_rows_in_order

DISENTANGLED_PARAMETERS = (
    Parameter(
        "bert/encoder/distances/vectors",
        ("position", "width"),
        "embeddings",
        "distance table",
        ("bert.encoder.rel_embeddings.weight",),
        decays=True,
    ),
    *norm_rows("bert/encoder/distances/norm", "embeddings", "LayerNorm of distances", "bert.encoder.LayerNorm"),
)
"""The parameters of `DisentangledDistances`."""
_TERMS = 3
"""Products that are added: query with key, query with distance, key with distance."""


class DisentangledDistances(nn.Module):
    """The normalised vector of each distance, from a table with one for each bucket of distances."""

    config: ModelConfig

    @nn.compact
    def __call__(self, keys: int) -> Float[Array, "M D"]:
        """The vectors of the distances from S = `keys` down to 1 - S."""
        config = self.config
        buckets, last = config.distance_buckets, config.clamped_distance
        assert buckets is not None and last is not None, "the config has both with these positions"
        table = self.param("vectors", initial_weights(config), (2 * buckets, config.hidden_size))
        numbers = log_bucket_of(np.arange(keys, -keys, -1), buckets, last)
        return rows_of(LayerNorm(config, name="norm")(table), jnp.asarray(numbers))


class DisentangledPositions(nn.Module):
    """q_i·k(d) + k_j·q(d) for a query at place i and a key at place j, where k(d) and q(d) are the block's key and
    query of the vector of their distance d = i - j."""

    config: ModelConfig

    def __call__(
        self,
        query: Float[Array, "B T H K"],
        key: Float[Array, "B S H K"],
        pattern: AttentionPattern,
        projected: Callable[[Array], Array],
    ) -> tuple[Float[Array, "B T H K"], Float[Array, "B H T S"]]:
        """The queries, and the sum of both terms in float32, each divided by sqrt(3), because three products are
        added."""
        assert pattern.distances is not None, "the encoder sets the distances"
        of_distance = projected(pattern.distances)
        to_positions = _with_distances(query, of_distance[:, 1])
        # For key j and query i the distance is i - j, so rows of keys count the distances the other way round.
        reversed_queries = jnp.roll(of_distance[::-1, 0], 1, axis=0)
        from_positions = of_rows_in_order(_with_distances(key, reversed_queries)).swapaxes(2, 3)
        if pattern.query_places is not None:
            from_positions = jnp.take_along_axis(from_positions, pattern.query_places[None, :, :, None], axis=2)
        terms = by_distance(to_positions, pattern) + from_positions
        return query / math.sqrt(_TERMS), terms.swapaxes(0, 1) / math.sqrt(_TERMS)


def _with_distances(x: Float[Array, "B T H K"], of_distance: Float[Array, "M H K"]) -> Float[Array, "H B T M"]:
    """The products of each vector with those of all distances; all rows are one matrix for each head."""
    batch, length, *heads = x.shape
    scores = inner_products(heads_first(x.reshape(1, -1, *heads)), heads_first(of_distance[None]), jnp.float32)
    return scores.reshape(heads[0], batch, length, -1)


def log_bucket_of(distance: Int[np.ndarray, " M"], buckets: int, last: int) -> Int[np.ndarray, " M"]:
    """The row, from 0 to 2 `buckets` - 1, of each distance, the query's place minus the key's. Distances up to half of
    `buckets` have a row each; larger ones share rows, the more the larger they are, up to `last`. `last` must be at
    least 2 more than half of `buckets`. Computed in float32, as in transformers' DebertaV2."""
    middle = buckets // 2
    size = np.maximum(np.abs(distance), middle).astype(np.float32)
    scale = np.log(np.float32((last - 1) / middle))
    far = np.ceil(np.log(size / np.float32(middle)) / scale * np.float32(middle - 1)) + middle
    numbers = np.where(np.abs(distance) <= middle, distance, far * np.sign(distance)).astype(np.int64)
    return np.clip(numbers + buckets, 0, 2 * buckets - 1)
