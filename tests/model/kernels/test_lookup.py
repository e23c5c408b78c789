import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model.kernels import lookup
from bert_jax.model.kernels.lookup import rows_of


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("ids, rows", [((1000,), 50), ((3, 300), 2), ((128,), 1), ((5,), 100)])
def test_the_gradient_is_that_of_indexing(monkeypatch, ids, rows, dtype):
    """With ids that fill several chunks, end within one, are all the same, or don't occur."""
    rng = np.random.default_rng(0)
    numbers = jnp.asarray(rng.integers(0, rows, ids) * (rng.random(ids) < 0.7), jnp.int32)
    table, weights = jax.random.normal(jax.random.key(0), (rows, 8)), jax.random.normal(jax.random.key(1), (*ids, 8))

    def differentiate():
        found, backward = jax.vjp(lambda table: rows_of(table, numbers).astype(dtype), table)
        return found, *backward(weights.astype(dtype))

    expected = differentiate()
    monkeypatch.setattr(lookup, "on_one_device", lambda kind: kind == "gpu")
    for a, b in zip(expected, jax.jit(differentiate)(), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)
