"""Dropout whose mask depends on the sequence and the element's place in it, and not on the batch, row or array that
contains the element."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

Word = UInt32[Array, "..."] | UInt32[np.ndarray, "..."]
_WORDS = 1 << 32


def split(keys: Key[Array, "*B"], count: int) -> Key[Array, "N *B"]:
    """Splits each sequence's key into `count` keys (N), one for each use of dropout."""
    parts = functools.partial(jax.random.split, num=count)
    for _ in keys.shape:
        parts = jax.vmap(parts, out_axes=1)
    return parts(keys)


def dropout(
    x: Float[Array, "..."],
    rate: float,
    keys: Key[Array, "*K"] | None,
    rows: Int[Array, "..."] | None = None,
    columns: Int[Array, "..."] | None = None,
) -> Float[Array, "..."]:
    """Zeroes elements of `x` with probability `rate` and scales the others to keep the mean.

    `x` is [*K, D] or [*K, T, D]. `keys` has one key for each vector or matrix of `x`; None means no dropout
    (evaluation). `rows`, [*#K T] for matrices and [*#K] for vectors, number the rows; None: 0 to T - 1, and 0 for a
    vector. `columns`, which broadcast with `x`, number the columns; None: 0 to D - 1. An element's mask depends only on
    its key, row and column: a row has the same mask whether it is computed alone or with others.

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
    """`dropout` of vectors of tokens: a mask depends on the key of the token's sequence and the token's position in it.

    `sequence`: the number of the token's sequence in its row, from 1. `position`: None if each row holds one whole
    sequence.
    """
    if keys is None or not _threshold(rate):
        return x
    if keys.shape[1] == 1:
        return dropout(x, rate, keys[:, 0], position)
    return dropout(x, rate, of_tokens(keys, sequence), position)


def of_tokens(keys: Key[Array, "B N *H"], sequence: Int[Array, "B T"]) -> Key[Array, "B T *H"]:
    """The key of each token's sequence; for padding, the key of the first sequence."""
    return jax.vmap(lambda keys, sequence: keys[jnp.maximum(sequence - 1, 0)])(keys, sequence)


def head_keys(keys: Key[Array, "*L B N"], heads: int) -> Key[Array, "*L B N H"]:
    """The dropout key of each head in each sequence. This key and the positions of an attention's query and key decide
    whether the head's probability is dropped."""
    return jnp.moveaxis(split(keys, heads), 0, -1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _dropped(
    x: Float[Array, "..."],
    keys: UInt32[Array, "*K 2"],
    rows: Int[Array, "..."] | None,
    columns: Int[Array, "..."] | None,
    rate: float,
) -> Float[Array, "..."]:
    inner = x.shape[keys.ndim - 1 :]
    first, second = (keys[..., half].reshape(*keys.shape[:-1], *[1] * len(inner)) for half in range(2))
    if rows is None:
        rows = jnp.arange(inner[0] if len(inner) > 1 else 1)
    # The barriers keep XLA from recomputing the words for each element. The words of an arange are constants.
    row = jax.lax.optimization_barrier(row_word(first, rows.astype(jnp.uint32)[..., None]))
    if columns is None:
        column = jnp.asarray(column_word(np.arange(inner[-1], dtype=np.uint32)))
    else:
        column = jax.lax.optimization_barrier(column_word(columns.astype(jnp.uint32)))
    keep = survives(row, second, column, rate)
    return jnp.where(keep, x.astype(jnp.float32) * scale(rate), 0.0).astype(x.dtype)


def _forward(x, keys, rows, columns, rate):
    return _dropped(x, keys, rows, columns, rate), (keys, rows, columns)


def _backward(rate, residuals, gradient):
    return _dropped(gradient, *residuals, rate), None, None, None


_dropped.defvjp(_forward, _backward)


def row_word(first: Array, row: Array) -> Array:
    """One random word for each row of a mask, from the first half of its key."""
    return _mixed(row + first)


def column_word(column: Word) -> Word:
    """A hash of each column's number, the same in all masks."""
    return _mixed(column + np.uint32(0x9E3779B9))


def survives(row: Array, second: Array, column: Word, rate: float) -> Bool[Array, "..."]:
    """Whether elements are kept, by the words of their row and column and `second`, the second half of the key.

    Each element gets a random word from six operations, where Threefry takes fifty: the xor of both words goes through
    half of MurmurHash3's finaliser, and `second` is added. Keys come from Threefry; this function only distinguishes
    the elements of one mask. It is elementwise, so a kernel may call it for a part of a mask.
    """
    x = (row ^ column) * np.uint32(0x85EBCA6B)
    return (x ^ (x >> 15)) * np.uint32(0xC2B2AE35) + second >= np.uint32(_threshold(rate))


def scale(rate: float) -> float:
    """The factor of the elements that are kept."""
    return _WORDS / (_WORDS - _threshold(rate))


def _mixed(x):
    """The finaliser of MurmurHash3 (Appleby): each bit of the result depends on every bit of `x`."""
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _threshold(rate: float) -> int:
    """Elements with a word below this are dropped."""
    return round(rate * _WORDS)
