"""Dropout whose mask is a function of the example and the element's place, not of the batch or array it stands in."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

_WORDS = 1 << 32
_MOST_PLACES = 1 << 16
"""Places along each of the two axes that `random_words` can tell apart."""


def split(keys: Key[Array, " B"], count: int) -> Key[Array, "N B"]:
    """Splits each example's key into `count` keys (N), one for each use of dropout."""
    return jnp.moveaxis(jax.vmap(lambda key: jax.random.split(key, count))(keys), 1, 0)


def dropout(
    x: Float[Array, "..."], rate: float, keys: Key[Array, "*K"] | None, rows: Int[Array, "*#K T"] | None = None
) -> Float[Array, "..."]:
    """Zeroes elements of `x` with probability `rate` and scales the others to keep the mean.

    `x` is [*K, D] or [*K, T, D], with one key for each of its vectors or matrices, so that an example's mask is the
    same in any batch, microbatch and mesh; None means no dropout (evaluation). `rows` are the numbers of the T rows
    where they aren't 0 to T - 1: a row that is computed alone has the mask that it has among all.

    The backward pass draws the mask again instead of reading it from memory. He and Xu (2020), section 5.1, write a
    rate of 0.1 for prediction as well; BERT's code, and this, has 0.
    """
    if keys is None or not _threshold(rate):
        return x
    return _dropped(x, jax.random.key_data(keys), rows, rate)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _dropped(
    x: Float[Array, "..."], keys: UInt32[Array, "*K 2"], rows: Int[Array, "*#K T"] | None, rate: float
) -> Float[Array, "..."]:
    kept = survives(*_places(x, keys, rows), rate)
    return jnp.where(kept, x.astype(jnp.float32) * scale(rate), 0.0).astype(x.dtype)


def _forward(x, keys, rows, rate):
    return _dropped(x, keys, rows, rate), (keys, rows)


def _backward(rate, kept, gradient):
    return _dropped(gradient, *kept, rate), None, None


_dropped.defvjp(_forward, _backward)


def _places(
    x: Float[Array, "..."], keys: UInt32[Array, "*K 2"], rows: Int[Array, "*#K T"] | None
) -> tuple[tuple[UInt32[Array, "..."], UInt32[Array, "..."]], UInt32[Array, "..."], UInt32[Array, "..."]]:
    """The key, row and column of each element of `x`, as arrays that broadcast with it."""
    inner = x.shape[keys.ndim - 1 :]
    if max(inner) > _MOST_PLACES:
        raise ValueError(f"dropout tells {_MOST_PLACES:,} places of an axis apart; the shape is {inner}")
    first, second = (keys[..., half].reshape(*keys.shape[:-1], *[1] * len(inner)) for half in range(2))
    column = jnp.arange(inner[-1], dtype=jnp.uint32)
    if len(inner) == 1:
        return (first, second), jnp.uint32(0), column
    rows = jnp.arange(inner[0]) if rows is None else rows
    return (first, second), rows.astype(jnp.uint32)[..., None], column


def survives(
    key: tuple[UInt32[Array, "..."], UInt32[Array, "..."]],
    row: UInt32[Array, "..."],
    column: UInt32[Array, "..."],
    rate: float,
) -> Bool[Array, "..."]:
    """Whether the elements at these places are kept. Elementwise, so that a kernel may call it for a part of them."""
    return random_words(key, row, column) >= np.uint32(_threshold(rate))


def scale(rate: float) -> float:
    """What survivors are multiplied by."""
    return _WORDS / (_WORDS - _threshold(rate))


def random_words(
    key: tuple[UInt32[Array, "..."], UInt32[Array, "..."]], row: UInt32[Array, "..."], column: UInt32[Array, "..."]
) -> UInt32[Array, "..."]:
    """A random word for each key and place: the finaliser of MurmurHash3 (Appleby) on the place, keyed twice.

    Nine operations a word, where Threefry takes fifty. Keys come from Threefry; only the elements of one mask are told
    apart by this. Rows and columns are below 65,536.
    """
    x = (row << 16) + column + key[0]
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = ((x ^ (x >> 13)) + key[1]) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _threshold(rate: float) -> int:
    """A word below this is dropped."""
    return round(rate * _WORDS)
