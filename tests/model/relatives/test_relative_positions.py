"""Relative attention and the query stream: no leak, packed and padded rows, strips. Scores and gradients are compared
with transformers' in tests/interchange/test_relatives.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.layout import TokenSequence, lay_out, lay_out_sequences
from bert_jax.model import exact_attention
from bert_jax.model.bert import BertForPretraining, init

CONFIG = ModelConfig(
    num_layers=2,
    hidden_size=16,
    num_heads=4,
    feedforward_size=24,
    max_positions=16,
    num_segments=0,
    positions="relative",
    class_token="last",
    vocabulary_size=60,
    initializer_range=0.3,
)
LENGTH = 12
RANKS = np.array([-1, 2, -1, -1, 0, 1, -1, 3, -1, -1, -1, -1])
PLACES = np.flatnonzero(RANKS >= 0)


@pytest.fixture(scope="module")
def params():
    return init(CONFIG, jax.random.key(0))


@pytest.fixture(scope="module")
def predict():
    @jax.jit
    def predict(params, tokens, places, ranks):
        return BertForPretraining(CONFIG).apply({"params": params}, tokens, places, None, ranks)[0]

    return predict


def rows(*ids, length=LENGTH):
    sequences = [TokenSequence(list(one), len(one) // 2) for one in ids]
    return jax.tree.map(jnp.asarray, lay_out_sequences(sequences, (len(ids), length), pad_id=0))


def some_ids(seed=0, length=LENGTH):
    return np.random.default_rng(seed).integers(5, 60, length)


@pytest.mark.long
def test_a_prediction_depends_on_earlier_targets_and_on_no_other(params, predict):
    ids, places, ranks = some_ids(), jnp.asarray(PLACES[None]), jnp.asarray(RANKS[None])
    before = np.asarray(predict(params, rows(ids), places, ranks)[0])
    for place in range(LENGTH - 1):
        changed = ids.copy()
        changed[place] = 5 + (ids[place] - 4) % 55
        after = np.asarray(predict(params, rows(changed), places, ranks)[0])
        for slot, target in enumerate(PLACES):
            same = np.array_equal(before[slot], after[slot])
            assert same == (RANKS[place] >= RANKS[target]), f"the token at {place} and the prediction at {target}"


def test_predictions_without_an_order_are_independent(params, predict):
    """As masks are filled: no target is seen."""
    ids, places = some_ids(), jnp.asarray(PLACES[None])
    blind = jnp.asarray(np.where(RANKS >= 0, 0, -1)[None])
    changed = np.where(RANKS >= 0, 7, ids)
    assert np.array_equal(*(predict(params, rows(one), places, blind) for one in (ids, changed)))


def test_padding_and_packing_change_nothing(params, predict):
    first, second = some_ids(0, 9), some_ids(1, 7)
    ranks = np.full((2, 16), -1)
    ranks[0, [2, 5]], ranks[1, [1, 3]] = [1, 0], [0, 1]
    places = np.array([[2, 5], [1, 3]])
    apart = predict(params, rows(first, second, length=16), jnp.asarray(places), jnp.asarray(ranks))
    ids, lengths = np.concatenate([first, second]), np.array([9, 7])
    packed = lay_out(ids, lengths, lengths // 2, (1, 16), rows=np.array([0, 0]), most=2)
    of_row = np.concatenate([ranks[0, :9], np.where(ranks[1, :7] >= 0, ranks[1, :7] + 2, -1)])
    together = predict(
        params, jax.tree.map(jnp.asarray, packed), jnp.asarray([[2, 5, 10, 12]]), jnp.asarray(of_row[None])
    )
    np.testing.assert_allclose(together[0], apart.reshape(4, -1), atol=2e-5)


@pytest.mark.long
def test_long_rows_in_strips_give_the_same(params, predict, monkeypatch):
    tokens, ranks, places = rows(some_ids()), jnp.asarray(RANKS[None]), jnp.asarray(PLACES[None])

    whole = predict(params, tokens, places, ranks)
    monkeypatch.setattr(exact_attention, "_MOST_SCORES", 16)
    monkeypatch.setattr(exact_attention, "_STRIP", 5)
    in_strips = jax.jit(BertForPretraining(CONFIG).apply)({"params": params}, tokens, places, None, ranks)[0]
    np.testing.assert_allclose(in_strips, whole, atol=2e-5)
