"""Attention by matrix products and softmax: the reference for all other forms.

Long rows are computed in parts, so that memory grows with their length and not with its square: local attention in
bands, each block of queries with the keys near it, and global attention in strips of queries.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from bert_jax.model.attention_pattern import AttentionPattern, Places
from bert_jax.model.dropout import dropout, of_tokens
from bert_jax.model.kernels.attention_form import Form
from bert_jax.model.kernels.products import heads_first, inner_products, weighted_sums

_LEAST_BLOCK = 64
"""Fewest queries in a block of local attention: with fewer, products are too small for any device."""
_STRIP = 1024
"""Number of queries whose probabilities are in memory at a time if those of a whole row exceed _MOST_SCORES."""
_MOST_SCORES = 2048 * 2048


def exact_attention(
    query: Float[Array, "B T H K"],
    key: Float[Array, "B S H K"],
    value: Float[Array, "B S H K"],
    pattern: AttentionPattern,
    rate: float,
    dropout_keys: Key[Array, "B N H"] | None,
    terms: Float[Array, "#B H T S"] | None = None,
) -> Float[Array, "B T H K"]:
    """The mean of `value` under each query's softmax over the keys that `pattern` admits, after dropout at `rate`.

    `dropout_keys`: one key for each sequence and head; None means no dropout. `terms` are added to the products of
    queries and keys; None: nothing is added.
    """
    if pattern.query_places is None and (block := band(query.shape[1], pattern.window)):
        return _in_bands(query, key, value, pattern, rate, dropout_keys, block)
    if is_in_strips(query.shape[1], key.shape[1]):
        return _in_strips(query, key, value, pattern, rate, dropout_keys, terms)
    probabilities = attention_probabilities(query, key, pattern, terms)
    if dropout_keys is not None:
        probabilities = _dropout(probabilities, rate, dropout_keys, pattern)
    return weighted_sums(probabilities.astype(value.dtype), heads_first(value), value.dtype).swapaxes(1, 2)


def attention_probabilities(
    query: Float[Array, "B T H K"],
    key: Float[Array, "B S H K"],
    pattern: AttentionPattern,
    terms: Float[Array, "#B H T S"] | None = None,
) -> Float[Array, "B H T S"]:
    """Each query's softmax over the keys that `pattern` admits, in float32. `terms`: see `exact_attention`."""
    scores = inner_products(heads_first(query), heads_first(key), jnp.float32)
    scores = scores if terms is None else scores + terms
    return softmax_where(scores / math.sqrt(query.shape[-1]), pattern.admitted())


def softmax_where(scores: Float[Array, "B H T S"], admitted: Bool[Array, "B #T S"]) -> Float[Array, "B H T S"]:
    """The softmax over the keys that are admitted."""
    return jax.nn.softmax(jnp.where(admitted[:, None], scores, jnp.finfo(jnp.float32).min), axis=-1)


def _dropout(
    probabilities: Float[Array, "B H T S"], rate: float, keys: Key[Array, "B N H"], pattern: AttentionPattern
) -> Float[Array, "B H T S"]:
    """A probability's mask depends on the query's sequence, the head, and the positions of query and key."""
    rows = pattern.query_positions
    rows = None if rows is None else rows[:, None]
    if pattern.sequences == 1:
        return dropout(probabilities, rate, keys[:, 0], rows)
    query_keys = of_tokens(keys, pattern.queries.sequence).swapaxes(1, 2)
    return dropout(probabilities, rate, query_keys, rows, pattern.keys.position[:, None, None])


def band(length: int, window: int | None) -> int | None:
    """Queries in a block of local attention over rows of `length` tokens; each block has three times as many keys. None
    if the whole row is computed at once."""
    block = max(window or 0, _LEAST_BLOCK)
    return block if window is not None and length >= 4 * block else None


def is_in_strips(queries: int, keys: int) -> bool:
    """Whether attention from `queries` tokens of a row to `keys` tokens is computed in strips of queries."""
    return queries * keys > _MOST_SCORES and queries > _STRIP


def _probabilities(length: int, window: int | None) -> tuple[int, int]:
    if block := band(length, window):
        return 3 * block, 3 * block
    return (0, _STRIP) if is_in_strips(length, length) else (length, length)


def _in_bands(query, key, value, pattern: AttentionPattern, rate, dropout_keys, block: int) -> Float[Array, "B T H K"]:
    """Attention within a window of at most `block` tokens: each block of queries with its own keys and those of the
    blocks beside it.

    The blocks become rows of their own, so the work and the memory of a row grow linearly with its length.
    """
    (batch, length), blocks = query.shape[:2], -(-query.shape[1] // block)

    def in_blocks(x: Array) -> Array:
        x = jnp.pad(x, [(0, 0), (0, blocks * block - length), *[(0, 0)] * (x.ndim - 2)])
        return x.reshape(batch, blocks, block, *x.shape[2:])

    def with_neighbours(x: Array) -> Array:
        x = jnp.pad(in_blocks(x), [(0, 0), (1, 1), *[(0, 0)] * (x.ndim - 1)])
        return jnp.concatenate([x[:, :-2], x[:, 1:-1], x[:, 2:]], axis=2).reshape(-1, 3 * block, *x.shape[3:])

    def flat(x: Array) -> Array:
        return in_blocks(x).reshape(-1, block, *x.shape[2:])

    local = pattern._replace(
        queries=jax.tree.map(flat, pattern.queries),
        keys=jax.tree.map(with_neighbours, pattern.keys),
        sequences=max(pattern.sequences, 2),  # so that places are counted within a sequence and not within a block
    )
    keys = None if dropout_keys is None else jnp.repeat(dropout_keys, blocks, axis=0)
    context = exact_attention(flat(query), with_neighbours(key), with_neighbours(value), local, rate, keys)
    return context.reshape(batch, blocks * block, *query.shape[2:])[:, :length]


def _in_strips(query, key, value, pattern: AttentionPattern, rate, dropout_keys, terms) -> Float[Array, "B T H K"]:
    """Attention of _STRIP queries at a time; the backward pass computes their probabilities again."""
    length, strips = query.shape[1], -(-query.shape[1] // _STRIP)
    numbers = pattern.query_places
    if numbers is None:
        numbers = jnp.broadcast_to(jnp.arange(length), query.shape[:2])

    def cut(x: Array) -> Array:
        x = jnp.pad(x, [(0, 0), (0, strips * _STRIP - length), *[(0, 0)] * (x.ndim - 2)])
        return jnp.moveaxis(x.reshape(x.shape[0], strips, _STRIP, *x.shape[2:]), 1, 0)

    @jax.checkpoint
    def strip(part: tuple[Array, Places, Array, Array | None]) -> Array:
        query, places, numbers, terms = part
        terms = None if terms is None else terms.swapaxes(1, 2)
        of_strip = pattern._replace(queries=places, query_places=numbers)
        return exact_attention(query, key, value, of_strip, rate, dropout_keys, terms)

    terms = None if terms is None else terms.swapaxes(1, 2)
    parts = jax.tree.map(cut, (query, pattern.queries, numbers, terms))
    context = jnp.moveaxis(jax.lax.map(strip, parts), 0, 1)
    return context.reshape(query.shape[0], strips * _STRIP, *query.shape[2:])[:, :length]


EXACT = Form("exact", lambda case: None, exact_attention, probabilities=_probabilities)
