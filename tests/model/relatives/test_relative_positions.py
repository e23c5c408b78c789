"""Relative attention and the query stream: distances by hand, no leak, packed and padded rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.config.settings import SettingsError
from bert_jax.layout import TokenSequence, lay_out, lay_out_sequences
from bert_jax.model import exact_attention
from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.bert import BertForPretraining, init
from bert_jax.model.relatives.relative_positions import by_distance, scores_from

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


def test_each_score_is_the_one_of_its_distance():
    tokens, size = rows(some_ids(0, 7), some_ids(1, 7), length=7), 7
    scores = np.random.default_rng(0).normal(size=(3, 2, size, 2 * size)).astype(np.float32)
    pattern = AttentionPattern.of(tokens, causal=False)
    in_order = by_distance(jnp.asarray(scores), pattern)
    for query in range(size):
        for key in range(size):
            assert np.array_equal(in_order[:, :, query, key], scores[:, :, query, size - (query - key)])
    places = jnp.array([[4, 1, 6], [0, 5, 5]])
    chosen = by_distance(jnp.asarray(scores)[:, :, :3], pattern.of_queries(places))
    for row, query in np.ndindex(2, 3):
        begin = size - int(places[row, query])
        assert np.array_equal(chosen[:, row, query], scores[:, row, query, begin : begin + size])


def test_the_gradient_of_a_window_is_that_of_indexing():
    scores, begin = jax.random.normal(jax.random.key(0), (2, 3, 4, 10)), jnp.array([[0, 5, 3, 1]] * 3)
    weights = jax.random.normal(jax.random.key(1), (2, 3, 4, 5))

    def by_indexing(scores):
        return jnp.take_along_axis(scores, begin[None, :, :, None] + jnp.arange(5), axis=-1)

    windowed, indexed = (
        jax.grad(lambda scores, f=f: jnp.sum(f(scores) * weights))(scores)
        for f in (lambda scores: scores_from(scores, begin, 5), by_indexing)
    )
    assert np.array_equal(windowed, indexed)


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
def test_long_rows_in_strips_give_the_same(params, monkeypatch):
    tokens, ranks, places = rows(some_ids()), jnp.asarray(RANKS[None]), jnp.asarray(PLACES[None])

    def predictions():
        return BertForPretraining(CONFIG).apply({"params": params}, tokens, places, None, ranks)[0]

    whole = predictions()
    monkeypatch.setattr(exact_attention, "_MOST_SCORES", 16)
    monkeypatch.setattr(exact_attention, "_STRIP", 5)
    np.testing.assert_allclose(predictions(), whole, atol=2e-5)


@pytest.mark.long
def test_distances_beyond_the_clamp_count_as_the_clamp():
    tokens = rows(some_ids())

    def encoded(distance):
        config = CONFIG.replace(clamped_distance=distance)
        params = init(config, jax.random.key(0))
        return np.asarray(BertForPretraining(config).apply({"params": params}, tokens, method="encode").tokens)

    whole = encoded(None)
    assert np.array_equal(encoded(LENGTH), whole) and not np.allclose(encoded(2), whole)


@pytest.mark.parametrize(
    "settings", [{"num_segments": 2}, {"causal": True}, {"norm": "pre"}, {"embedding_size": 8}, {"local_window": 2}]
)
def test_settings_that_do_not_go_with_relative_positions_are_refused(settings):
    with pytest.raises(
        SettingsError, match="--model.positions=relative with .*: no other is possible with relative positions"
    ):
        CONFIG.replace(**settings, **({"global_every": 2} if "local_window" in settings else {}))


def test_a_clamp_needs_relative_positions():
    with pytest.raises(SettingsError, match="--model.clamped-distance=5 needs relative or disentangled positions"):
        ModelConfig(clamped_distance=5)
