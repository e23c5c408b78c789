from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_rows import tokens_of

from bert_jax.config.objective import ObjectiveConfig, num_predictions
from bert_jax.layout import MASKABLE, WORD_START
from bert_jax.pretraining.masking import mask_sequences, next_tokens
from bert_jax.pretraining.units import Division, choose_units

LENGTH, VOCABULARY, MASK_ID = 48, 300, 4
PIECES, WORDS = ObjectiveConfig(units="piece"), ObjectiveConfig(units="word")


def sequences(count, seed):
    """Random ids of random lengths with random words; the ends and one token between are special."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, VOCABULARY, (count, LENGTH)).astype(np.int32)
    lengths = rng.integers(5, LENGTH + 1, count).astype(np.int32)
    units = np.where(rng.random((count, LENGTH)) < 0.5, MASKABLE | WORD_START, MASKABLE).astype(np.uint8)
    for row, length in enumerate(lengths):
        middle = int(rng.integers(2, length - 2))
        units[row, [1, middle + 1]] = MASKABLE | WORD_START
        units[row, [0, middle, length - 1]] = 0
        units[row, length:] = 0
        ids[row, length:] = 0
    return ids, units, lengths


@partial(jax.jit, static_argnames="objective")
def mask(tokens, keys, objective):
    return mask_sequences(tokens, keys[:, None], objective, mask_id=MASK_ID, vocabulary_size=VOCABULARY)


def laid_out(ids, units, lengths):
    return tokens_of(ids, mask=np.arange(LENGTH) < np.asarray(lengths)[:, None], units=units)


def masked(count, seed, objective):
    batch = sequences(count, seed)
    keys = jax.random.split(jax.random.key(seed), count)
    return *batch, jax.tree.map(np.asarray, mask(laid_out(*batch), keys, objective))


@given(st.integers(0, 2**31), st.sampled_from([PIECES, WORDS]))
@settings(max_examples=40, deadline=None)
@pytest.mark.long
def test_what_is_masked_is_as_it_should_be(seed, objective):
    ids, units, lengths, result = masked(16, seed, objective)
    assert result.places.shape == (16, objective.slots(LENGTH))
    for row in range(16):
        used = result.weights[row] > 0
        positions = result.places[row][used]
        assert (np.diff(positions) > 0).all()
        assert (units[row, positions] & MASKABLE > 0).all()  # special tokens and padding never
        assert np.array_equal(result.labels[row][used], ids[row, positions])
        assert (result.places[row][~used] == 0).all() and (result.labels[row][~used] == 0).all()
        wanted = min(objective.slots(LENGTH), num_predictions(objective.masked_share, int(lengths[row])))
        others = np.setdiff1d(np.arange(LENGTH), positions)
        assert np.array_equal(result.tokens.ids[row, others], ids[row, others])
        maskable = int((units[row] & MASKABLE > 0).sum())
        if objective is PIECES:
            assert len(positions) == min(wanted, maskable)
        else:
            assert len(positions) <= wanted
            word = np.cumsum(units[row] & WORD_START > 0)
            word[units[row] & MASKABLE == 0] = -1
            for number in set(word[positions]):
                assert set(np.flatnonzero(word == number)) <= set(positions)  # words whole


def test_every_piece_is_chosen_equally_often():
    ids, units, lengths = (np.repeat(array[:1], 6000, axis=0) for array in sequences(1, 3))
    keys = jax.random.split(jax.random.key(0), 6000)
    result = mask(laid_out(ids, units, lengths), keys, PIECES)
    chosen = np.bincount(np.asarray(result.places)[np.asarray(result.weights) > 0], minlength=LENGTH)
    of_maskable = chosen[units[0] & MASKABLE > 0]
    assert (np.abs(of_maskable - of_maskable.mean()) < 5 * np.sqrt(of_maskable.mean())).all()


def greedy(starts, maskable, count, key):
    """Units one by one in the same random order, as the original goes through them."""
    size = len(starts)
    unit = np.where(maskable, np.cumsum(starts) - 1, -1)
    order = np.asarray(jax.random.bits(key, (size,))) >> 1
    chosen, left = np.zeros(size, bool), count
    for number in sorted(set(unit[unit >= 0]), key=lambda number: (order[number], number)):
        members = unit == number
        if members.sum() <= left:
            chosen |= members
            left -= members.sum()
    return chosen


@pytest.mark.parametrize("seed", range(60))
def test_the_rounds_choose_what_going_one_by_one_chooses(seed):
    rng = np.random.default_rng(seed)
    maskable = rng.random(LENGTH) < 0.9
    starts = maskable & (rng.random(LENGTH) < rng.choice([0.2, 0.5, 1.0]))
    starts[np.flatnonzero(maskable)[0]] = True
    for special in np.flatnonzero(~maskable):
        if special + 1 < LENGTH:
            starts[special + 1] = maskable[special + 1]
    count, key = int(rng.integers(1, 12)), jax.random.key(seed)
    tokens = tokens_of(np.zeros((1, LENGTH)), units=np.where(maskable, MASKABLE, 0)[None])
    row = jax.tree.map(lambda array: array[0], tokens)
    division = Division(jnp.asarray(starts), jnp.zeros(LENGTH, bool), jnp.zeros(1, jnp.int32))
    chosen = jax.jit(choose_units)(division, row, jnp.asarray([count], jnp.int32), key[None])
    assert np.array_equal(chosen, greedy(starts, maskable, count, key))


def test_the_next_token_is_asked_for_up_to_the_last_real_one():
    ids, units, lengths = sequences(16, 1)
    asked = jax.tree.map(np.asarray, next_tokens(laid_out(ids, units, lengths)))
    assert np.array_equal(asked.tokens.ids, ids)
    for row, length in enumerate(lengths):
        assert asked.weights[row].tolist() == [1] * (length - 1) + [0] * (LENGTH - length + 1)
        assert np.array_equal(asked.places[row, : length - 1], np.arange(length - 1))
        assert np.array_equal(asked.labels[row, : length - 1], ids[row, 1:length])
        assert not asked.places[row, length - 1 :].any() and not asked.labels[row, length - 1 :].any()
