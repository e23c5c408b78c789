"""Divides sequences into units of masking (tokens that are masked together) and chooses among the units.

Functions take one row, and are mapped over a batch. Random words are drawn for each sequence and indexed within it, so
that a sequence gets the same units and the same choice in any row.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, UInt32

from bert_jax.config.objective import UnitKind
from bert_jax.layout import ENTITY_START, MASKABLE, PHRASE_START, WORD_START, Tokens
from bert_jax.model.dropout import split

_MARKS: dict[UnitKind, int] = {"word": WORD_START, "phrase": PHRASE_START, "entity": ENTITY_START}
"""For each kind of unit, the bit of a token's unit byte that marks the begin of a unit."""
_WORDS: dict[UnitKind, list[float]] = {
    "ngram": [1 / count for count in range(1, 4)],
    "span": [0.8**count for count in range(10)],
}
"""Relative probabilities of units of 1, 2, ... words (Lan et al. 2020, section 3.1; Joshi et al. 2020,
section 3.1)."""
_SPACED_WORDS = [1 / count for count in range(1, 6)]
"""Relative probabilities of spans of 1, 2, ... words within a context (Yang et al. 2019, section 2.6)."""
_CONTEXT = 6
"""Tokens of context for each word of a span within a context."""
_LAST = np.uint32(2**32 - 1)
"""Rank of an index without a unit, after all units: a unit's rank is a bit for units chosen last, then 31 random bits.
"""


class Division(NamedTuple):
    """The division of a row into units. A unit ends before the next unit and before a special token."""

    starts: Bool[Array, " T"]
    """Where units begin."""
    last: Bool[Array, " T"]
    """Where units begin that are chosen only when no other unit is left."""
    kinds: Int[Array, " N"]
    """For each sequence, the index of its kind of units among the kinds."""


def divide(row: Tokens, keys: Key[Array, " N"], shares: Mapping[UnitKind, float]) -> Division:
    """Divides a row into units. If there are several kinds in `shares`, each sequence draws one."""
    kind_keys, word_keys = split(keys, 2)
    starts, last = zip(*(_starts(row, kind, word_keys) for kind in shares), strict=True)
    if len(shares) == 1:
        return Division(starts[0], last[0], jnp.zeros(len(keys), jnp.int32))
    kinds = _draw(jax.vmap(jax.random.bits)(kind_keys), list(shares.values()))
    chosen = kinds[_sequence_numbers(row)], jnp.arange(len(row.ids))
    return Division(jnp.stack(starts)[chosen], jnp.stack(last)[chosen], kinds)


def _starts(row: Tokens, kind: UnitKind, keys: Key[Array, " N"]) -> tuple[Bool[Array, " T"], Bool[Array, " T"]]:
    """Where the units of a kind begin, and which of them are chosen last."""
    maskable = row.units & MASKABLE > 0
    none = jnp.zeros_like(maskable)
    if kind == "piece":
        return maskable, none
    if kind in _MARKS:
        return maskable & (row.units & _MARKS[kind] > 0), none
    random = _words_at(keys, _sequence_numbers(row), row.position)
    if kind == "context":
        begins, inside = _spaced_spans(row, maskable, random)
        single = maskable & ~inside
        return begins | single, single
    return _runs(row, maskable, random, _WORDS[kind]), none


def _runs(
    row: Tokens, maskable: Bool[Array, " T"], random: UInt32[Array, " T"], weights: Sequence[float]
) -> Bool[Array, " T"]:
    """Divides each segment into runs of words, and returns where the runs begin. The number of words of a run is drawn
    by `weights`.

    The last run of a segment is cut at the segment's end. The length of a segment's n-th run comes from the random word
    at the segment's n-th token.
    """
    words = maskable & (row.units & WORD_START > 0)
    after_special = maskable & jnp.roll(~maskable, 1)
    # Each token's segment, as the place of the segment's first token.
    segment = jax.lax.cummax(jnp.where(after_special, jnp.arange(len(words)), 0))

    def before(counts: Int[Array, " T"]) -> Int[Array, " T"]:
        """For each token, the sum over the earlier tokens of its segment."""
        sums = jnp.cumsum(counts) - counts
        return sums - sums[segment]

    word, first_of_run = before(words.astype(jnp.int32)), before(1 + _draw(random, weights))
    same_segment = segment[:, None] == segment
    return words & (same_segment & (word[:, None] == first_of_run)).any(axis=1)


def _spaced_spans(
    row: Tokens, maskable: Bool[Array, " T"], random: UInt32[Array, " T"]
) -> tuple[Bool[Array, " T"], Bool[Array, " T"]]:
    """Where spans begin, and which tokens they contain. A span of n words lies within a context of 6 n other tokens.
    The contexts follow each other from the begin of each segment (Yang et al. 2019, section 2.6, with the lengths of
    its code).

    The random word at the first token of a context decides both n, by its high bits, and how many tokens of the context
    stand before the span, by its low bits. A span begins at the first word after these tokens, and is cut at the
    segment's end.
    """
    words = 1 + _draw(random, _SPACED_WORDS)
    context = _CONTEXT * words
    before = ((random & 0xFFFF) * context.astype(jnp.uint32) >> 16).astype(jnp.int32)

    def step(state, token):
        before, words, after, inside = state  # what is left of the context and its span
        maskable, begins_word, *drawn = token
        done = (before == 0) & (words == 0) & (after == 0)
        before, words, after = (jnp.where(done, new, old) for new, old in zip(drawn, state[:3], strict=True))
        behind = before == 0
        begins = behind & (words > 0) & begins_word
        chosen = maskable & (begins | (behind & inside & ~begins_word))
        is_after = behind & (words == 0) & ~chosen
        left = before - ~behind, words - begins, after - is_after
        state = *(jnp.where(maskable, each, 0) for each in left), chosen
        return state, (chosen & begins & ~inside, chosen)

    begins_word = row.units & WORD_START > 0
    state = *[jnp.zeros((), jnp.int32)] * 3, jnp.zeros((), bool)
    _, spans = jax.lax.scan(step, state, (maskable, begins_word, before, words, context - before))
    return spans


def choose_units(
    division: Division, row: Tokens, counts: Int[Array, " N"], keys: Key[Array, " N"]
) -> Bool[Array, " T"]:
    """Chooses whole units of each sequence in random order. A unit that would exceed the sequence's count of tokens is
    skipped.

    A unit is a start and the maskable tokens after it up to the next start. The result is that of a loop over the
    shuffled units, but each round here takes all units up to the first that doesn't fit. So units of single pieces need
    one round.
    """
    starts, size, several = division.starts, len(row.ids), len(keys) > 1
    maskable = row.units & MASKABLE > 0
    begun = jnp.cumsum(starts)
    unit = jnp.where(maskable, begun - 1, size - 1)
    sizes = jnp.zeros(size, jnp.int32).at[unit].add(maskable.astype(jnp.int32))
    places = jnp.arange(size)
    # The number of each sequence's first unit; for an absent sequence, a number past all units.
    first = jnp.where(row.length > 0, (begun - starts)[row.begin], size)
    own = jnp.maximum(jnp.sum(places[:, None] >= first, axis=1) - 1, 0)
    chosen_last = jnp.zeros(size, jnp.uint32).at[unit].max((division.last & starts).astype(jnp.uint32))
    random = _words_at(keys, own, places - first[own]) >> 1 | chosen_last << 31
    random = jnp.where(sizes > 0, random, _LAST)
    ranks = (jnp.where(sizes > 0, own, len(keys)), random) if several else (random,)
    order = jax.lax.sort((*ranks, places), num_keys=len(ranks), is_stable=True)[-1]
    sizes, own = sizes[order], own[order]

    def sums(counts: Int[Array, " T"]) -> Int[Array, " T"]:
        """Running sums over the units of each sequence, in random order."""
        total = jnp.cumsum(counts)
        return total - (total - counts)[first[own]] if several else total

    def take(carry):
        taken, alive, left = carry
        alive &= sizes <= left[own]
        accepted = alive & (sums(sizes * alive) <= left[own])
        used = jnp.where(own == jnp.arange(len(keys))[:, None], sizes * accepted, 0).sum(axis=1)
        return taken | accepted, alive & ~accepted, left - used

    def unfinished(carry):
        _, alive, left = carry
        return (alive & (sizes <= left[own])).any()

    taken, _, _ = jax.lax.while_loop(unfinished, take, (jnp.zeros(size, bool), sizes > 0, counts))
    return maskable & jnp.zeros(size, bool).at[order].set(taken)[unit]


def _sequence_numbers(row: Tokens) -> Int[Array, " T"]:
    """Number of the sequence that each token belongs to, from 0; also 0 for padding."""
    return jnp.maximum(row.sequence - 1, 0)


def _words_at(keys: Key[Array, " N"], sequence: Int[Array, " U"], number: Int[Array, " U"]) -> UInt32[Array, " U"]:
    """Random words: element i is word `number[i]` of the stream of sequence `sequence[i]`."""
    return jax.vmap(lambda key: jax.random.bits(key, number.shape))(keys)[sequence, number]


def _draw(random: UInt32[Array, "..."], weights: Sequence[float]) -> Int[Array, "..."]:
    """Maps random words to indices of `weights`, each with a probability in proportion to its weight."""
    bounds = np.round(np.cumsum(weights)[:-1] / np.sum(weights) * 2**32)
    # A tiny last weight gives a bound of 2^32, which would be 0 as uint32.
    return jnp.sum(random[..., None] >= np.minimum(bounds, 2**32 - 1).astype(np.uint32), axis=-1)
