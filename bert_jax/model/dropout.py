"""Dropout whose mask is a function of the sequence and the element's place in it, not of the batch, row or array that
it stands in."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

_WORDS = 1 << 32
_MOST_PLACES = 1 << 16
"""Most places along each of the two axes of `random_words`."""


def split(keys: Key[Array, "*B"], count: int) -> Key[Array, "N *B"]:
    """Splits each sequence's key into `count` keys (N), one for each use of dropout."""
    parts = jax.vmap(lambda key: jax.random.split(key, count), out_axes=1)(keys.reshape(-1))
    return parts.reshape(count, *keys.shape)


def dropout(
    x: Float[Array, "..."],
    rate: float,
    keys: Key[Array, "*K"] | None,
    rows: Int[Array, "..."] | None = None,
    columns: Int[Array, "..."] | None = None,
) -> Float[Array, "..."]:
    """Zeroes elements of `x` with probability `rate` and scales the others to keep the mean.

    `x` is [*K, D] or [*K, T, D], with one key for each of its vectors or matrices; None means no dropout (evaluation).
    `rows`, [*#K T] for matrices and [*#K] for vectors, number the rows; None: 0 to T - 1, and 0 for a vector.
    `columns`, which broadcast with `x`, number the columns; None: 0 to D - 1. An element's mask depends on
    its key, row and column alone: a row that is computed alone has the mask that it has among all.

    The backward pass draws the mask again instead of reading it from memory.
    """
    if keys is None or not _threshold(rate):
        return x
    return _dropped(x, jax.random.key_data(keys), rows, columns, rate)


def token_dropout(
    x: Float[Array, "B T D"],
    rate: float,
    keys: Key[Array, "B N"] | None,
    sequence: Int[Array, "B T"],
    position: Int[Array, "B T"] | None,
) -> Float[Array, "B T D"]:
    """`dropout` of vectors of tokens: a mask depends on the key of a token's sequence and its position in that.

    `sequence`: the token's sequence in its row, from 1. `position`: None where each row holds one sequence, whole.
    """
    if keys is None or not _threshold(rate):
        return x
    if keys.shape[1] == 1:
        return dropout(x, rate, keys[:, 0], position)
    return dropout(x, rate, of_tokens(keys, sequence), position)


def of_tokens(keys: Key[Array, "B N *H"], sequence: Int[Array, "B T"]) -> Key[Array, "B T *H"]:
    """The key of each token's sequence; for padding that of the first one."""
    return jax.vmap(lambda keys, sequence: keys[jnp.maximum(sequence - 1, 0)])(keys, sequence)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _dropped(
    x: Float[Array, "..."],
    keys: UInt32[Array, "*K 2"],
    rows: Int[Array, "..."] | None,
    columns: Int[Array, "..."] | None,
    rate: float,
) -> Float[Array, "..."]:
    keep = survives(*_places(x, keys, rows, columns), rate)
    return jnp.where(keep, x.astype(jnp.float32) * scale(rate), 0.0).astype(x.dtype)


def _forward(x, keys, rows, columns, rate):
    return _dropped(x, keys, rows, columns, rate), (keys, rows, columns)


def _backward(rate, residuals, gradient):
    return _dropped(gradient, *residuals, rate), None, None, None


_dropped.defvjp(_forward, _backward)


def _places(
    x: Float[Array, "..."],
    keys: UInt32[Array, "*K 2"],
    rows: Int[Array, "..."] | None,
    columns: Int[Array, "..."] | None,
) -> tuple[tuple[UInt32[Array, "..."], UInt32[Array, "..."]], UInt32[Array, "..."], UInt32[Array, "..."]]:
    """The key, row and column of each element of `x`, as arrays that broadcast with it."""
    inner = x.shape[keys.ndim - 1 :]
    if max(inner) > _MOST_PLACES:
        raise ValueError(f"dropout numbers at most {_MOST_PLACES:,} places of an axis; the shape is {inner}")
    first, second = (keys[..., half].reshape(*keys.shape[:-1], *[1] * len(inner)) for half in range(2))
    if rows is None:
        rows = jnp.arange(inner[0] if len(inner) > 1 else 1)
    if columns is None:
        columns = jnp.arange(inner[-1])
    return (first, second), rows.astype(jnp.uint32)[..., None], columns.astype(jnp.uint32)


def survives(
    key: tuple[UInt32[Array, "..."], UInt32[Array, "..."]],
    row: UInt32[Array, "..."],
    column: UInt32[Array, "..."],
    rate: float,
) -> Bool[Array, "..."]:
    """Whether the elements at these places are kept. Elementwise, so that a kernel may call it for a part of them."""
    return random_words(key, row, column) >= np.uint32(_threshold(rate))


def scale(rate: float) -> float:
    """The factor of the elements that are kept."""
    return _WORDS / (_WORDS - _threshold(rate))


def random_words(
    key: tuple[UInt32[Array, "..."], UInt32[Array, "..."]], row: UInt32[Array, "..."], column: UInt32[Array, "..."]
) -> UInt32[Array, "..."]:
    """A random word for each key and place: the finaliser of MurmurHash3 (Appleby) on the place, keyed twice.

    Nine operations a word, where Threefry takes fifty. Keys come from Threefry; this only distinguishes
    the elements of one mask. Rows and columns are below 65,536.
    """
    x = (row << 16) + column + key[0]
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = ((x ^ (x >> 13)) + key[1]) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _threshold(rate: float) -> int:
    """A word below this is dropped."""
    return round(rate * _WORDS)
