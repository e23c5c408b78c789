"""Vectors of texts: the encoder with pooling over the tokens of each text (Reimers and Gurevych 2019, section 3)."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.vectors import Pooling
from bert_jax.layout import UNPOOLED, Tokens
from bert_jax.model.bert import BertEncoder, pooled_places
from bert_jax.model.encoder import UNTRAINED

_SHORTEST = 1e-12
"""Least length that a vector is divided by, as in sentence-transformers: the zero vector stays zero."""


class PooledEncoder(nn.Module):
    """The encoder without any head. Its parameters are those of `BertEncoder` without pooler, under `bert`."""

    config: ModelConfig
    pool: Pooling
    execution: ExecutionConfig = UNTRAINED
    frozen_layers: int | None = None
    """Number of first blocks that get no gradient, nor do the embeddings. None: all get one."""

    def setup(self):
        self.bert = BertEncoder(self.config, self.execution, self.frozen_layers)

    def __call__(self, tokens: Tokens, dropout_keys: Key[Array, "B N"] | None = None) -> Float[Array, "B N D"]:
        """The vector of each sequence of each row, in float32 and not normalised; 0 where there is no sequence.

        `dropout_keys` holds one key for each sequence; None means no dropout.
        """
        return pooled(self.config, self.bert(tokens, dropout_keys).tokens.astype(jnp.float32), tokens, self.pool)


def pooled(config: ModelConfig, x: Float[Array, "B T ..."], tokens: Tokens, pool: Pooling) -> Float[Array, "B N ..."]:
    """One vector for each sequence from the vectors `x` of its tokens, [CLS] and [SEP] included; 0 for an absent one.

    Tokens with the unit bit UNPOOLED, the first ones of a sequence, are left out. `cls` takes the vector of the first
    other token or, in a causal model, of the last.
    """
    of_sequence = tokens.sequence[:, None, :] == jnp.arange(1, tokens.length.shape[1] + 1)[None, :, None]
    left_out = of_sequence & ((tokens.units & UNPOOLED) > 0)[:, None, :]
    of_sequence &= ~left_out
    if pool == "mean":
        share = of_sequence / jnp.maximum(of_sequence.sum(axis=-1), 1)[..., None]
        return jnp.einsum("BNT,BT...->BN...", share, x, precision=jax.lax.Precision.HIGHEST)
    there = (tokens.length > 0).reshape(*tokens.length.shape, *[1] * (x.ndim - 2))
    if pool == "cls":
        places = pooled_places(config, tokens) + (0 if config.causal else left_out.sum(axis=-1))
        return jnp.where(there, x[jnp.arange(len(x))[:, None], places], 0)

    def maximum(inside: Array) -> Array:
        return jnp.where(inside.reshape(*inside.shape, *[1] * (x.ndim - 2)), x, -jnp.inf).max(axis=1)

    # One sequence of each row after the other: an array [B, N, T, D] would be large.
    return jnp.where(there, jax.lax.map(maximum, of_sequence.swapaxes(0, 1)).swapaxes(0, 1), 0)


def normalised(x: Float[Array, "... D"], width: int | None = None) -> Float[Array, "... W"]:
    """The first `width` components of each vector (None: all), divided by their Euclidean length."""
    x = x[..., :width]
    return x * jax.lax.rsqrt(jnp.maximum(jnp.sum(jnp.square(x), axis=-1, keepdims=True), _SHORTEST**2))
