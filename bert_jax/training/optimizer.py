"""BERT's optimizer (optimization.py), from optax' parts."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.model.bert import Parameters


class Moments(NamedTuple):
    """State of `scale_by_moments`."""

    mean: Parameters
    square: Parameters


def scale_by_moments(beta1: float, beta2: float, epsilon: float) -> optax.GradientTransformation:
    """Adam without bias correction: m / (sqrt(v) + epsilon). optax' own always corrects."""

    def init(params: Parameters) -> Moments:
        return Moments(jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params))

    def update(gradients, state: Moments, params=None):
        mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.mean, gradients)
        square = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * jnp.square(g), state.square, gradients)
        return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + epsilon), mean, square), Moments(mean, square)

    return optax.GradientTransformation(init, update)


def learning_rate(config: OptimizerConfig, steps: int) -> optax.Schedule:
    """Linear from 0 towards the peak while warming up, then on the straight line from the peak at 0 to 0 at `steps`.

    That is the original's: its decay counts the warm-up's steps too.
    """
    warmup = round(config.warmup * steps)

    def schedule(step: int | Int[Array, ""]) -> Float[Array, ""]:
        share = jnp.where(step < warmup, step / max(warmup, 1), 1 - step / steps)
        return config.peak_learning_rate * share

    return schedule


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    """Clip by global norm, Adam, decay. The step multiplies by the learning rate, which follows the run's own count."""
    moments = optax.scale_by_adam if config.bias_correction else scale_by_moments
    return optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        moments(config.beta1, config.beta2, config.epsilon),
        optax.add_decayed_weights(config.weight_decay, mask=decays),
    )


def decays(params: Parameters) -> Parameters:
    """True for every matrix and table, False for biases and LayerNorm."""
    return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key not in ("bias", "scale"), params)
