"""Units of masking: rates, lengths and replacements as numpy, written apart, draws them; whole units; packed or not."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from unit_texts import LENGTH, MASK_ID, VOCABULARY, Text

from bert_jax.config.objective import UNIT_KINDS, ObjectiveConfig, unit_shares
from bert_jax.config.settings import SettingsError
from bert_jax.layout import ENTITY_START, PHRASE_START, WORD_START
from bert_jax.pretraining.masking import divide_sequences, mask_sequences

SEEDS = 300
BITS = {"word": WORD_START, "phrase": PHRASE_START, "entity": ENTITY_START}
WEIGHTS = {"ngram": [1, 1 / 2, 1 / 3], "span": [0.2 * 0.8**n for n in range(10)]}


@partial(jax.jit, static_argnames="objective")
def mask(tokens, keys, objective):
    return mask_sequences(tokens, keys, objective, mask_id=MASK_ID, vocabulary_size=VOCABULARY)


def divided_by_hand(units, kind, rng):
    """Units as lists of positions, one segment and one word after the other."""
    found = []
    for segment in np.split(np.arange(len(units)), np.flatnonzero(units == 0)):
        segment = [at for at in segment if units[at]]
        left = 0  # words that the last unit still takes
        for at in segment:
            word = units[at] & WORD_START > 0
            if kind == "piece":
                begins = True
            elif kind in BITS:
                begins = units[at] & BITS[kind] > 0
            else:
                begins = word and left == 0
                if begins:
                    weights = np.array(WEIGHTS[kind])
                    left = 1 + rng.choice(len(weights), p=weights / weights.sum())
                left -= word
            if begins:
                found.append([])
            found[-1].append(int(at))
    return found


def chosen_by_hand(divided, count, rng):
    chosen, left = [], count
    for number in rng.permutation(len(divided)):
        if len(divided[number]) <= left:
            chosen.append(divided[number])
            left -= len(divided[number])
    return chosen


def words_of(unit, units):
    return int((units[unit] & WORD_START > 0).sum())


@pytest.mark.parametrize("kind", [kind for kind in UNIT_KINDS if kind != "context"])  # see test_permuted_run.py
@pytest.mark.long(first=1)
def test_rates_lengths_and_replacements_are_those_of_numpy(kind):
    text, objective = Text([LENGTH]), ObjectiveConfig(units=kind)
    units, rng = text.units[0], np.random.default_rng(1)
    tokens = jax.tree.map(lambda array: jnp.repeat(array, SEEDS, axis=0), text.laid_out())
    keys = jax.random.split(jax.random.key(0), SEEDS)[:, None]
    masked = jax.tree.map(np.asarray, mask(tokens, keys, objective))
    starts, _ = jax.jit(divide_sequences, static_argnums=2)(tokens, keys, (kind,))
    found = {"tokens": [], "units": [], "words": []}, {"tokens": [], "units": [], "words": []}
    for row in range(SEEDS):
        used = masked.weights[row] > 0
        places = masked.places[row][used]
        owner = np.cumsum(np.asarray(starts[row]))
        here = [np.flatnonzero((owner == number) & (units > 0)) for number in np.unique(owner[places])]
        assert sum(map(len, here)) == used.sum() <= 19  # whole units, and never more than 0.15 of 128
        there = chosen_by_hand(divided_by_hand(units, kind, rng), 19, rng)
        for facts, chosen in zip(found, (here, there)):
            facts["tokens"].append(sum(map(len, chosen)))
            facts["units"].append(len(chosen))
            facts["words"] += [words_of(unit, units) for unit in chosen]
    for name in found[0]:
        ours, theirs = (np.array(facts[name], float) for facts in found)
        error = np.sqrt(ours.var() / len(ours) + theirs.var() / len(theirs))
        assert abs(ours.mean() - theirs.mean()) <= 3 * error + 1e-9, name
    ours, theirs = (np.array(facts["words"]) for facts in found)
    for count in range(1, 6):
        shares = [(words == count).mean() for words in (ours, theirs)]
        error = np.sqrt(sum(share * (1 - share) / len(words) for share, words in zip(shares, (ours, theirs))))
        assert abs(shares[0] - shares[1]) <= 3 * error + 1e-9, count
    used = masked.weights > 0
    given = np.take_along_axis(masked.tokens.ids, masked.places, axis=1)[used]
    kept, by_mask = given == masked.labels[used], given == MASK_ID
    others = given[~by_mask & ~kept]  # of the whole vocabulary, and no row of its padding
    assert others.min() >= 0 and others.max() < VOCABULARY and len(np.unique(others)) > 0.6 * VOCABULARY
    for share, expected in ((by_mask.mean(), 0.8 + 0.1 / VOCABULARY), (kept.mean(), 0.1 + 0.1 / VOCABULARY)):
        assert abs(share - expected) <= 3 * np.sqrt(expected * (1 - expected) / used.sum())


@pytest.mark.parametrize("units", [*UNIT_KINDS, ("piece:0.4", "span:0.3", "entity:0.3")])
@pytest.mark.parametrize("replaced_by", ["token", "unit"])
@pytest.mark.long(first=1)
def test_a_sequence_has_the_same_masks_in_a_row_of_several(units, replaced_by):
    text = Text(np.random.default_rng(2).integers(5, 40, 24))
    rows = np.arange(24) // 3
    objective = ObjectiveConfig(units=units, replaced_by=replaced_by)
    keys = jax.random.split(jax.random.key(0), 24)
    alone, packed = text.laid_out(), text.laid_out(rows)
    apart = jax.tree.map(np.asarray, mask(alone, keys[:, None], objective))
    together = jax.tree.map(np.asarray, mask(packed, keys.reshape(8, 3), objective))
    assert together.weights.sum() == apart.weights.sum() > 0
    for number, length in enumerate(text.lengths):
        row, begin = rows[number], int(packed.begin[rows[number], number % 3])
        assert np.array_equal(together.tokens.ids[row, begin : begin + length], apart.tokens.ids[number, :length])
        inside = (together.places[row] >= begin) & (together.places[row] < begin + length)
        here = inside & (together.weights[row] > 0)
        assert np.array_equal(together.places[row][here] - begin, apart.places[number][apart.weights[number] > 0])


def test_by_unit_all_tokens_of_a_unit_meet_one_fate():
    text = Text([LENGTH] * 200)
    tokens, keys = text.laid_out(), jax.random.split(jax.random.key(1), 200)[:, None]
    masked = jax.tree.map(np.asarray, mask(tokens, keys, ObjectiveConfig(units="phrase", replaced_by="unit")))
    fates = []
    for row in range(200):
        unit = np.cumsum(text.units[row] & PHRASE_START > 0)
        places = masked.places[row][masked.weights[row] > 0]
        for number in np.unique(unit[places]):
            members = places[unit[places] == number]
            given, true = masked.tokens.ids[row, members], text.ids[row][members]
            by_mask, kept = (given == MASK_ID).mean(), (given == true).mean()
            assert by_mask in (0, 1) or kept < 1  # a random piece may be [MASK] or the true one
            fates.append(by_mask == 1)
    assert abs(np.mean(fates) - 0.8) < 3 * np.sqrt(0.16 / len(fates))


def test_each_sequence_draws_its_kind_by_the_weights():
    tokens, keys = Text([16] * 2000).laid_out(), jax.random.split(jax.random.key(2), 2000)[:, None]
    _, kinds = jax.jit(divide_sequences, static_argnums=2)(tokens, keys, ("piece:2", "word:0", "span:6"))
    assert unit_shares(("piece:2", "word:0", "span:6")) == {"piece": 0.25, "span": 0.75}
    assert abs((np.asarray(kinds) == 1).mean() - 0.75) < 3 * np.sqrt(0.75 * 0.25 / 2000)


@pytest.mark.long
def test_the_share_goes_from_one_value_to_the_other_and_evaluation_has_its_own():
    objective = ObjectiveConfig(masked_share=0.3, masked_share_end=0.15, evaluated_share=0.2)
    tokens, keys = Text([100]).laid_out(), jax.random.split(jax.random.key(3), 1)[:, None]
    run = jax.jit(partial(mask_sequences, objective=objective, mask_id=4, vocabulary_size=VOCABULARY))
    asked = [run(tokens, keys, done=jnp.float32(done)) for done in (0.0, 0.5, 1.0)]
    assert [int(one.weights.sum()) for one in asked] == [30, 22, 15] and asked[0].places.shape == (1, 39)
    measured = mask_sequences(tokens, keys, objective, mask_id=4, vocabulary_size=VOCABULARY, done=None)
    assert measured.weights.sum() == 20 and measured.places.shape == (1, 26)


def test_slots_of_a_packed_row_hold_all_that_its_sequences_are_asked():
    objective, rng = ObjectiveConfig(), np.random.default_rng(4)
    assert [objective.slots(128, sequences) for sequences in (1, 2, 8)] == [20, 21, 24]
    for share in (0.05, 0.15, 0.4):
        objective = ObjectiveConfig(masked_share=share)
        for _ in range(200):
            lengths = rng.multinomial(128 - 8 * 3, rng.dirichlet(np.ones(8))) + 3
            assert sum(max(1, round(share * int(length))) for length in lengths) <= objective.slots(128, 8)


@pytest.mark.parametrize(
    "units, told",
    [
        (("wrd",), ["wrd", "word"]),
        (("word", "word:2"), ["names a kind twice"]),
        (("piece:0.4", "word"), ["weights for some kinds only"]),
        (("piece:0",), ["the weight 0"]),
        (("word:-1",), ["word:-1", "phrase:0.3"]),
        ((), ["units"]),
    ],
)
def test_wrong_units_are_refused_in_one_line(units, told):
    with pytest.raises(SettingsError) as error:
        ObjectiveConfig(units=units)
    assert all(part in str(error.value) for part in told) and "\n" not in str(error.value)
