"""Optimizers, from parts of optax: BERT's (optimization.py of its release), LAMB and Muon; schedules of the learning
rate."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import optax.contrib
from jax.tree_util import KeyPath
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from bert_jax.config.training import OptimizerConfig
from bert_jax.model.bert import Parameters
from bert_jax.model.parameter import Parameter
from bert_jax.model.parameters import parameter_at, path_of

_MUON_MOMENTUM = 0.95
"""Decay of Muon's running mean of gradients, as published (Jordan et al. 2024)."""
_MUON_POLYNOMIAL, _MUON_ITERATIONS, _MUON_EPSILON = (3.4445, -4.7750, 2.0315), 5, 1e-8
"""As published: the coefficients of x, x^3 and x^5 in the polynomial that, iterated, brings a singular value x to about
1; the number of iterations; and what is added to the norm by which a matrix is divided before the first iteration."""
_MUON_SIZE = 0.2
"""Root mean square of Muon's updates, equal to Adam's so that both use one learning rate (Liu et al. 2025, section
2.2)."""


class Moments(NamedTuple):
    """The state of `scale_by_moments`."""

    count: Int[Array, ""]  # type: ignore[assignment]  # hides tuple.count; checkpoints have this name
    """Number of steps taken."""
    mean: Parameters
    square: Parameters


def scale_by_moments(beta1: float, beta2: float, epsilon: float, bias_correction: bool) -> optax.GradientTransformation:
    """Adam: m / (sqrt(v) + epsilon), with or without bias correction of the moments. optax' own function always
    corrects them."""

    def init(params: Parameters) -> Moments:
        zero = jax.tree.map(jnp.zeros_like, params)
        return Moments(jnp.zeros((), jnp.int32), zero, zero)

    def update(gradients, state: Moments, params=None):
        mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.mean, gradients)
        square = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * jnp.square(g), state.square, gradients)
        count = state.count + 1
        bias1, bias2 = (1 - beta**count if bias_correction else 1.0 for beta in (beta1, beta2))
        updates = jax.tree.map(lambda m, v: m / bias1 / (jnp.sqrt(v / bias2) + epsilon), mean, square)
        return updates, Moments(count, mean, square)

    return optax.GradientTransformation(init, update)


def clip_by_global_norm(most: float) -> optax.GradientTransformationExtraArgs:
    """Scales all gradients by one number so that their global norm is at most `most`.

    The update's argument `gradient_norm` is that norm, if the caller has computed it. optax' own transformation
    computes the norm again and divides element by element, which takes two more passes over memory.
    """

    def update(gradients: Parameters, state: Any, params=None, *, gradient_norm: Float[Array, ""] | None = None):
        norm = optax.tree.norm(gradients) if gradient_norm is None else gradient_norm
        scale = most / jnp.maximum(norm, most)
        return jax.tree.map(lambda g: g * scale, gradients), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def scale_by_trust_ratio() -> optax.GradientTransformation:
    """Scales each matrix' update by |matrix| / |update|, as LAMB does.

    The ratio is 1 if either norm is 0. Parameters without weight decay aren't scaled, as in the authors' code. optax'
    own transformation takes the norm of a whole array, which here may hold one matrix for each layer.
    """

    def scale(path, update: Float[Array, "..."], parameter: Float[Array, "..."]) -> Float[Array, "..."]:
        described = _parameter(path)
        if not described.decays:
            return update
        within = tuple(set(range(update.ndim)) - set(described.stacked))
        length, step = (jnp.sqrt(jnp.sum(jnp.square(x), within, keepdims=True)) for x in (parameter, update))
        both = (length > 0) & (step > 0)
        return update * jnp.where(both, length / jnp.where(both, step, 1.0), 1.0)

    return optax.stateless(lambda updates, params: jax.tree_util.tree_map_with_path(scale, updates, params))


def scale_by_orthogonal_mean(momentum: float, size: float, dtype: DTypeLike) -> optax.GradientTransformation:
    """Muon's update of each matrix: the running mean of its gradients (Nesterov's, with bias correction), made
    orthogonal and scaled to a root mean square of about `size`. Stacked matrices (of layers, and of query, key and
    value) are treated separately. `dtype` is that of the factors of the products.

    optax' own transformation multiplies in the gradients' type. A CPU with instructions for bfloat16 multiplies
    bfloat16 factors twice as fast if the results are float32, but not if they are bfloat16. The state is that of optax.
    """

    def init(params: Parameters) -> optax.contrib.MuonState:
        mean = jax.tree.map(jnp.zeros_like, params)
        return optax.contrib.MuonState(jnp.zeros((), jnp.int32), mean, jnp.asarray(_MUON_POLYNOMIAL))

    def update(gradients: Parameters, state: optax.contrib.MuonState, params=None):
        count = jnp.asarray(state.count) + 1
        means = jax.tree.map(lambda m, g: momentum * m + (1 - momentum) * g, state.mu, gradients)
        of_mean = momentum / (1 - momentum ** (count + 1))
        of_gradient = (1 - momentum) / (1 - momentum**count)

        def direction(path: KeyPath, mean: Float[Array, "..."], gradient: Float[Array, "..."]) -> Float[Array, "..."]:
            matrix, ahead = _parameter(path), of_mean * mean + of_gradient * gradient
            order = (*matrix.stacked, *matrix.reduced, *matrix.produced)
            inputs, outputs = (math.prod(mean.shape[i] for i in axes) for axes in (matrix.reduced, matrix.produced))
            ordered = ahead.transpose(order)
            stack = ordered.reshape(*ordered.shape[: len(matrix.stacked)], inputs, outputs)
            scaled = orthogonalized(stack, dtype) * (size * max(inputs, outputs) ** 0.5)
            return scaled.reshape(ordered.shape).transpose(sorted(range(mean.ndim), key=order.__getitem__))

        updates = jax.tree_util.tree_map_with_path(direction, means, gradients)
        return updates, optax.contrib.MuonState(count, means, state.ns_coeffs)

    return optax.GradientTransformation(init, update)


def orthogonalized(stack: Float[Array, "... M N"], dtype: DTypeLike) -> Float[Array, "... M N"]:
    """The matrices of `stack` with singular values of about 1 (0.7 to 1.2, if they weren't tiny), by five iterations of
    Muon's polynomial (Jordan et al. 2024). Products have factors of `dtype` and float32 results."""

    def product(sums: str, *factors: Array) -> Array:
        return jnp.einsum(sums, *(each.astype(dtype) for each in factors), preferred_element_type=jnp.float32)

    is_tall = stack.shape[-2] > stack.shape[-1]  # so that the squares have the shorter side
    x = stack / (jnp.linalg.norm(stack, axis=(-2, -1), keepdims=True) + _MUON_EPSILON)
    of_first, of_third, of_fifth = _MUON_POLYNOMIAL
    for _ in range(_MUON_ITERATIONS):
        square = product("...ki,...kj->...ij" if is_tall else "...ik,...jk->...ij", x, x)
        powers = of_third * square + of_fifth * product("...ij,...jk->...ik", square, square)
        x = of_first * x + product("...ij,...jk->...ik", *((x, powers) if is_tall else (powers, x)))
    return x


def learning_rate(config: OptimizerConfig, steps: int) -> optax.Schedule:
    """The learning rate by step, from 0 to `steps` - 1, in a run of `steps`.

    It rises linearly and reaches the peak at the last step of the warm-up, then falls by the schedule; no step has rate
    0. The original and transformers begin the warm-up at 0, so their first step changes nothing: their rate at a step
    of the warm-up is the rate here one step earlier. The original's rate never reaches the peak: after the warm-up it
    falls from the peak times 1 - warmup.
    """
    warmup = max(round(config.warmup * steps), 1)

    def schedule(step: int | Int[Array, ""]) -> Float[Array, ""]:
        share = jnp.where(step < warmup, (step + 1) / warmup, _share_of_peak(config, step, warmup - 1, steps))
        return config.peak_learning_rate * share

    return schedule


def _share_of_peak(
    config: OptimizerConfig, step: int | Int[Array, ""], peak: int, steps: int
) -> float | Float[Array, ""]:
    """The share of the peak rate from step `peak`, where it is 1, to `steps`, where it is 0."""
    passed = (step - peak) / (steps - peak)
    match config.schedule:
        case "linear":
            return 1 - passed
        case "polynomial":
            return (1 - passed) ** config.power
        case "cosine":
            return (1 + jnp.cos(jnp.pi * passed)) / 2
        case "warmup_stable_decay":
            return jnp.minimum(1.0, (steps - step) / max(round(config.decay_share * steps), 1))


def make_optimizer(config: OptimizerConfig, dtype: DTypeLike = jnp.float32) -> optax.GradientTransformationExtraArgs:
    """The optimizer at learning rate 1: clipping by global norm, Adam and weight decay. LAMB adds the trust ratio. Muon
    replaces Adam's update of the blocks' matrices by its own, whose products have factors of `dtype`.

    The training step multiplies the updates by the learning rate, which follows the run's count of steps, and passes
    `gradient_norm`.
    """
    scaled = scale_by_moments(config.beta1, config.beta2, config.epsilon, config.bias_correction)
    if config.name == "muon":
        orthogonal = scale_by_orthogonal_mean(_MUON_MOMENTUM, _MUON_SIZE, dtype)
        scaled = optax.partition({True: orthogonal, False: scaled}, _are_matrices_of_blocks)
    parts = [clip_by_global_norm(config.clip_norm), scaled, optax.add_decayed_weights(config.weight_decay, mask=decays)]
    if config.name == "lamb":
        parts.append(scale_by_trust_ratio())
    return _descending(optax.chain(*parts))


def _descending(direction: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
    """`direction` with negated updates: by optax' convention, adding updates to the parameters lowers the loss."""

    def update(gradients: Parameters, state: Any, params: Parameters, **others) -> tuple[Parameters, Any]:
        updates, state = direction.update(gradients, state, params, **others)
        return jax.tree.map(jnp.negative, updates), state

    return optax.GradientTransformationExtraArgs(direction.init, update)


def learning_only(
    optimizer: optax.GradientTransformation, learned: Callable[[Parameters], Parameters | None]
) -> optax.GradientTransformationExtraArgs:
    """`optimizer` without updates of frozen parameters. `learned` returns True for learned parameters and False for
    frozen ones, as booleans that broadcast, or None if all are learned.

    optax' own masks apply to whole arrays, and an array here holds one matrix for each layer.
    """

    optimizer = optax.with_extra_args_support(optimizer)

    def update(gradients: Parameters, state: Any, params: Parameters, **others) -> tuple[Parameters, Any]:
        updates, state = optimizer.update(gradients, state, params, **others)
        if (where := learned(params)) is None:
            return updates, state
        return jax.tree.map(lambda update, learns: jnp.where(learns, update, 0.0), updates, where), state

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def decays(params: Parameters) -> Parameters:
    """True for every matrix and table, False for biases and LayerNorm."""
    return jax.tree_util.tree_map_with_path(lambda path, _: _parameter(path).decays, params)


def _are_matrices_of_blocks(params: Parameters) -> Parameters:
    """True for every matrix in a block; False for tables, heads, biases and norms."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: _parameter(path).of_a_block and _parameter(path).inputs > 0, params
    )


def _parameter(path: KeyPath) -> Parameter:
    return parameter_at(path_of(path))
