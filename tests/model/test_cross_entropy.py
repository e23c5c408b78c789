import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.model.cross_entropy import cross_entropy

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
