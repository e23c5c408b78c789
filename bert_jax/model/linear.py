"""Linear layers and normalisation, with BERT's initial values."""

import functools
import math
from collections.abc import Callable
from typing import get_args

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from bert_jax.config.model import ComputeType, ModelConfig
from bert_jax.model.kernels.products import product, product_of_transposed, product_with_transposed
from bert_jax.model.placement import multiplies_bfloat16, platform
from bert_jax.system.errors import UsageError

PRODUCT = "product"
"""Name that rematerialisation gives to the results of matrix products with weights, to keep them."""


def initial_weights(config: ModelConfig, into_sum: bool = False) -> Callable[..., Array]:
    """Initial values of a matrix or table: a normal of standard deviation `initializer_range`, cut at two deviations.

    `into_sum`: for the last matrix of a block's attention and of its feed-forward part. With model.norm=pre their
    results add up over the blocks without a norm between, so they start smaller, by the square root of the number of
    sums (Radford et al. 2019, section 2.3).
    """
    sums = 2 * config.num_layers if into_sum and config.norm == "pre" else 1
    return nn.initializers.truncated_normal(config.initializer_range / math.sqrt(sums))


def compute_dtype(config: ModelConfig) -> jnp.dtype:
    """The type of activations and matrix products, on the devices in force."""
    if config.compute_dtype == "auto":
        return jnp.dtype(jnp.bfloat16 if multiplies_bfloat16() else jnp.float32)
    return jnp.dtype(config.compute_dtype)


def for_inference(config: ModelConfig, dtype: str | None = None) -> ModelConfig:
    """`config` for using a trained model, with the compute type `dtype`: `auto`, `float32` or `bfloat16`.

    Without `dtype`, the compute type is float32 on CPUs, whatever the training's type, and the training's type
    elsewhere. Raises UsageError for another `dtype`.
    """
    if dtype not in (None, *get_args(ComputeType)):
        raise UsageError(f"dtype={dtype} isn't a type to compute in; give {', '.join(get_args(ComputeType))}")
    return config.replace(compute_dtype=dtype or ("float32" if platform() == "cpu" else config.compute_dtype))


class Linear(nn.Module):
    """x W + b over the last `contracted` axes of x, or x W without `bias`. The shape of W is that of these axes, then
    `features`."""

    config: ModelConfig
    features: tuple[int, ...]
    contracted: int = 1
    bias: bool = True
    into_sum: bool = False
    """Whether the result is added to the residual stream, which changes the initial values (`initial_weights`)."""

    @nn.compact
    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        inner = x.shape[x.ndim - self.contracted :]
        kernel = self.param("kernel", initial_weights(self.config, self.into_sum), (*inner, *self.features))
        bias = self.param("bias", nn.initializers.zeros_init(), self.features) if self.bias else None
        return project(x, kernel, bias, compute_dtype(self.config), self.contracted)


def project(
    x: Float[Array, "..."],
    kernel: Float[Array, "..."],
    bias: Float[Array, "..."] | None,
    dtype: jnp.dtype,
    contracted: int = 1,
    slowest: int = 0,
) -> Float[Array, "..."]:
    """x W + b in `dtype`, over the last `contracted` axes of x and the first ones of `kernel`.

    The result has the features' axes last; number `slowest` of them is moved before the others.
    """
    outer, features = x.shape[: x.ndim - contracted], kernel.shape[contracted:]
    result = checkpoint_name(_affine(x.astype(dtype), kernel, bias, contracted, slowest), PRODUCT)
    return result.reshape(*outer, *_moved_to_front(features, slowest))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _affine(
    x: Float[Array, "..."], kernel: Float[Array, "..."], bias: Float[Array, "..."] | None, contracted: int, slowest: int
) -> Float[Array, "N F"]:
    """x W + b as one product of two matrices, for which every backend has its fastest code.

    If one of several axes of features is split over devices, it has to be the slowest: only then are the features of a
    device next to each other in the matrix. The gradient is written out so that it keeps the arguments as they are (a
    reshaped or converted weight would be kept beside the weight, in every layer), and so that XLA puts the output's
    gradient together once, not in another layout for each of the three that are made of it.
    """
    rows, weights = _as_matrices(x, kernel, contracted, slowest)
    result = product(rows, weights, x.dtype)
    return result if bias is None else result + jnp.moveaxis(bias, slowest, 0).reshape(-1).astype(x.dtype)


def _as_matrices(
    x: Array, kernel: Array, contracted: int, slowest: int
) -> tuple[Float[Array, "N D"], Float[Array, "D F"]]:
    inner = math.prod(kernel.shape[:contracted])
    weights = jnp.moveaxis(kernel.reshape(inner, *kernel.shape[contracted:]), slowest + 1, 1)
    return x.reshape(-1, inner), weights.reshape(inner, -1).astype(x.dtype)


def _moved_to_front(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (shape[axis], *shape[:axis], *shape[axis + 1 :])


def _affine_forward(x, kernel, bias, contracted, slowest):
    return _affine(x, kernel, bias, contracted, slowest), (x, kernel, bias)


def _affine_backward(contracted, slowest, residuals, gradient):
    x, kernel, bias = residuals
    rows, weights = _as_matrices(x, kernel, contracted, slowest)
    gradient = jax.lax.optimization_barrier(gradient)
    of_kernel = product_of_transposed(rows, gradient, kernel.dtype)
    features = _moved_to_front(kernel.shape[contracted:], slowest)
    of_bias = None
    if bias is not None:
        of_bias = jnp.moveaxis(jnp.sum(gradient, axis=0, dtype=bias.dtype).reshape(features), 0, slowest)
    return (
        product_with_transposed(gradient, weights, x.dtype).reshape(x.shape),
        jnp.moveaxis(of_kernel.reshape(-1, *features), 1, slowest + 1).reshape(kernel.shape),
        of_bias,
    )


_affine.defvjp(_affine_forward, _affine_backward)


def recomputed(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function`, keeping only its arguments for the backward pass.

    For functions that cost less to recompute than to write to memory and read back: activations, normalisation. Without
    prevent_cse, XLA on GPUs merges both computations and keeps the intermediate values.
    """
    return jax.checkpoint(function, prevent_cse=platform() == "gpu")


class LayerNorm(nn.Module):
    """Normalises each token's features in float32, then scales and, with biases, shifts them; the result has the
    compute type."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... D"]:
        scale = self.param("scale", nn.initializers.ones_init(), x.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros_init(), x.shape[-1:]) if self.config.biases else None

        dtype, epsilon = compute_dtype(self.config), self.config.layer_norm_epsilon
        if platform() == "gpu":
            return _normalised(x, scale, bias, epsilon, dtype)
        return recomputed(lambda x, scale, bias: _normalise(x, scale, bias, epsilon, dtype))(x, scale, bias)


def _normalise(x, scale, bias, epsilon: float, dtype: jnp.dtype) -> Float[Array, "*B D"]:
    x = x.astype(jnp.float32)
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    normal = centred * jax.lax.rsqrt(variance + epsilon) * scale
    return (normal if bias is None else normal + bias).astype(dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _normalised(x, scale, bias, epsilon: float, dtype: jnp.dtype) -> Float[Array, "*B D"]:
    """`_normalise` for GPUs, with a gradient that XLA computes once instead of once per use."""
    return _normalise(x, scale, bias, epsilon, dtype)


def _normalised_forward(x, scale, bias, epsilon, dtype):
    return _normalise(x, scale, bias, epsilon, dtype), (x, scale, bias)


def _normalised_backward(epsilon, dtype, residuals, gradient):
    x, scale, bias = residuals
    width, rows = x.shape[-1], tuple(range(x.ndim - 1))
    x32, gradient = jax.lax.optimization_barrier(x).astype(jnp.float32), gradient.astype(jnp.float32)
    x32 -= x32[..., :1]  # otherwise a mean much larger than the deviation would cancel the variance's digits
    scaled = gradient * scale
    # All sums over features are computed in one pass; the barrier makes XLA compute them once and not at each use.
    summed = [jnp.sum(each, axis=-1, keepdims=True) for each in (x32, jnp.square(x32), scaled, scaled * x32)]
    of_x32, of_squares, of_scaled, of_products = jax.lax.optimization_barrier(summed)
    mean = of_x32 / width
    inverse = jax.lax.rsqrt(jnp.maximum(of_squares / width - jnp.square(mean), 0) + epsilon)
    normal = (x32 - mean) * inverse
    of_normal = (of_products - mean * of_scaled) * inverse
    of_x = (scaled - (of_scaled + normal * of_normal) / width) * inverse
    of_scale, of_bias = jnp.sum(gradient * normal, rows), None if bias is None else jnp.sum(gradient, rows)
    return jax.lax.optimization_barrier(of_x.astype(x.dtype)), of_scale, of_bias


_normalised.defvjp(_normalised_forward, _normalised_backward)


def activation(config: ModelConfig) -> Callable[[Array], Array]:
    """GELU in the form that `config` names.

    On CPUs and GPUs it is computed in float32: XLA rounds bfloat16 after each operation there, which on CPUs takes
    twice as long. On TPUs XLA rounds once in any case, and an input in float32 would take twice the memory until the
    backward pass.
    """
    if config.activation == "gelu_tanh" and platform() == "gpu":
        return _gelu_tanh

    def gelu(x: Array) -> Array:
        within = x.astype(x.dtype if platform() == "tpu" else jnp.float32)
        return jax.nn.gelu(within, approximate=config.activation == "gelu_tanh").astype(x.dtype)

    return recomputed(gelu)


@jax.custom_vjp
def _gelu_tanh(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3), for GPUs.

    In this form and in the type of a product, XLA leaves GELU to cuBLAS, which computes it before rounding the product
    (the epilogue GELU_AUX_BIAS of cublasLtMatmul).
    """
    return jax.nn.gelu(x, approximate=True)


def _gelu_tanh_backward(x, gradient):
    """The gradient of x sigmoid(2u), which is the same function and takes fewer operations, in float32."""
    x32 = jax.lax.optimization_barrier(x).astype(jnp.float32)
    twice, inner = 2 * math.sqrt(2 / math.pi), 0.044715 * jnp.square(x32)
    gate = jax.nn.sigmoid(twice * x32 * (1 + inner))
    slope = gate * (1 + x32 * (1 - gate) * twice * (1 + 3 * inner))
    return ((gradient * slope).astype(x.dtype),)


_gelu_tanh.defvjp(lambda x: (_gelu_tanh(x), x), _gelu_tanh_backward)
