"""XLNet's attention (Yang et al. 2019): the terms for distances and segments that it adds to its scores (section 2.5;
Dai et al. 2019, section 3.3), and the query stream that predicts tokens (section 2.3)."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.layout import Tokens
from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.dropout import token_dropout
from bert_jax.model.kernels.platform import compute_dtype, product_precision
from bert_jax.model.kernels.products import heads_first, inner_products
from bert_jax.model.linear import Linear, initial_weights
from bert_jax.model.parameter import HEAD_AXES, layer_row, linear_rows

_OF_CLASS_TOKEN = 2
"""Segment of a [CLS] that stands last: neither the first text's nor the second's."""


RELATIVE_PARAMETERS = (
    layer_row("attention/content_bias", HEAD_AXES, "block", "biases of queries", ("attention.self.content",), "bias"),
    layer_row("attention/position_bias", HEAD_AXES, "block", "biases of queries", ("attention.self.position",), "bias"),
    layer_row("attention/segment_bias", HEAD_AXES, "block", "biases of queries", ("attention.self.segment",), "bias"),
    linear_rows("attention/position", "block", "position keys", ("attention.self.position",), ("width",), *HEAD_AXES)[
        0
    ],
    layer_row(
        "attention/segment", ("segment", *HEAD_AXES), "block", "segments", ("attention.self.segment",), "weight"
    )._replace(decays=True),
)
"""The parameters of `RelativePositions`."""


class RelativePositions(nn.Module):
    """Scores of a query at place i and a key at place j: (q + b_r)·W_r R(i - j) + (q + b_s)·s, where R is a sinusoid
    and s one of two vectors, for a key in the query's segment and for a key in another."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self, query: Float[Array, "B T H K"], key: Array, pattern: AttentionPattern, projected: Callable[[Array], Array]
    ) -> tuple[Float[Array, "B T H K"], Float[Array, "B H T S"]]:
        """The queries with the bias of their products with keys (b_w), and the sum of both terms in float32, not yet
        divided by sqrt(K)."""
        config, dtype, heads = self.config, compute_dtype(self.config), query.shape[2:]
        initial = initial_weights(config)
        biases = {name: self.param(f"{name}_bias", initial, heads) for name in ("content", "position", "segment")}
        of_content, of_position, of_segment = (query + bias.astype(dtype) for bias in biases.values())
        size = pattern.keys.sequence.shape[1]
        table = jnp.asarray(_distance_table(config, size)).astype(dtype)
        position_keys = Linear(config, heads, bias=False, name="position")(table)
        # All rows have the same keys, so their queries are one matrix for each head.
        of_position = of_position.reshape(1, -1, *heads)
        scores = inner_products(heads_first(of_position), heads_first(position_keys[None]), jnp.float32)
        scores = by_distance(scores.reshape(heads[0], *query.shape[:2], -1), pattern).swapaxes(0, 1)
        # Softmax subtracts what is added for all keys of a query, so only the difference of both vectors counts.
        same, other = self.param("segment", initial, (2, *heads))
        precision = product_precision(jnp.float32)
        of_other = jnp.einsum("BTHK,HK->BHT", of_segment.astype(jnp.float32), other - same, precision=precision)
        of_queries, of_keys = pattern.queries.segment, pattern.keys.segment
        assert of_queries is not None and of_keys is not None, "relative attention needs segments"
        is_other = of_queries[:, :, None] != of_keys[:, None]
        return of_content, scores + of_other[..., None] * is_other[:, None]


def attended_segments(config: ModelConfig, tokens: Tokens) -> Int[Array, "B T"]:
    """The segment of each token. A [CLS] that stands last is in a segment that no other token has."""
    if config.class_token == "first":
        return tokens.segment
    length = jnp.take_along_axis(tokens.length, jnp.maximum(tokens.sequence - 1, 0), axis=1)
    return jnp.where(tokens.position == length - 1, _OF_CLASS_TOKEN, tokens.segment)


def _distance_table(config: ModelConfig, size: int) -> Float[np.ndarray, "M D"]:
    """For each of the M = 2 `size` distances from `size` down to 1 - `size`: sines, then cosines, of the distance /
    10000^(2i/D)."""
    distances = np.arange(size, -size, -1)
    if config.clamped_distance is not None:
        distances = np.clip(distances, -config.clamped_distance, config.clamped_distance)
    angles = distances[:, None] / 10_000 ** (np.arange(0, config.hidden_size, 2) / config.hidden_size)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def by_distance(scores: Float[Array, "H B T M"], pattern: AttentionPattern) -> Float[Array, "H B T S"]:
    """The score of each query with each key, from the query's scores with all M = 2 S distances from S down to
    1 - S."""
    size = pattern.keys.sequence.shape[1]
    if pattern.query_places is None:
        return of_rows_in_order(scores)
    # With a query stream, the first S queries are the row's own tokens in order.
    in_order = size if pattern.has_query_stream else 0
    rest = scores_from(scores[:, :, in_order:], size - pattern.query_places[:, in_order:], size)
    return jnp.concatenate([of_rows_in_order(scores[:, :, :size]), rest], axis=2) if in_order else rest


def of_rows_in_order(scores: Float[Array, "H B S M"]) -> Float[Array, "H B S S"]:
    """For query i, the S scores from index S - i on. The window moves by one element from row to row, so it becomes a
    plain slice once the array has rows that are one element shorter (Dai et al. 2019, appendix B)."""
    size = scores.shape[2]
    shifted = scores.reshape(*scores.shape[:2], -1)[:, :, size:]
    return shifted.reshape(*scores.shape[:2], size, 2 * size - 1)[..., :size]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def scores_from(scores: Float[Array, "H B T M"], begin: Int[Array, "B T"], size: int) -> Float[Array, "H B T S"]:
    """`size` neighbouring scores of each query, from the index `begin` on. The gradient is a window of the padded
    gradient: a scatter would take many times longer."""
    index = begin[None, :, :, None] + jnp.arange(size)
    return jnp.take_along_axis(scores, index, axis=-1)


def _backward(size, residuals, gradient):
    begin, whole = residuals
    around = whole - size
    padded = jnp.pad(gradient, [(0, 0)] * 3 + [(around, around)])
    return scores_from(padded, around - begin, whole), None


scores_from.defvjp(lambda scores, begin, size: (scores_from(scores, begin, size), (begin, scores.shape[-1])), _backward)


def with_query_stream(
    pattern: AttentionPattern, places: Int[Array, "B P"], ranks: Int[Array, "B T"]
) -> AttentionPattern:
    """`pattern` with the queries of a query stream at these places of each row.

    `ranks`: each token's place in the order of prediction, -1 for a token that isn't predicted. A token attends to
    itself and to lower ranks, a query of the stream only to lower ranks, so that it doesn't see the token that it
    predicts (Yang et al. 2019, section 2.3).
    """
    content = pattern.keys._replace(rank=ranks)
    stream = jax.tree.map(lambda each: jnp.take_along_axis(each, places, axis=1), content)
    stream = stream._replace(rank=jnp.maximum(stream.rank - 1, -1))
    queries = jax.tree.map(lambda *each: jnp.concatenate(each, axis=1), content, stream)
    rows = jnp.broadcast_to(jnp.arange(ranks.shape[1]), ranks.shape)
    return pattern._replace(
        queries=queries, keys=content, query_places=jnp.concatenate([rows, places], axis=1), has_query_stream=True
    )


def query_vectors(
    mask: Float[Array, " D"],
    config: ModelConfig,
    tokens: Tokens,
    places: Int[Array, "B P"],
    dropout_keys: Key[Array, "B N"] | None,
) -> Float[Array, "B P D"]:
    """The first block's input for the query stream at `places` of each row: `mask`, the same vector for all tokens,
    after dropout."""
    x = jnp.broadcast_to(mask.astype(compute_dtype(config)), (*places.shape, len(mask)))
    at_places = (jnp.take_along_axis(array, places, axis=1) for array in (tokens.sequence, tokens.position))
    return token_dropout(x, config.dropout, dropout_keys, *at_places)
