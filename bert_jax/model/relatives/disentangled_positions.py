"""DeBERTa's attention (He et al. 2021, section 3.1): terms of a query's content and a key's distance, and of a key's
content and a query's distance. All blocks share the vectors of distances."""

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
"""Products of content and distance: both of content, and one of each kind."""


class DisentangledDistances(nn.Module):
    """The normalised vector of each distance, from a table with one for each range of distances."""

    config: ModelConfig

    @nn.compact
    def __call__(self, keys: int) -> Float[Array, "M D"]:
        config, ranges = self.config, self.config.distance_ranges
        assert ranges is not None, "the config needs it with these positions"
        table = self.param("vectors", initial_weights(config), (2 * ranges, config.hidden_size))
        numbers = range_of(np.arange(keys, -keys, -1), ranges, config.clamped_distance or config.max_positions)
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
        """The queries and both terms in float32, divided by sqrt(3): three products are added."""
        assert pattern.distances is not None, "the encoder sets the distances"
        of_distance = projected(pattern.distances)
        to_positions = _with_distances(query, of_distance[:, 1])
        # For key j and query i the distance is i - j, so rows of keys count the distances the other way round.
        reversed_queries = jnp.roll(of_distance[::-1, 0], 1, axis=0)
        from_positions = of_rows_in_order(_with_distances(key, reversed_queries)).swapaxes(2, 3)
        if pattern.rows is not None:
            from_positions = jnp.take_along_axis(from_positions, pattern.rows[None, :, :, None], axis=2)
        terms = by_distance(to_positions, pattern) + from_positions
        return query / math.sqrt(_TERMS), terms.swapaxes(0, 1) / math.sqrt(_TERMS)


def _with_distances(x: Float[Array, "B T H K"], of_distance: Float[Array, "M H K"]) -> Float[Array, "H B T M"]:
    """The products of each vector with those of all distances; all rows are one matrix for each head."""
    batch, length, *heads = x.shape
    scores = inner_products(heads_first(x.reshape(1, -1, *heads)), heads_first(of_distance[None]), jnp.float32)
    return scores.reshape(heads[0], batch, length, -1)


def range_of(distance: Int[np.ndarray, " M"], ranges: int, farthest: int) -> Int[np.ndarray, " M"]:
    """The row of each distance, query's place less key's: those below half of `ranges` have one each, then ranges grow
    with the distance up to `farthest`, as in transformers' DebertaV2, in float32."""
    middle = ranges // 2
    size = np.maximum(np.abs(distance), middle).astype(np.float32)
    scale = np.log(np.float32((farthest - 1) / middle))
    far = np.ceil(np.log(size / np.float32(middle)) / scale * np.float32(middle - 1)) + middle
    numbers = np.where(np.abs(distance) <= middle, distance, far * np.sign(distance)).astype(np.int64)
    return np.clip(numbers + ranges, 0, 2 * ranges - 1)
