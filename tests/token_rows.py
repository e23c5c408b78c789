"""Rows of tokens for tests, made by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.layout import Tokens, lay_out


def tokens_of(ids, segments=None, mask=None, units=None) -> Tokens:
    """One sequence a row as JAX arrays: of ids, segments, what isn't padding (all without `mask`) and unit bytes."""
    ids = np.asarray(ids, np.int32)
    mask = np.ones(ids.shape, bool) if mask is None else np.asarray(mask, bool)
    segments = np.zeros(ids.shape, np.int32) if segments is None else np.asarray(segments, np.int32)
    length = mask.sum(axis=-1, keepdims=True, dtype=np.int32)
    arrays = (
        ids,
        mask.astype(np.int32),
        np.where(mask, np.arange(ids.shape[-1]), 0).astype(np.int32),
        segments,
        np.zeros(ids.shape, np.uint8) if units is None else np.asarray(units, np.uint8),
        np.zeros_like(length),
        length,
    )
    return Tokens(*map(jnp.asarray, arrays))


def packed_tokens(lengths, width) -> Tokens:
    """Rows of `width` tokens with sequences of these lengths, given for each row, as JAX arrays."""
    each = np.array([length for row in lengths for length in row])
    rows = np.array([number for number, row in enumerate(lengths) for _ in row])
    shape, most = (len(lengths), width), max(map(len, lengths))
    return jax.tree.map(jnp.asarray, lay_out(np.ones(each.sum(), int), each, each, shape, rows=rows, most=most))
