import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model.dropout import dropout, split


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


def masks(count, rows=128, columns=128, rate=0.5, seed=0):
    """1 where an element is kept, for `count` keys."""
    return np.asarray(dropout(jnp.ones((count, rows, columns)), rate, keys(count, seed)) > 0).astype(np.float64)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9])
def test_the_rate_and_the_mean_are_right(rate):
    y = np.asarray(dropout(jnp.ones((8, 100, 501)), rate, keys(8)))
    assert abs((y == 0).mean() - rate) < 4 * np.sqrt(rate * (1 - rate) / y.size)
    assert np.allclose(y[y != 0], 1 / (1 - rate))


@pytest.mark.parametrize("rate, with_keys", [(0.0, True), (0.3, False)])
def test_no_rate_or_no_keys_is_no_dropout(rate, with_keys):
    x = jnp.arange(12.0).reshape(3, 4)
    assert jnp.array_equal(dropout(x, rate, keys(3) if with_keys else None), x)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_places_are_independent(rate):
    """Products of two elements that lie so many rows and columns apart have the mean of independent ones."""
    kept = masks(64, rate=rate) - (1 - rate)
    deviation = rate * (1 - rate)
    for rows in (0, 1, 2, 3, 16, 64):
        for columns in (0, 1, 2, 3, 16, 64):
            if rows or columns:
                products = kept[:, rows:, columns:] * kept[:, : 128 - rows, : 128 - columns]
                assert abs(products.mean()) < 4.5 * deviation / np.sqrt(products.size), (rows, columns)


@pytest.mark.parametrize("axis", [1, 2])
def test_rows_and_columns_vary_as_independent_elements_do(axis):
    """The sums along an axis have the variance of a binomial distribution."""
    sums = masks(256, rate=0.1).sum(axis).reshape(-1)
    variance, spread = 128 * 0.09, np.sqrt(2 / len(sums))
    assert abs(sums.var() / variance - 1) < 4.5 * spread


def test_keys_are_independent():
    kept = masks(128, 64, 64).reshape(128, -1)
    correlation = np.corrcoef(kept) - np.eye(128)
    assert np.abs(correlation).max() < 5.5 / np.sqrt(64 * 64)


def test_every_layer_and_place_has_its_own_mask():
    x = jnp.ones((2, 50))
    drawn = [np.asarray(dropout(x, 0.5, site)).tobytes() for site in split(keys(2), 10)]
    assert len(set(drawn)) == 10


def test_a_mask_belongs_to_the_place_not_to_the_array():
    """Rows that are computed alone, a shorter array and another batch have the masks that they have in the whole."""
    x, wanted = jnp.ones((3, 20, 30)), jnp.array([[4, 19, 0], [0, 1, 2], [7, 7, 8]])
    whole = dropout(x, 0.5, keys(3))
    assert jnp.array_equal(dropout(x[:, :3], 0.5, keys(3), wanted), jnp.take_along_axis(whole, wanted[..., None], 1))
    assert jnp.array_equal(dropout(x[1:, :5, :7], 0.5, keys(3)[1:]), whole[1:, :5, :7])


def test_the_gradient_has_the_mask_of_the_value():
    x = jnp.ones((4, 16, 8))
    value, backward = jax.vjp(lambda x: dropout(x, 0.3, keys(4)), x)
    assert jnp.array_equal(backward(jnp.ones_like(value))[0], value)


def test_no_mask_is_kept_for_the_backward_pass():
    _, backward = jax.vjp(lambda x: dropout(x, 0.3, keys(4)), jnp.ones((4, 512, 64)))
    assert sum(leaf.size for leaf in jax.tree.leaves(backward)) < 100


def test_bfloat16_stays_bfloat16():
    assert dropout(jnp.ones((2, 8), jnp.bfloat16), 0.5, keys(2)).dtype == jnp.bfloat16
