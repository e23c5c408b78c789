"""Linear layers and normalisation, with BERT's initial values."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, DTypeLike, Float

from bert_jax.config.model import ModelConfig
from bert_jax.model.kernels.elementwise import gelu_tanh_gradients, in_float32, layer_norm_gradients, recomputed
from bert_jax.model.kernels.platform import compute_dtype
from bert_jax.model.kernels.products import affine, moved_to_front

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


class Linear(nn.Module):
    """x W + b over the last `contracted` axes of x, or x W without `bias`. The shape of W is that of these axes, then
    `features`."""

    config: ModelConfig
    features: tuple[int, ...]
    contracted: int = 1
    bias: bool = True
    float32: bool = False
    """Whether the result is float32 also where the factors of the product aren't, as a loss or an answer needs it."""
    into_sum: bool = False
    """Whether the result is added to the residual stream, which changes the initial values (`initial_weights`)."""

    @nn.compact
    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        inner = x.shape[x.ndim - self.contracted :]
        kernel = self.param("kernel", initial_weights(self.config, self.into_sum), (*inner, *self.features))
        bias = self.param("bias", nn.initializers.zeros_init(), self.features) if self.bias else None
        dtype = compute_dtype(self.config)
        return project(x, kernel, bias, dtype, self.contracted, result_dtype=jnp.float32 if self.float32 else dtype)


def project(
    x: Float[Array, "..."],
    kernel: Float[Array, "..."],
    bias: Float[Array, "..."] | None,
    dtype: jnp.dtype,
    contracted: int = 1,
    slowest: int = 0,
    result_dtype: DTypeLike | None = None,
) -> Float[Array, "..."]:
    """x W + b over the last `contracted` axes of x and the first ones of `kernel`, from factors in `dtype`, in
    `result_dtype`, by default `dtype`. The axes of features are the last axes of the result, and the one with index
    `slowest` is the first of them."""
    outer, features = x.shape[: x.ndim - contracted], kernel.shape[contracted:]
    product = affine(x.astype(dtype), kernel, bias, contracted, slowest, jnp.dtype(result_dtype or dtype))
    result = checkpoint_name(product, PRODUCT)
    return result.reshape(*outer, *moved_to_front(features, slowest))


class LayerNorm(nn.Module):
    """Normalises each token's features in float32, then scales and, with biases, shifts them; the result has the
    compute type. With model.norm_kind=rms the mean isn't subtracted."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... D"]:
        scale = self.param("scale", nn.initializers.ones_init(), x.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros_init(), x.shape[-1:]) if self.config.biases else None

        dtype, epsilon = compute_dtype(self.config), self.config.layer_norm_epsilon
        if self.config.norm_kind == "rms":
            return recomputed(functools.partial(rms_norm, epsilon=epsilon, dtype=dtype))(x, scale, bias)
        normalise = functools.partial(layer_norm, epsilon=epsilon, dtype=dtype)
        return recomputed(normalise, functools.partial(layer_norm_gradients, epsilon=epsilon))(x, scale, bias)


def layer_norm(
    x: Float[Array, "*B D"],
    scale: Float[Array, " D"],
    bias: Float[Array, " D"] | None,
    epsilon: float,
    dtype: jnp.dtype,
) -> Float[Array, "*B D"]:
    """scale (x - mean) / sqrt(variance + epsilon) + bias, over the features of each token, in float32."""
    x = x.astype(jnp.float32)
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    normal = centred * jax.lax.rsqrt(variance + epsilon) * scale
    return (normal if bias is None else normal + bias).astype(dtype)


def rms_norm(
    x: Float[Array, "*B D"],
    scale: Float[Array, " D"],
    bias: Float[Array, " D"] | None,
    epsilon: float,
    dtype: jnp.dtype,
) -> Float[Array, "*B D"]:
    """scale x / sqrt(mean(x^2) + epsilon) + bias, over the features of each token, in float32."""
    x = x.astype(jnp.float32)
    normal = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + epsilon) * scale
    return (normal if bias is None else normal + bias).astype(dtype)


def activation(config: ModelConfig) -> Callable[[Array], Array]:
    """The activation that `config` names: GELU as x Phi(x), or as 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), or
    SiLU."""
    if config.activation == "silu":
        return in_float32(jax.nn.silu)
    if config.activation == "gelu_tanh":
        return in_float32(functools.partial(jax.nn.gelu, approximate=True), gelu_tanh_gradients)
    return in_float32(functools.partial(jax.nn.gelu, approximate=False))
