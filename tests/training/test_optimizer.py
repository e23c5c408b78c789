import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.training.optimizer import decays, learning_rate, make_optimizer

PARAMS = {"dense": {"kernel": jnp.arange(6.0).reshape(2, 3) / 10, "bias": jnp.ones(3)}, "norm": {"scale": jnp.ones(3)}}


def by_hand(params, gradients, config, steps, rate):
    """The formulas in float64: clip by global norm, moments, decay of what is no bias and no scale."""
    flat = {name: np.float64(leaf) for name, leaf in params.items()}
    mean = {name: np.zeros_like(leaf) for name, leaf in flat.items()}
    square = {name: np.zeros_like(leaf) for name, leaf in flat.items()}
    for step in range(steps):
        g = {name: np.float64(leaf) * (1 + step) for name, leaf in gradients.items()}
        norm = np.sqrt(sum((leaf**2).sum() for leaf in g.values()))
        for name in flat:
            clipped = g[name] * min(1, config.clip_norm / norm)
            mean[name] = config.beta1 * mean[name] + (1 - config.beta1) * clipped
            square[name] = config.beta2 * square[name] + (1 - config.beta2) * clipped**2
            m, v = mean[name], square[name]
            if config.bias_correction:
                m, v = m / (1 - config.beta1 ** (step + 1)), v / (1 - config.beta2 ** (step + 1))
            decay = config.weight_decay * flat[name] if "kernel" in name else 0
            flat[name] = flat[name] - rate * (m / (np.sqrt(v) + config.epsilon) + decay)
    return flat


def named(tree):
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


@pytest.mark.parametrize("corrected", [False, True])
def test_adamw_follows_its_formulas(corrected):
    config = OptimizerConfig(bias_correction=corrected, weight_decay=0.1)
    gradients = jax.tree.map(lambda leaf: jnp.cos(leaf * 3) / 2, PARAMS)
    optimizer = make_optimizer(config)
    params, state = PARAMS, optimizer.init(PARAMS)
    for step in range(10):
        scaled = jax.tree.map(lambda leaf: leaf * (1 + step), gradients)
        updates, state = optimizer.update(scaled, state, params)
        params = jax.tree.map(lambda leaf, update: leaf - 0.01 * update, params, updates)
    expected = by_hand(named(PARAMS), named(gradients), config, 10, 0.01)
    for name, leaf in named(params).items():
        np.testing.assert_allclose(leaf, expected[name], rtol=2e-6, atol=2e-6)


def test_tables_and_matrices_decay_biases_and_norms_do_not():
    assert decays(PARAMS) == {"dense": {"kernel": True, "bias": False}, "norm": {"scale": False}}


def test_the_schedule_is_the_originals():
    schedule = learning_rate(OptimizerConfig(peak_learning_rate=1.0, warmup=0.1), 100)
    values = [float(schedule(step)) for step in (0, 5, 9, 10, 55, 100)]
    assert values == pytest.approx([0, 0.5, 0.9, 0.9, 0.45, 0])


def test_no_warmup_begins_at_the_peak():
    assert float(learning_rate(OptimizerConfig(peak_learning_rate=1.0, warmup=0.0), 10)(0)) == 1.0
