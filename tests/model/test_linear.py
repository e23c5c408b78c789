import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.model.linear import LayerNorm, activation, project

SHAPES = {"in": ((2, 5, 6), (6, 3, 4), (3, 4)), "out": ((2, 5, 3, 4), (3, 4, 6), (6,)), "one": ((2, 6), (6, 7), (7,))}


def plain(x, kernel, bias):
    contracted = kernel.ndim - bias.ndim
    return jnp.tensordot(x, kernel, contracted, precision="highest") + bias


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_a_projection_and_its_gradients_are_those_of_the_formula(shapes):
    arrays = [jax.random.normal(jax.random.key(number), shape) for number, shape in enumerate(shapes)]
    contracted = arrays[1].ndim - arrays[2].ndim
    ours = lambda *arrays: project(*arrays, jnp.dtype("float32"), contracted)
    weights = jnp.cos(jnp.arange(ours(*arrays).size, dtype=jnp.float32)).reshape(ours(*arrays).shape)
    np.testing.assert_allclose(ours(*arrays), plain(*arrays), atol=1e-5)
    gradients = [
        jax.grad(lambda *arrays, f=f: jnp.sum(jnp.sin(f(*arrays)) * weights), argnums=(0, 1, 2))(*arrays)
        for f in (ours, plain)
    ]
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_the_weights_gradient_is_float32_in_a_bfloat16_model():
    x, kernel, bias = jnp.ones((300, 2), jnp.bfloat16), jnp.ones((2, 3)), jnp.zeros(3)
    total = lambda *arrays: project(*arrays, jnp.dtype("bfloat16")).sum()
    of_x, of_kernel, of_bias = jax.grad(total, argnums=(0, 1, 2))(x, kernel, bias)
    assert (of_x.dtype, of_kernel.dtype, of_bias.dtype) == (jnp.bfloat16, jnp.float32, jnp.float32)
    assert of_kernel.tolist() == [[300.0] * 3] * 2 and of_bias.tolist() == [300.0] * 3  # bfloat16 has no 300 + 1


def test_the_backward_pass_keeps_arguments_alone():
    config = ModelConfig.tiny(hidden_size=8, num_heads=2)
    x, kernel, bias = jnp.ones((4, 8)), jnp.ones((8, 3, 2)), jnp.ones((3, 2))
    kept = lambda f, *arrays: sorted(
        leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(lambda *a: jax.vjp(f, *a)[1], *arrays))
    )
    assert kept(lambda *a: project(*a, jnp.dtype("float32")), x, kernel, bias) == sorted([(4, 8), (8, 3, 2), (3, 2)])
    assert kept(activation(config), x) == [(4, 8)]
    norm = LayerNorm(config)
    params = norm.init(jax.random.key(0), x)
    assert kept(norm.apply, params, x) == [(4, 8), (8,)]
