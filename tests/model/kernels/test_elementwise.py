import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.model.kernels import elementwise, platform
from bert_jax.model.linear import LayerNorm, activation


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.long(first=1)
def test_norm_and_activation_are_the_same_on_gpus(biases, monkeypatch):
    """They are written out there in a form that XLA computes faster: values and gradients are equal."""
    config = ModelConfig.tiny(hidden_size=8, num_heads=2, biases=biases, compute_dtype="float32")
    x, weights = jax.random.normal(jax.random.key(0), (2, 3, 5, 8)) * 3
    x += jnp.array([0, 1, 10, 100, 1000])[:, None]  # means that are larger than the deviation
    norm = LayerNorm(config)
    params = jax.tree.map(lambda leaf: leaf + 0.5, norm.init(jax.random.key(1), x))

    def computed():
        normalised = jax.vjp(norm.apply, params, x)
        activated = jax.vjp(activation(config), x)
        return [(value, backward(weights)) for value, backward in (normalised, activated)]

    elsewhere = computed()
    monkeypatch.setattr(elementwise, "platform", lambda: "gpu")
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
    jax.tree.map(close, computed(), elsewhere)


def test_the_layout_of_the_residual_stream_is_set_on_one_gpu_only(monkeypatch):
    """On several, XLA would gather the whole batch for it."""
    monkeypatch.setattr(platform, "platform", lambda: "gpu")
    for devices in (1, 2):
        mesh = jax.sharding.AbstractMesh((devices,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
        with jax.sharding.use_abstract_mesh(mesh):
            traced = str(jax.make_jaxpr(elementwise.row_major)(jnp.ones((2, 3, 4))))
        assert ("layout_constraint" in traced) == (devices == 1)
