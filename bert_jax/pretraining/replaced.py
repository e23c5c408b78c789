"""Replaces masked tokens by tokens drawn from a generator's predictions (Clark et al. 2020, section 2)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bert_jax.layout import Tokens
from bert_jax.model.dropout import of_tokens
from bert_jax.model.placement import split_by_rows
from bert_jax.pretraining.masking import Masked

_BLOCK = 128
"""Tokens of the vocabulary in a block: first the block of a drawn token is found, then the token in it."""


def draw_tokens(logits: Float[Array, "B P V"], masked: Masked, keys: Key[Array, "B N"]) -> Int[Array, "B P"]:
    """A token for each slot, drawn with the probabilities that `logits` give it.

    The draw depends only on the slot's logits, the key of its sequence and the token's position in the sequence, so it
    is the same in any batch, in packed rows and on any mesh. It is the first token at which the cumulative probability
    exceeds a uniform number. That takes one random number a slot; Gumbel noise would take one for each token of the
    vocabulary.
    """
    sequence, position = (
        jnp.take_along_axis(of_row, masked.places, axis=1)
        for of_row in (masked.tokens.sequence, masked.tokens.position)
    )
    in_slots = jax.vmap(jax.vmap(jax.random.fold_in))(of_tokens(keys, sequence), position)
    uniform = jax.vmap(jax.vmap(jax.random.uniform))(in_slots)
    # Not split by `tensor`: otherwise blocks of the vocabulary would be moved between devices.
    logits = split_by_rows(logits.astype(jnp.float32))
    to_fill = [(0, 0), (0, 0), (0, -logits.shape[2] % _BLOCK)]
    of_blocks = jnp.pad(logits, to_fill, constant_values=-jnp.inf).reshape(*logits.shape[:2], -1, _BLOCK)
    largest = jnp.max(logits, axis=-1, keepdims=True)
    weights = jnp.sum(jnp.exp(of_blocks - largest[..., None]), axis=-1)
    block, left = _first_beyond(weights, uniform * jnp.sum(weights, axis=-1))
    of_block = jnp.take_along_axis(of_blocks, block[..., None, None], axis=2)[:, :, 0]
    token, _ = _first_beyond(jnp.exp(of_block - largest), left)
    return block * _BLOCK + token


def _first_beyond(
    weights: Float[Array, "B P n"], sums: Float[Array, "B P"]
) -> tuple[Int[Array, "B P"], Float[Array, "B P"]]:
    """The index at which the running sum of `weights` first exceeds `sums`, and `sums` less the weights before it.

    An index of weight 0 is never returned, although rounding may raise a running sum there or make `sums` negative. If
    no running sum exceeds `sums`, the index of the largest weight is returned.
    """
    running = jnp.cumsum(weights, axis=-1)
    beyond = (running > sums[..., None]) & (weights > 0)
    first = jnp.where(beyond.any(axis=-1), jnp.argmax(beyond, axis=-1), jnp.argmax(weights, axis=-1))
    before = jnp.take_along_axis(running - weights, first[..., None], axis=-1)
    return first, sums - before[..., 0]


def replace_tokens(masked: Masked, drawn: Int[Array, "B P"]) -> tuple[Tokens, Float[Array, "B T"]]:
    """The rows with `drawn` in place of the masked tokens, and 1 where that changed a token."""
    length = masked.tokens.ids.shape[1]

    def put(row: Array, places: Int[Array, " P"], values: Array) -> Array:
        return row.at[places].set(values.astype(row.dtype), mode="drop")

    places = jnp.where(masked.weights > 0, masked.places, length)  # unused slots get a place outside the row
    ids = jax.vmap(put)(masked.tokens.ids, places, drawn)
    replaced = jax.vmap(put)(jnp.zeros(ids.shape), places, drawn != masked.labels)
    return masked.tokens._replace(ids=ids), replaced
