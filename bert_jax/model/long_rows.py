"""Attention over long rows in parts, so that memory grows with their length and not with its square."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from bert_jax.model.attention_pattern import AttentionPattern, Places

_LEAST_BLOCK = 64
"""Fewest queries in a block of local attention: fewer make products too small for any device."""
_STRIP = 1024
"""Queries whose probabilities are in memory at a time, where those of a row together are more than _MOST_SCORES."""
_MOST_SCORES = 2048 * 2048


def band(length: int, window: int | None) -> int | None:
    """Queries in a block of local attention over rows of `length` tokens, which sees three times as many keys; None
    where the whole row is computed at once."""
    block = max(window or 0, _LEAST_BLOCK)
    return block if window is not None and length >= 4 * block else None


def is_in_strips(queries: int, keys: int) -> bool:
    """Whether so many queries of a row are computed in strips over its keys."""
    return queries * keys > _MOST_SCORES and queries > _STRIP


def keys_of_a_query(length: int, window: int | None) -> tuple[int, int]:
    """How many probabilities the exact form keeps of each query of a row for the backward pass, and how many are in
    memory while the row is computed."""
    if block := band(length, window):
        return 3 * block, 3 * block
    return (0, _STRIP) if is_in_strips(length, length) else (length, length)


def in_bands(
    attend: Callable[..., Array],
    query: Float[Array, "B T H K"],
    key: Float[Array, "B T H K"],
    value: Float[Array, "B T H K"],
    pattern: AttentionPattern,
    rate: float,
    dropout_keys: Key[Array, "B N"] | None,
    block: int,
) -> Float[Array, "B T H K"]:
    """`attend`, the exact form, within a window of at most `block` tokens: each block of so many queries with its own
    keys and those of the blocks beside it.

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
        queries=Places(*map(flat, pattern.queries)),
        keys=Places(*map(with_neighbours, pattern.keys)),
        sequences=max(pattern.sequences, 2),  # so that places count within a sequence, not within a block
    )
    keys = None if dropout_keys is None else jnp.repeat(dropout_keys, blocks, axis=0)
    context = attend(flat(query), with_neighbours(key), with_neighbours(value), local, rate, keys)
    return context.reshape(batch, blocks * block, *query.shape[2:])[:, :length]


def in_strips(
    attend: Callable[..., Array],
    query: Float[Array, "B T H K"],
    key: Float[Array, "B S H K"],
    value: Float[Array, "B S H K"],
    pattern: AttentionPattern,
    rate: float,
    dropout_keys: Key[Array, "B N"] | None,
) -> Float[Array, "B T H K"]:
    """`attend`, the exact form, for _STRIP queries at a time; the backward pass computes their probabilities again."""
    length, strips = query.shape[1], -(-query.shape[1] // _STRIP)
    rows = jnp.broadcast_to(jnp.arange(length), query.shape[:2]) if pattern.rows is None else pattern.rows

    def cut(x: Array) -> Array:
        x = jnp.pad(x, [(0, 0), (0, strips * _STRIP - length), *[(0, 0)] * (x.ndim - 2)])
        return jnp.moveaxis(x.reshape(x.shape[0], strips, _STRIP, *x.shape[2:]), 1, 0)

    @jax.checkpoint
    def strip(part: tuple[Array, Places, Array]) -> Array:
        query, places, rows = part
        return attend(query, key, value, pattern._replace(queries=places, rows=rows), rate, dropout_keys)

    parts = cut(query), Places(*map(cut, pattern.queries)), cut(rows)
    context = jnp.moveaxis(jax.lax.map(strip, parts), 0, 1)
    return context.reshape(query.shape[0], strips * _STRIP, *query.shape[2:])[:, :length]
