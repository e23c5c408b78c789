"""BERT's optimizer (optimization.py) and LAMB, from optax' parts; schedules of the learning rate."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import KeyPath
from jaxtyping import Array, Bool, Float, Int

from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.model.bert import Parameters


class Moments(NamedTuple):
    """State of `scale_by_moments`."""

    count: Int[Array, ""]
    """Steps taken."""
    mean: Parameters
    square: Parameters


def scale_by_moments(
    beta1: float, beta2: float, epsilon: float, bias_correction: bool
) -> optax.GradientTransformationExtraArgs:
    """Adam: m / (sqrt(v) + epsilon), and nothing at all where `good`, an argument of the update, is False.

    optax' own always corrects the moments. Here each is computed once, in its own place: XLA would rather compute them
    again within the parameters' step, for which it must copy the old ones first, twice the model's size.
    """

    def init(params: Parameters) -> Moments:
        zero = jax.tree.map(jnp.zeros_like, params)
        return Moments(jnp.zeros((), jnp.int32), zero, zero)

    def update(gradients, state: Moments, params=None, *, good: Bool[Array, ""]):
        def decayed(beta, old, new):
            return jnp.where(good, beta * old + (1 - beta) * new, old)

        mean = jax.tree.map(lambda m, g: decayed(beta1, m, g), state.mean, gradients)
        square = jax.tree.map(lambda v, g: decayed(beta2, v, jnp.square(g)), state.square, gradients)
        mean, square = jax.lax.optimization_barrier((mean, square))
        count = state.count + good
        of_mean, of_square = (1 - beta ** jnp.maximum(count, 1) if bias_correction else 1.0 for beta in (beta1, beta2))
        updates = jax.tree.map(lambda m, v: m / of_mean / (jnp.sqrt(v / of_square) + epsilon), mean, square)
        return updates, Moments(count, mean, square)

    return optax.GradientTransformationExtraArgs(init, update)


def clip_by_global_norm(most: float) -> optax.GradientTransformation:
    """Scales all gradients by one number so that their global norm is at most `most`.

    optax' own divides element by element, which XLA does in a pass over memory of its own.
    """

    def clip(gradients: Parameters, params=None) -> Parameters:
        scale = most / jnp.maximum(optax.tree.norm(gradients), most)
        return jax.tree.map(lambda g: g * scale, gradients)

    return optax.stateless(clip)


def scale_by_trust_ratio() -> optax.GradientTransformation:
    """LAMB's step of each matrix: in the update's direction, as long as the matrix (times the rate).

    The ratio |matrix| / |update| is 1 where either norm is 0. What doesn't decay isn't scaled, as in the authors' code.
    optax' own takes the norm of a whole array, which here may hold a matrix of every layer.
    """

    def scale(path, update: Float[Array, "..."], parameter: Float[Array, "..."]) -> Float[Array, "..."]:
        if not _decays(path):
            return update
        within = tuple(set(range(update.ndim)) - set(stacked_axes(path)))
        length, step = (jnp.sqrt(jnp.sum(jnp.square(x), within, keepdims=True)) for x in (parameter, update))
        both = (length > 0) & (step > 0)
        return update * jnp.where(both, length / jnp.where(both, step, 1.0), 1.0)

    return optax.stateless(lambda updates, params: jax.tree_util.tree_map_with_path(scale, updates, params))


def stacked_axes(path: KeyPath) -> tuple[int, ...]:
    """Axes of a parameter along which tensors lie that are separate ones in BERT.

    A block's have the layers first, and its attention holds query, key and value in one kernel [L, D, 3, H, K].
    """
    names = [key.key for key in path]
    if "layers" not in names:
        return ()
    return (0, 2) if names[-2:] == ["attention", "kernel"] else (0,)


def learning_rate(config: OptimizerConfig, steps: int) -> optax.Schedule:
    """The rate at a step of a run of `steps`: linear from 0 towards the peak while warming up, then by the schedule."""
    warmup = round(config.warmup * steps)

    def schedule(step: int | Int[Array, ""]) -> Float[Array, ""]:
        share = jnp.where(step < warmup, step / max(warmup, 1), _share_of_peak(config, step, warmup, steps))
        return config.peak_learning_rate * share

    return schedule


def _share_of_peak(
    config: OptimizerConfig, step: int | Int[Array, ""], warmup: int, steps: int
) -> float | Float[Array, ""]:
    """What the schedule leaves of the peak once the warm-up is over; 0 at `steps`."""
    # The original's line counts the warm-up's steps too: it begins at 1 - warmup / steps.
    line = 1 - step / steps
    match config.schedule:
        case "linear":
            return line
        case "polynomial":
            return line**config.power
        case "cosine":
            return (1 + jnp.cos(jnp.pi * (step - warmup) / max(steps - warmup, 1))) / 2
        case "warmup_stable_decay":
            return jnp.minimum(1.0, (steps - step) / max(round(config.decay_share * steps), 1))


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformationExtraArgs:
    """Clip by global norm, Adam, decay; for LAMB the trust ratio. The step multiplies by the learning rate, which
    follows the run's own count, and says in `good` whether the gradients are finite.
    """
    parts = [
        clip_by_global_norm(config.clip_norm),
        scale_by_moments(config.beta1, config.beta2, config.epsilon, config.bias_correction),
        optax.add_decayed_weights(config.weight_decay, mask=decays),
    ]
    return optax.chain(*parts, *([scale_by_trust_ratio()] if config.name == "lamb" else []))


def decays(params: Parameters) -> Parameters:
    """True for every matrix and table, False for biases and LayerNorm."""
    return jax.tree_util.tree_map_with_path(lambda path, _: _decays(path), params)


def _decays(path: KeyPath) -> bool:
    return path[-1].key not in ("bias", "scale")
