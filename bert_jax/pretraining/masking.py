"""Masking on the device: draws the tokens to predict and their replacements, anew in every epoch."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.config.objective import ObjectiveConfig
from bert_jax.layout import MASKABLE, WORD_START, Tokens


class Masked(NamedTuple):
    """B masked rows, with P slots in each for the tokens to predict."""

    tokens: Tokens
    """The model's input: some ids are replaced."""
    places: Int[Array, "B P"]
    """Places in the row of the tokens to predict; 0 in unused slots."""
    labels: Int[Array, "B P"]
    """The original ids at these places or, for next-token prediction, the ids that follow."""
    weights: Float[Array, "B P"]
    """1 for a used slot, 0 for an unused one."""


def mask_sequences(
    tokens: Tokens, keys: Key[Array, "B N"], objective: ObjectiveConfig, *, mask_id: int, vocabulary_size: int
) -> Masked:
    """Masks each sequence by its own key. Pure, and the same whatever batch the sequence stands in.

    Of the chosen tokens each is replaced by [MASK] with probability 0.8, by any piece with 0.1 and kept with 0.1, as in
    the original; He and Xu (2020), section 4, write exact shares, and another piece than the one that stood there.
    A row's slots are those of its first sequence, then those of the next.
    """
    most = tokens.ids.shape[1]
    # Made on the host: float32 would round 0.15 n otherwise at n = 190, 350 and 390.
    slots = objective.slots(most)
    counts = jnp.asarray([min(slots, objective.num_predictions(n)) for n in range(most + 1)], jnp.int32)

    def ask(row: Tokens, sequence, count, key) -> tuple[Int[Array, " P"], Int[Array, " P"]]:
        """Chooses places in one sequence of a row (T in unused slots) and the ids to put there."""
        in_order, in_kind, in_piece = jax.random.split(key, 3)
        maskable = (row.units & MASKABLE > 0) & (row.sequence == sequence)
        starts = maskable if objective.masking_unit == "piece" else maskable & (row.units & WORD_START > 0)
        chosen = choose_units(starts, maskable, count, in_order)
        places = jnp.sort(jnp.where(chosen, jnp.arange(most), most))[:slots]
        kind = jax.random.uniform(in_kind, (slots,))
        piece = jax.random.randint(in_piece, (slots,), 0, vocabulary_size)
        masked, replaced = objective.mask_probability, objective.mask_probability + objective.random_probability
        kept = row.ids[jnp.where(places < most, places, 0)]
        return places, jnp.where(kind < masked, mask_id, jnp.where(kind < replaced, piece, kept)).astype(row.ids.dtype)

    def mask_row(row: Tokens, keys: Key[Array, " N"]) -> Masked:
        sequences = jnp.arange(1, len(keys) + 1)
        places, pieces = jax.vmap(ask, in_axes=(None, 0, 0, 0))(row, sequences, counts[row.length], keys)
        places, pieces = places.reshape(-1), pieces.reshape(-1)
        used = places < most
        masked = row._replace(ids=row.ids.at[places].set(pieces, mode="drop"))
        places = jnp.where(used, places, 0)
        return Masked(masked, places, jnp.where(used, row.ids[places], 0), used.astype(jnp.float32))

    return jax.vmap(mask_row)(tokens, keys)


def next_tokens(tokens: Tokens) -> Masked:
    """Every token, as it is, with the one that comes next in its sequence for its label; slot t is place t.

    Nothing comes after a sequence's last token: the [CLS] is never asked for, each [SEP] is.
    """
    at = jnp.arange(tokens.ids.shape[1])
    following = jnp.roll(tokens.sequence, -1, axis=1).at[:, -1].set(0)
    used = (tokens.sequence > 0) & (following == tokens.sequence)
    labels = jnp.where(used, jnp.roll(tokens.ids, -1, axis=1), 0)
    return Masked(tokens, jnp.where(used, at, 0), labels, used.astype(jnp.float32))


def choose_units(
    starts: Bool[Array, " T"], maskable: Bool[Array, " T"], count: Int[Array, ""], key: Key[Array, ""]
) -> Bool[Array, " T"]:
    """Chooses whole units in random order as long as they fit: one that would pass `count` tokens is skipped.

    A unit is a start and the maskable tokens after it up to the next start. The result is that of going through the
    shuffled units one by one; here each round takes all units up to the first that doesn't fit, so single pieces
    take one round.
    """
    size = len(starts)
    unit = jnp.where(maskable, jnp.cumsum(starts) - 1, size - 1)
    sizes = jnp.zeros(size, jnp.int32).at[unit].add(maskable.astype(jnp.int32))
    last = np.uint32(2**32 - 1)
    order = jnp.argsort(jnp.where(sizes > 0, jax.random.bits(key, (size,)) >> 1, last))
    sizes = sizes[order]

    def fits(alive, left):
        return alive & (sizes <= left)

    def take(carry):
        taken, alive, left = carry
        alive = fits(alive, left)
        accepted = alive & (jnp.cumsum(sizes * alive) <= left)
        return taken | accepted, alive & ~accepted, left - jnp.sum(sizes * accepted)

    def unfinished(carry):
        _, alive, left = carry
        return fits(alive, left).any()

    taken, _, _ = jax.lax.while_loop(unfinished, take, (jnp.zeros(size, bool), sizes > 0, count))
    return maskable & jnp.zeros(size, bool).at[order].set(taken)[unit]
