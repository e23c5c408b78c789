"""Masking on the device: draws the tokens to predict and their replacements, differently in every epoch."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.config.objective import ObjectiveConfig, Units, num_predictions, unit_shares
from bert_jax.layout import Tokens
from bert_jax.model.dropout import of_tokens, split
from bert_jax.model.placement import split_by_rows
from bert_jax.pretraining.units import choose_units, divide


class MaskingKeys(NamedTuple):
    """The keys of a sequence, one for each random choice."""

    order: Key[Array, "*N"]
    """The order in which units are chosen."""
    kind: Key[Array, "*N"]
    """Whether a chosen token is replaced by [MASK], replaced by a random piece, or kept. For permuted tokens, which are
    all kept, the order of their prediction."""
    piece: Key[Array, "*N"]
    """The random piece that replaces a chosen token."""
    units: Key[Array, "*N"]
    """The division of the tokens into units."""
    generator: Key[Array, "*N"]
    """The piece that is drawn from a generator's prediction."""

    @classmethod
    def of(cls, keys: Key[Array, "*N"]) -> "MaskingKeys":
        """Splits each sequence's key."""
        return cls(*split(keys, len(cls._fields)))


class Masked(NamedTuple):
    """B masked rows, with P slots in each for the tokens to predict."""

    tokens: Tokens
    """The model's input, in which some ids are replaced."""
    places: Int[Array, "B P"]
    """Places in the row of the tokens to predict; 0 in unused slots."""
    labels: Int[Array, "B P"]
    """The original ids at these places or, for next-token prediction, the ids that follow (or precede)."""
    weights: Float[Array, "B P"]
    """1 for a used slot, 0 for an unused one."""


def mask_sequences(
    tokens: Tokens,
    keys: Key[Array, "B N"],
    objective: ObjectiveConfig,
    *,
    mask_id: int,
    vocabulary_size: int,
    units: Units | None = None,
    done: float | Float[Array, ""] | None = 0.0,
) -> Masked:
    """Masks each sequence by its own key, the same in any batch and row.

    `units`: the kinds of units; None: the objective's. `done`: the share of the phase's steps done so far, from 0 to 1,
    on which the share of tokens to predict may depend; None: this is an evaluation.

    By default each chosen token is replaced by [MASK] with probability 0.8, by a random piece with 0.1 and kept with
    0.1, as in the original. A row's slots are in the order of its tokens.
    """
    length, sequences = tokens.ids.shape[1], keys.shape[1]
    slots = objective.slots(length, sequences, evaluated=done is None)
    slots_of_one = objective.slots(length, evaluated=done is None)
    counts = jnp.minimum(_counts(objective, tokens.length, length, done), slots_of_one)
    shares = unit_shares(units or objective.units)
    masked, replaced = objective.mask_probability, objective.mask_probability + objective.random_probability

    def mask_row(row: Tokens, counts: Int[Array, " N"], keys: Key[Array, " N"]) -> Masked:
        drawing = MaskingKeys.of(keys)
        divided = divide(row, drawing.units, shares)
        chosen = choose_units(divided, row, counts, drawing.order)
        places = jnp.sort(jnp.where(chosen, jnp.arange(length), length))[:slots]
        used = places < length
        places = jnp.where(used, places, 0)
        sequence = jnp.maximum(row.sequence[places] - 1, 0)
        # Random numbers of a token are indexed by its number among the chosen tokens of its sequence.
        chosen_yet = jnp.cumsum(chosen)
        number = (chosen_yet - 1)[places] - (chosen_yet - chosen)[row.begin][sequence]
        decided = number
        if objective.replaced_by == "unit":  # by the random number of the unit's first token
            decided -= (chosen_yet - jax.lax.cummax(jnp.where(divided.starts, chosen_yet, 0)))[places]
        kind = jax.vmap(lambda key: jax.random.uniform(key, (slots_of_one,)))(drawing.kind)[sequence, decided]
        drawn = jax.vmap(lambda key: jax.random.randint(key, (slots_of_one,), 0, vocabulary_size))(drawing.piece)
        labels = row.ids[places]
        pieces = jnp.where(kind < replaced, drawn[sequence, number].astype(labels.dtype), labels)
        pieces = jnp.where(kind < masked, mask_id, pieces)
        ids = row.ids.at[jnp.where(used, places, length)].set(pieces.astype(row.ids.dtype), mode="drop")
        return Masked(row._replace(ids=ids), places, jnp.where(used, labels, 0), used.astype(jnp.float32))

    return jax.vmap(mask_row)(tokens, counts, keys)


def divide_sequences(
    tokens: Tokens, keys: Key[Array, "B N"], units: Units
) -> tuple[Bool[Array, "B T"], Int[Array, "B N"]]:
    """Whether a token begins a unit for `mask_sequences`, and the index in `units` of each sequence's kind."""
    divided = jax.vmap(lambda row, keys: divide(row, MaskingKeys.of(keys).units, unit_shares(units)))(tokens, keys)
    return divided.starts, divided.kinds


def _counts(
    objective: ObjectiveConfig, lengths: Int[Array, "B N"], longest: int, done: float | Float[Array, ""] | None
) -> Int[Array, "B N"]:
    """The number of tokens to predict of each sequence."""
    begin, end = objective.masked_share, objective.masked_share_end
    if done is None or end is None:
        share = objective.evaluated_share if done is None else begin
        # Computed on the host: float32 would round 0.15 n differently at n = 190, 350 and 390.
        return jnp.asarray([num_predictions(share, length) for length in range(longest + 1)], jnp.int32)[lengths]
    return jnp.maximum(jnp.round((begin + (end - begin) * done) * lengths), 1).astype(jnp.int32)


def next_tokens(tokens: Tokens) -> Masked:
    """The unchanged tokens, each labelled with the next one of its sequence; slot t is place t.

    A sequence's last token has no label. [CLS] is never a label, each [SEP] is.
    """
    at = jnp.arange(tokens.ids.shape[1])
    following = jnp.roll(tokens.sequence, -1, axis=1).at[:, -1].set(0)
    used = (tokens.sequence > 0) & (following == tokens.sequence)
    labels = jnp.where(used, jnp.roll(tokens.ids, -1, axis=1), 0)
    return Masked(tokens, jnp.where(used, at, 0), labels, used.astype(jnp.float32))


def order_of_prediction(masked: Masked, keys: Key[Array, "B N"]) -> Int[Array, "B T"]:
    """Each token's rank in a random order of the tokens to predict, -1 for all other tokens (Yang et al. 2019, section
    2.6). The tokens of a second segment come after those of the first, so each segment is permuted by itself.
    """
    random = jax.vmap(jax.vmap(jax.random.bits))(_slot_keys(masked, keys))
    length = masked.tokens.ids.shape[1]

    def order_row(tokens: Tokens, places: Int[Array, " P"], used: Bool[Array, " P"], random: Array) -> Int[Array, " T"]:
        order = jnp.lexsort((random, tokens.segment[places], tokens.sequence[places], ~used))
        places = jnp.where(used, places, length)[order]  # unused slots get a place outside the row
        return jnp.full(length, -1).at[places].set(jnp.arange(len(places)), mode="drop")

    return jax.vmap(order_row)(masked.tokens, masked.places, masked.weights > 0, random)


def _slot_keys(masked: Masked, keys: Key[Array, "B N"]) -> Key[Array, "B P"]:
    """A key for each slot, from the key of its sequence and the position of its token in the sequence."""
    sequence, position = (
        jnp.take_along_axis(values, masked.places, axis=1)
        for values in (masked.tokens.sequence, masked.tokens.position)
    )
    return jax.vmap(jax.vmap(jax.random.fold_in))(of_tokens(keys, sequence), position)


def neighbours(tokens: Tokens) -> Masked:
    """The unchanged tokens, each labelled with the next and with the previous one of its sequence; slots 2t and 2t + 1
    are place t.

    A sequence's last token has no next label, its first token no previous one. [CLS] and each [SEP] are labels.
    """
    after, place = next_tokens(tokens), jnp.arange(tokens.ids.shape[1])
    used = jnp.pad(after.weights[:, :-1], ((0, 0), (1, 0)))
    before = jnp.where(used > 0, jnp.roll(tokens.ids, 1, axis=1), 0)
    pairs = (after.places, jnp.where(used > 0, place, 0)), (after.labels, before), (after.weights, used)
    return Masked(tokens, *(jnp.stack(pair, axis=-1).reshape(len(used), -1) for pair in pairs))


_BLOCK = 128
"""Tokens of the vocabulary in a block: first the block of a drawn token is found, then the token in it."""


def draw_tokens(logits: Float[Array, "B P V"], masked: Masked, keys: Key[Array, "B N"]) -> Int[Array, "B P"]:
    """A token for each slot, drawn with the probabilities that `logits` give it.

    The draw depends only on the slot's logits, the key of its sequence and the token's position in the sequence, so it
    is the same in any batch, in packed rows and on any mesh. It is the first token at which the cumulative probability
    exceeds a uniform number. That takes one random number a slot; Gumbel noise would take one for each token of the
    vocabulary.
    """
    uniform = jax.vmap(jax.vmap(jax.random.uniform))(_slot_keys(masked, keys))
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
