import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model.dropout import RESOLUTION, dropout, split


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_rate_and_the_mean_are_right(rate):
    x = jnp.ones((8, 100, 501))
    y = np.asarray(dropout(x, rate, keys(8)))
    dropped = round(rate * RESOLUTION) / RESOLUTION
    assert abs((y == 0).mean() - dropped) < 4 * np.sqrt(rate * (1 - rate) / y.size)
    assert np.allclose(y[y != 0], 1 / (1 - dropped))


@pytest.mark.parametrize("rate, with_keys", [(0.0, True), (0.3, False)])
def test_no_rate_or_no_keys_is_no_dropout(rate, with_keys):
    x = jnp.arange(12.0).reshape(3, 4)
    assert jnp.array_equal(dropout(x, rate, keys(3) if with_keys else None), x)


def test_elements_are_independent():
    y = np.asarray(dropout(jnp.ones((2000, 2, 4)), 0.5, keys(2000))).reshape(2000, 8) > 0
    correlation = np.corrcoef(y.T) - np.eye(8)
    assert np.abs(correlation).max() < 0.1


def test_every_layer_and_place_has_its_own_mask():
    x = jnp.ones((2, 50))
    masks = [np.asarray(dropout(x, 0.5, site)).tobytes() for site in split(keys(2), 10)]
    assert len(set(masks)) == 10


def test_an_odd_number_of_elements_is_fine():
    assert dropout(jnp.ones((2, 3, 5)), 0.5, keys(2)).shape == (2, 3, 5)


def test_bfloat16_stays_bfloat16():
    assert dropout(jnp.ones((2, 8), jnp.bfloat16), 0.5, keys(2)).dtype == jnp.bfloat16
