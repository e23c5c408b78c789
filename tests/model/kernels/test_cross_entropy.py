import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.model.heads import TokenLogits
from bert_jax.model.kernels.cross_entropy import cross_entropy, total_cross_entropy

LOGITS = 5 * jax.random.normal(jax.random.key(0), (4, 3, 50))
LABELS = jax.random.randint(jax.random.key(1), (4, 3), 0, 50)
WEIGHTS = jax.random.uniform(jax.random.key(2), (4, 3))


def test_value_and_gradient_are_those_of_optax():
    ours = lambda logits: (cross_entropy(logits, LABELS)[0] * WEIGHTS).sum()
    theirs = lambda logits: (optax.softmax_cross_entropy_with_integer_labels(logits, LABELS) * WEIGHTS).sum()
    assert np.isclose(ours(LOGITS), theirs(LOGITS), rtol=1e-6)
    assert jnp.allclose(jax.grad(ours)(LOGITS), jax.grad(theirs)(LOGITS), atol=1e-6)


def test_a_hit_is_the_likeliest_class():
    _, hits = cross_entropy(LOGITS, LABELS)
    assert jnp.array_equal(hits, jnp.argmax(LOGITS, axis=-1) == LABELS)
    assert cross_entropy(LOGITS, jnp.argmax(LOGITS, axis=-1))[1].all()


def test_huge_logits_stay_finite():
    logits = jnp.array([[1e4, -1e30, 0.0]])
    loss, _ = cross_entropy(logits, jnp.array([2]))
    gradient = jax.grad(lambda logits: cross_entropy(logits, jnp.array([2]))[0].sum())(logits)
    assert loss[0] == 1e4 and jnp.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("dtype", "tokens", "tolerance"),
    [("float32", 128, 1e-6), ("bfloat16", 128, 1e-2), pytest.param("float32", 3, 1e-6, id="tokens that have no parts")],
)
def test_the_total_by_parts_and_its_gradients_are_those_of_whole_logits(dtype, tokens, tolerance):
    keys = jax.random.split(jax.random.key(3), 5)
    vectors = jax.random.normal(keys[0], (8, tokens, 16)).astype(dtype)
    table, bias = jax.random.normal(keys[1], (50, 16)), jax.random.normal(keys[2], (50,))
    labels = jax.random.randint(keys[3], (8, tokens), 0, 50)
    weights = jax.random.uniform(keys[4], (8, tokens))

    def by_parts(*factors):
        return tuple(total / 100 for total in total_cross_entropy(TokenLogits(*factors), labels, weights))

    def whole(*factors):
        return tuple(jnp.sum(each * weights) / 100 for each in cross_entropy(TokenLogits(*factors).whole(), labels))

    results = [
        jax.jit(jax.value_and_grad(function, (0, 1, 2), has_aux=True))(vectors, table, bias)
        for function in (by_parts, whole)
    ]
    for ours, expected in zip(*map(jax.tree.leaves, results), strict=True):
        assert ours.dtype == expected.dtype
        largest = jnp.max(jnp.abs(expected)).astype("float32")
        np.testing.assert_allclose(ours.astype("float32"), expected.astype("float32"), atol=tolerance * largest)
