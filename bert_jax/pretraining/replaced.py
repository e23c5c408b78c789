"""Replaces masked tokens by what a generator's predictions give for them (Clark et al. 2020, section 2)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bert_jax.layout import Tokens
from bert_jax.model.dropout import of_tokens
from bert_jax.pretraining.masking import Masked


def draw_tokens(logits: Float[Array, "B P V"], masked: Masked, keys: Key[Array, "B N"]) -> Int[Array, "B P"]:
    """A token for each slot, drawn with the probabilities that `logits` give it.

    What is drawn depends on the slot's logits, the key of its sequence and the token's position in that alone: it is
    the same in any batch, in packed rows and on any mesh. The largest sum of a logit and Gumbel noise is such a draw.
    """
    sequence, position = (
        jnp.take_along_axis(of_row, masked.places, axis=1)
        for of_row in (masked.tokens.sequence, masked.tokens.position)
    )
    in_slots = jax.vmap(jax.vmap(jax.random.fold_in))(of_tokens(keys, sequence), position)
    noise = jax.vmap(jax.vmap(lambda key: jax.random.gumbel(key, logits.shape[2:])))(in_slots)
    return jnp.argmax(logits + noise, axis=-1)


def replace_tokens(masked: Masked, drawn: Int[Array, "B P"]) -> tuple[Tokens, Float[Array, "B T"]]:
    """The rows with `drawn` in place of the masked tokens, and 1 where another token than the true one stands."""
    length = masked.tokens.ids.shape[1]

    def put(row: Array, places: Int[Array, " P"], values: Array) -> Array:
        return row.at[places].set(values.astype(row.dtype), mode="drop")

    places = jnp.where(masked.weights > 0, masked.places, length)  # of unused slots outside of the row
    ids = jax.vmap(put)(masked.tokens.ids, places, drawn)
    replaced = jax.vmap(put)(jnp.zeros(ids.shape), places, drawn != masked.labels)
    return masked.tokens._replace(ids=ids), replaced
