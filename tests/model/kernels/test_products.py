"""Matrix products: right for any shape, and computed from bfloat16 as it is on CPUs."""

import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model.kernels import products
from bert_jax.model.kernels.products import (
    heads_first,
    inner_products,
    product,
    product_of_transposed,
    product_with_transposed,
    rows_of,
    weighted_sums,
)
from bert_jax.model.linear import project

FORMS = {
    product: ("nd", "df", "nf"),
    product_with_transposed: ("nf", "df", "nd"),
    product_of_transposed: ("nd", "nf", "df"),
}


def random(shape, dtype, seed):
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32).astype(dtype)


def exact(subscripts, a, b):
    return np.einsum(subscripts, np.asarray(a, np.float64), np.asarray(b, np.float64))


@pytest.mark.parametrize("dtype", (jnp.float32, jnp.bfloat16))
@pytest.mark.parametrize("n, d, f", ((1, 3, 8), (20, 8, 3), (16, 24, 40)))
@pytest.mark.parametrize("batch", ((), (2, 3)))
@pytest.mark.parametrize("form", FORMS)
def test_products_are_those_of_their_arguments(form, batch, n, d, f, dtype):
    first, second, result = FORMS[form]
    a, b = (random((*batch, *(dict(n=n, d=d, f=f)[axis] for axis in axes)), dtype, 0) for axes in (first, second))
    expected = exact(f"...{first},...{second}->...{result}", a, b)
    np.testing.assert_allclose(form(a, b, jnp.float32), expected, rtol=1e-5, atol=1e-5)
    rounded = form(a, b, dtype)
    assert rounded.dtype == dtype
    np.testing.assert_allclose(np.asarray(rounded, np.float64), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    "function, subscripts", [(weighted_sums, "BHTS,BHSK->BHTK"), (inner_products, "BHTK,BHSK->BHTS")]
)
def test_gradients_are_those_of_einsum(function, subscripts):
    a, b = (random(shape, jnp.float32, 0) for shape in ((2, 3, 5, 8), (2, 3, 8, 8)))
    result, backward = jax.vjp(lambda a, b: function(a, b, jnp.float32), a, b)
    expected, of_einsum = jax.vjp(lambda a, b: jnp.einsum(subscripts, a, b), a, b)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    for got, wanted in zip(backward(result), of_einsum(result)):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.skipif(
    "--xla_cpu_experimental_ynn_fusion_type= " in f"{os.environ.get('XLA_FLAGS')} ", reason="XLA's YNN is off"
)
def test_bfloat16_reaches_the_products_on_cpus():
    """XLA would convert the arguments to float32 first, which takes twice as long where a CPU multiplies bfloat16."""
    vectors = jax.ShapeDtypeStruct((2, 64, 2, 64), jnp.bfloat16)
    weights = jax.ShapeDtypeStruct((64, 192), jnp.float32)

    def loss(query, key, value, weights):
        scores = inner_products(heads_first(query), heads_first(key), jnp.float32)
        context = weighted_sums(scores.astype(jnp.bfloat16), heads_first(value), jnp.bfloat16)
        return jnp.sum(project(context, weights, jnp.zeros(192), jnp.dtype(jnp.bfloat16)).astype(jnp.float32) ** 2)

    gradients = jax.jit(jax.grad(loss, (0, 1, 2, 3)))
    compiled = gradients.lower(vectors, vectors, vectors, weights).compile().as_text()
    arguments = re.findall(r"\n%\S+ \(([^)]*)\) -> [^{]*{(?:\n[^}].*)*? dot\(", compiled)
    assert len(arguments) == 9, compiled
    assert all(each.count("bf16[") == 2 for each in arguments), arguments


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
    monkeypatch.setattr(products, "on_one_device", lambda kind: kind == "gpu")
    for a, b in zip(expected, jax.jit(differentiate)(), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)
