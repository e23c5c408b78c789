"""Masking: rates, lengths and replacements as numpy, written apart, draws them; whole units; packed or not; the order
of permuted prediction."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from token_rows import tokens_of
from unit_texts import LENGTH, MASK_ID, VOCABULARY, Text

from bert_jax import configs
from bert_jax.config.objective import HELD_OUT_MASKS, UNIT_KINDS, ObjectiveConfig, num_predictions, unit_shares
from bert_jax.config.settings import SettingsError
from bert_jax.layout import ENTITY_START, MASKABLE, PHRASE_START, WORD_START
from bert_jax.pretraining.masking import MaskingKeys, divide_sequences, mask_sequences, next_tokens, order_of_prediction
from bert_jax.pretraining.units import _SPACED_WORDS, Division, _draw, _spaced_spans, choose_units, divide

SEEDS = 300
BITS = {"word": WORD_START, "phrase": PHRASE_START, "entity": ENTITY_START}
WEIGHTS = {"ngram": [1, 1 / 2, 1 / 3], "span": [0.2 * 0.8**n for n in range(10)]}
PIECES, WORDS = ObjectiveConfig(units="piece"), ObjectiveConfig(units="word")
PERMUTED = configs.xlnet_base.objective.replacing


@partial(jax.jit, static_argnames="objective")
def mask(tokens, keys, objective):
    return mask_sequences(tokens, keys, objective, mask_id=MASK_ID, vocabulary_size=VOCABULARY)


def masked_text(text, objective, seed=0):
    """The rows of a text, each with one sequence, their keys, and what is masked of them."""
    tokens, keys = text.laid_out(), keys_of(len(text.lengths), seed)
    return tokens, keys, jax.tree.map(np.asarray, mask(tokens, keys, objective))


def keys_of(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)[:, None]


def repeated(text, count):
    """So many rows with the same sequence."""
    return jax.tree.map(lambda array: jnp.repeat(array, count, axis=0), text.laid_out())


@pytest.mark.parametrize("objective", [PIECES, WORDS], ids=["pieces", "words"])
@pytest.mark.long
def test_what_is_masked_is_as_it_should_be(objective):
    text = Text(np.random.default_rng(0).integers(5, LENGTH + 1, 300))
    tokens, _, result = masked_text(text, objective)
    ids, units = np.asarray(tokens.ids), np.asarray(tokens.units)
    assert result.places.shape == (300, objective.slots(LENGTH))
    for row, length in enumerate(text.lengths):
        used = result.weights[row] > 0
        positions = result.places[row][used]
        assert (np.diff(positions) > 0).all()
        assert (units[row, positions] & MASKABLE > 0).all()  # special tokens and padding never
        assert np.array_equal(result.labels[row][used], ids[row, positions])
        assert (result.places[row][~used] == 0).all() and (result.labels[row][~used] == 0).all()
        wanted = min(objective.slots(LENGTH), num_predictions(objective.masked_share, int(length)))
        others = np.setdiff1d(np.arange(LENGTH), positions)
        assert np.array_equal(result.tokens.ids[row, others], ids[row, others])
        if objective is PIECES:
            assert len(positions) == min(wanted, (units[row] & MASKABLE > 0).sum())
        else:
            assert len(positions) <= wanted
            word = np.cumsum(units[row] & WORD_START > 0)
            word[units[row] & MASKABLE == 0] = -1
            for number in set(word[positions]):
                assert set(np.flatnonzero(word == number)) <= set(positions)  # words whole


BEFORE = ObjectiveConfig(units="word", pair="none", tags="a.conllu")
AFTER = {
    **{"class_name": "Own", "generator_weight": 2.0, "discriminator_weight": 2.0, "pair": "sentence_order"},
    **{"tags": None, "tags_weight": 2.0, "tags_hash": "0", "units": "piece", "masked_share": 0.5},
    **{"masked_share_end": 0.5, "evaluated_share": 0.5, "mask_probability": 0.2, "random_probability": 0.2},
    **{"replaced_by": "unit"},
}
"""For each setting but predict, another value than in BEFORE."""


@pytest.mark.parametrize("name", sorted(ObjectiveConfig.model_fields.keys() - {"predict"}))
def test_measurements_record_each_setting_that_changes_held_out_masks(name):
    """Runs whose held-out masks differ would otherwise count as measured on the same ones."""
    before = BEFORE if name != "pair" else BEFORE.replace(tags=None)
    tokens, keys = Text(np.full(8, LENGTH)).laid_out(), keys_of(8)
    masks = [
        mask_sequences(tokens, keys, one, mask_id=MASK_ID, vocabulary_size=VOCABULARY, done=None)
        for one in (before, before.replace(**{name: AFTER[name]}))
    ]
    equal = [np.array_equal(*pair) for pair in zip(*map(jax.tree.leaves, masks), strict=True)]
    assert all(equal) != (name in HELD_OUT_MASKS)


def test_every_piece_is_chosen_equally_often():
    text = Text([48])
    result = mask(repeated(text, 6000), keys_of(6000), PIECES)
    chosen = np.bincount(np.asarray(result.places)[np.asarray(result.weights) > 0], minlength=48)
    of_maskable = chosen[text.units[0] & MASKABLE > 0]
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
    rng, size = np.random.default_rng(seed), 48
    maskable = rng.random(size) < 0.9
    starts = maskable & (rng.random(size) < rng.choice([0.2, 0.5, 1.0]))
    starts[np.flatnonzero(maskable)[0]] = True
    for special in np.flatnonzero(~maskable):
        if special + 1 < size:
            starts[special + 1] = maskable[special + 1]
    count, key = int(rng.integers(1, 12)), jax.random.key(seed)
    tokens = tokens_of(np.zeros((1, size)), units=np.where(maskable, MASKABLE, 0)[None])
    row = jax.tree.map(lambda array: array[0], tokens)
    division = Division(jnp.asarray(starts), jnp.zeros(size, bool), jnp.zeros(1, jnp.int32))
    chosen = jax.jit(choose_units)(division, row, jnp.asarray([count], jnp.int32), key[None])
    assert np.array_equal(chosen, greedy(starts, maskable, count, key))


def test_the_next_token_is_asked_for_up_to_the_last_real_one():
    text = Text([5, 60, LENGTH])
    tokens = text.laid_out()
    asked = jax.tree.map(np.asarray, next_tokens(tokens))
    assert np.array_equal(asked.tokens.ids, tokens.ids)
    for row, length in enumerate(text.lengths):
        assert asked.weights[row].tolist() == [1] * (length - 1) + [0] * (LENGTH - length + 1)
        assert np.array_equal(asked.places[row, : length - 1], np.arange(length - 1))
        assert np.array_equal(asked.labels[row, : length - 1], text.ids[row][1:])
        assert not asked.places[row, length - 1 :].any() and not asked.labels[row, length - 1 :].any()


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


@pytest.mark.parametrize("kind", [kind for kind in UNIT_KINDS if kind != "context"])  # see the spans below
@pytest.mark.long(first=1)
def test_rates_lengths_and_replacements_are_those_of_numpy(kind):
    text, objective = Text([LENGTH]), ObjectiveConfig(units=kind)
    units, rng = text.units[0], np.random.default_rng(1)
    tokens, keys = repeated(text, SEEDS), keys_of(SEEDS)
    masked = jax.tree.map(np.asarray, mask(tokens, keys, objective))
    starts, _ = jax.jit(divide_sequences, static_argnums=2)(tokens, keys, (kind,))
    found = [{"tokens": [], "units": [], "words": []} for _ in range(2)]
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
    _, _, masked = masked_text(text, ObjectiveConfig(units="phrase", replaced_by="unit"), seed=1)
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
    tokens, keys = Text([16] * 2000).laid_out(), keys_of(2000, 2)
    _, kinds = jax.jit(divide_sequences, static_argnums=2)(tokens, keys, ("piece:2", "word:0", "span:6"))
    assert unit_shares(("piece:2", "word:0", "span:6")) == {"piece": 0.25, "span": 0.75}
    assert abs((np.asarray(kinds) == 1).mean() - 0.75) < 3 * np.sqrt(0.75 * 0.25 / 2000)


@pytest.mark.parametrize("weights, index", [([1, 1e-10], 0), ([1e-10, 1], 1)])
def test_a_tiny_weight_takes_nothing_from_the_others(weights, index):
    words = jax.numpy.array([1, 2**31, 2**32 - 2], jax.numpy.uint32)
    assert _draw(words, weights).tolist() == [index] * 3


@pytest.mark.long
def test_the_share_goes_from_one_value_to_the_other_and_evaluation_has_its_own():
    objective = ObjectiveConfig(masked_share=0.3, masked_share_end=0.15, evaluated_share=0.2)
    tokens, keys = Text([100]).laid_out(), keys_of(1, 3)
    run = jax.jit(partial(mask_sequences, objective=objective, mask_id=4, vocabulary_size=VOCABULARY))
    asked = [run(tokens, keys, done=jnp.float32(done)) for done in (0.0, 0.5, 1.0)]
    assert [int(one.weights.sum()) for one in asked] == [30, 22, 15] and asked[0].places.shape == (1, 39)
    measured = run(tokens, keys, done=None)
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
        (("word", "word:2"), ["names a kind twice"]),
        (("piece:0",), ["the weight 0"]),
        (("word:-1",), ["word:-1", "phrase:0.3"]),
        ((), ["units"]),
    ],
)
def test_wrong_units_are_refused_in_one_line(units, told):
    with pytest.raises(SettingsError) as error:
        ObjectiveConfig(units=units)
    assert all(part in str(error.value) for part in told) and "\n" not in str(error.value)


@jax.jit
def order(masked, keys):
    return order_of_prediction(masked, MaskingKeys.of(keys).kind)


@pytest.mark.long
def test_no_token_is_replaced_and_a_sixth_is_predicted_in_an_order_of_its_own():
    text = Text([128, 100, 60, 33] * 64)
    tokens, keys, masked = masked_text(text, PERMUTED)
    ranks = np.asarray(order(masked, keys))
    assert np.array_equal(masked.tokens.ids, tokens.ids)
    counts = masked.weights.sum(axis=1)
    assert abs(counts.sum() / text.lengths.sum() * 6 - 1) < 0.01
    assert [round(length / 6) for length in text.lengths] == counts.tolist()
    orders = set()
    for row, (places, used) in enumerate(zip(masked.places, masked.weights > 0, strict=True)):
        targets = places[used]
        assert sorted(ranks[row, targets]) == list(range(len(targets)))
        assert (np.delete(ranks[row], targets) == -1).all()
        # The targets of the second segment come after those of the first.
        second = tokens.segment[row, targets] > 0
        first, then = ranks[row, targets[~second]], ranks[row, targets[second]]
        assert not (len(first) and len(then)) or first.max() < then.min()
        orders.add(tuple(np.argsort(ranks[row, targets])[:5]))
    assert len(orders) > 100


@pytest.mark.long
def test_packed_sequences_have_the_targets_and_the_order_that_they_have_alone():
    text = Text([50, 40, 38])
    _, keys, alone = masked_text(text, PERMUTED, seed=1)
    together = mask(text.laid_out(rows=np.zeros(3, int)), keys.T, PERMUTED)
    ranks, of_row = np.asarray(order(alone, keys)), np.asarray(order(together, keys.T))
    begin = 0
    for number, length in enumerate(text.lengths):
        own, inside = ranks[number, :length], of_row[0, begin : begin + length]
        assert np.array_equal(own >= 0, inside >= 0)
        assert np.array_equal(np.argsort(own[own >= 0]), np.argsort(inside[inside >= 0]))
        begin += length


def spans_by_hand(units, drawn):
    """Spans and their tokens, token by token; `drawn`: for each place (words, tokens of context before the span)."""
    starts, inside = [], []
    before = words = after = 0
    is_inside = False
    for place, unit in enumerate(units):
        if not unit:
            before = words = after = 0
            is_inside = False
            continue
        if before == words == after == 0:
            words, before = drawn[place]
            after = 6 * words - before
        if before:
            before -= 1
            continue
        if words and unit & WORD_START:
            starts += [] if is_inside else [place]
            words, is_inside = words - 1, True
            inside.append(place)
        elif is_inside and not unit & WORD_START:
            inside.append(place)
        elif words == 0:
            after, is_inside = after - 1, False
    return starts, inside


@pytest.mark.long
def test_spans_stand_within_their_contexts():
    text = Text([128] * 40, seed=3)
    random = jax.random.bits(jax.random.key(2), (40, 128))
    spans = jax.jit(jax.vmap(lambda row, random: _spaced_spans(row, row.units > 0, random)))
    starts, inside = spans(text.laid_out(), random)
    words = np.asarray(1 + _draw(random, _SPACED_WORDS))
    context = np.asarray(random & 0xFFFF).astype(np.int64) * 6 * words >> 16
    for row, units in enumerate(text.units):
        begin, tokens_of_spans = spans_by_hand(units, list(zip(words[row], context[row], strict=True)))
        assert np.flatnonzero(starts[row]).tolist() == begin
        assert np.flatnonzero(inside[row]).tolist() == tokens_of_spans
    counts = np.bincount(words.ravel(), minlength=6)[1:] / words.size
    expected = 1 / np.arange(1, 6)
    np.testing.assert_allclose(counts, expected / expected.sum(), atol=0.015)


@pytest.mark.long
def test_spans_are_chosen_before_single_pieces():
    tokens, keys, masked = masked_text(Text([128] * 32, seed=5), PERMUTED, seed=4)
    divided = jax.jit(jax.vmap(lambda row, keys: divide(row, MaskingKeys.of(keys).units, {"context": 1.0})))
    starts, single, _ = map(np.asarray, divided(tokens, keys))
    for row in range(32):
        targets = masked.places[row][masked.weights[row] > 0]
        spans = starts[row] & ~single[row]
        skipped = spans.sum() - spans[targets].sum()
        # A single piece is chosen only where no span is left, or where each one left has more pieces than are missing.
        assert not single[row][targets].any() or skipped <= 2
