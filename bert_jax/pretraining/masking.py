"""Which tokens are to be predicted, and what stands in their place: on the device, anew every epoch."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt8

from bert_jax.config.objective import ObjectiveConfig
from bert_jax.system.batch import MASKABLE, WORD_START


class Masked(NamedTuple):
    """One sequence made into a question (or B of them, with a leading axis)."""

    ids: Int[Array, "*B T"]
    """Input: with some tokens replaced."""
    positions: Int[Array, "*B P"]
    """Where to predict, in order; 0 in slots that aren't used."""
    labels: Int[Array, "*B P"]
    """The tokens that stood there or, of next tokens, that come after."""
    weights: Float[Array, "*B P"]
    """1 for a used slot, 0 for another."""


def mask_sequences(
    ids: Int[Array, "B T"],
    units: UInt8[Array, "B T"],
    length: Int[Array, " B"],
    keys: Key[Array, " B"],
    objective: ObjectiveConfig,
    *,
    mask_id: int,
    vocabulary_size: int,
) -> Masked:
    """Masks each sequence by its own key. Pure, and the same whatever batch the sequence stands in.

    Of the chosen tokens each is replaced by [MASK] with probability 0.8, by any piece with 0.1 and kept with 0.1, as in
    the original; He and Xu (2020), section 4, write exact shares, and another piece than the one that stood there.
    """
    most = ids.shape[1]
    # Made on the host: float32 would round 0.15 n otherwise at n = 190, 350 and 390.
    slots = objective.slots(most)
    counts = jnp.asarray([min(slots, objective.num_predictions(n)) for n in range(most + 1)], jnp.int32)

    def mask_one(ids, units, count, key) -> Masked:
        in_order, in_kind, in_piece = jax.random.split(key, 3)
        maskable = units & MASKABLE > 0
        starts = maskable if objective.masking_unit == "piece" else maskable & (units & WORD_START > 0)
        chosen = choose_units(starts, maskable, count, in_order)
        positions = jnp.sort(jnp.where(chosen, jnp.arange(most), most))[:slots]
        used = positions < most
        labels = ids[jnp.where(used, positions, 0)]
        kind = jax.random.uniform(in_kind, (slots,))
        piece = jax.random.randint(in_piece, (slots,), 0, vocabulary_size)
        masked, replaced = objective.mask_probability, objective.mask_probability + objective.random_probability
        new = jnp.where(kind < masked, mask_id, jnp.where(kind < replaced, piece, labels))
        return Masked(
            ids.at[positions].set(new.astype(ids.dtype), mode="drop"),
            jnp.where(used, positions, 0),
            jnp.where(used, labels, 0),
            used.astype(jnp.float32),
        )

    return jax.vmap(mask_one)(ids, units, counts[length], keys)


def next_tokens(ids: Int[Array, "B T"], length: Int[Array, " B"]) -> Masked:
    """Every token, as it is, with the one that comes next for its label; slot t is position t.

    Nothing comes after the last real token: the [CLS] is never asked for, each [SEP] is.
    """
    at = jnp.arange(ids.shape[1])
    used = at + 1 < length[:, None]
    return Masked(ids, jnp.where(used, at, 0), jnp.where(used, jnp.roll(ids, -1, axis=1), 0), used.astype(jnp.float32))


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
