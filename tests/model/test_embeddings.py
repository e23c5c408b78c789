from functools import partial

import jax
import numpy as np
import pytest
from token_rows import tokens_of

from bert_jax.config.model import ModelConfig
from bert_jax.model.bert import BertForPretraining, init, parameter_shapes
from bert_jax.model.embeddings import sinusoids

SINUSOIDAL = ModelConfig(
    num_layers=1, hidden_size=8, num_heads=2, vocabulary_size=30, max_positions=16, positions="sinusoidal"
)


def test_sinusoids_are_the_papers_up_to_scale():
    config = SINUSOIDAL.replace(initializer_range=0.5)
    table = sinusoids(config, 6)
    assert table.shape == (6, 8) and table.dtype == np.float32
    scale = 0.5 * np.sqrt(2)
    np.testing.assert_allclose(table[0], [0, scale] * 4, atol=1e-7)
    by_hand = [f(3 / 10_000 ** (pair / 8)) for pair in (0, 2, 4, 6) for f in (np.sin, np.cos)]
    np.testing.assert_allclose(table[3] / scale, by_hand, rtol=1e-6)
    assert np.sqrt(np.square(sinusoids(ModelConfig(), 512)).mean()) == pytest.approx(0.02)
    np.testing.assert_array_equal(sinusoids(config, 16)[:6], table)


def test_sinusoidal_positions_have_no_parameters_and_tell_places_apart():
    shapes = parameter_shapes(SINUSOIDAL)["bert"]["embeddings"]
    assert set(shapes) == {"word", "segment", "norm"}
    params = init(SINUSOIDAL, jax.random.key(0))
    same = np.full((1, 16), 7)
    encode = jax.jit(partial(BertForPretraining(SINUSOIDAL).apply, method="encode"))
    encoded = encode({"params": params}, tokens_of(same))
    places = np.asarray(encoded.tokens[0])
    distances = np.abs(places[:, None] - places[None]).max(axis=-1)
    assert (distances[~np.eye(16, dtype=bool)] > 1e-3).all()


def test_the_word_tables_padding_is_zero_after_training(tiny_run):
    from bert_jax.inference.bert import load

    bert = load(tiny_run.path)
    for table in (bert.params["bert"]["embeddings"]["word"], bert.params["masked_lm"]["bias"]):
        assert len(table) == 256 and (table[bert.config.vocabulary_size :] == 0).all()
        assert (table[: bert.config.vocabulary_size] != 0).any()
