"""Matrix products and normalisation, with BERT's initial values."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from bert_jax.config.model import ModelConfig


def initial_weights(config: ModelConfig) -> Callable[..., Array]:
    """A normal of standard deviation `initializer_range`, cut at two deviations: every matrix and table starts so."""
    return nn.initializers.truncated_normal(config.initializer_range)


def compute_dtype(config: ModelConfig) -> jnp.dtype:
    """The type of activations and matrix products."""
    return jnp.dtype(config.compute_dtype)


class Linear(nn.Module):
    """x W + b over the last `contracted` axes of x; W has their shape before `features`."""

    config: ModelConfig
    features: tuple[int, ...]
    contracted: int = 1

    @nn.compact
    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        inner = x.shape[x.ndim - self.contracted :]
        kernel = self.param("kernel", initial_weights(self.config), (*inner, *self.features))
        bias = self.param("bias", nn.initializers.zeros_init(), self.features)
        return project(x, kernel, bias, self.config)


def project(
    x: Float[Array, "..."], kernel: Float[Array, "..."], bias: Float[Array, "..."], config: ModelConfig
) -> Float[Array, "..."]:
    """x W + b in the compute dtype; the axes of `kernel` before those of `bias` are the last ones of `x`."""
    dtype = compute_dtype(config)
    contracted = kernel.ndim - bias.ndim
    outer = x.shape[: x.ndim - contracted]
    inner, features = math.prod(kernel.shape[:contracted]), bias.size

    @recomputed
    def product(x, kernel, bias):
        # One product of two matrices: the shape that every backend has its fastest code for.
        product = x.reshape(*outer, inner).astype(dtype) @ kernel.reshape(inner, features).astype(dtype)
        return product + bias.reshape(-1).astype(dtype)

    return product(x, kernel, bias).reshape(*outer, *bias.shape)


def recomputed(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function` keeping nothing but its arguments for the backward pass.

    For what costs less to compute again than to write to memory and read back: reshaped or converted weights (a copy
    of the model otherwise), activations, normalisation.
    """
    return jax.checkpoint(function, prevent_cse=False)


class LayerNorm(nn.Module):
    """Normalises each token's features in float32, then scale and shift; the result is in the compute dtype.

    He and Xu (2020), section 2, take mean and deviation down a column, over tokens; BERT's code, and this, along a
    token's features.
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... D"]:
        scale = self.param("scale", nn.initializers.ones_init(), x.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros_init(), x.shape[-1:])

        @recomputed
        def normalise(x, scale, bias):
            x = x.astype(jnp.float32)
            centred = x - jnp.mean(x, axis=-1, keepdims=True)
            variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
            normal = centred * jax.lax.rsqrt(variance + self.config.layer_norm_epsilon)
            return (normal * scale + bias).astype(compute_dtype(self.config))

        return normalise(x, scale, bias)


def activation(config: ModelConfig) -> Callable[[Array], Array]:
    """GELU in the form that `config` names.

    The tanh form is 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). He and Xu (2020), section 2, print
    sqrt(0.5 pi) for sqrt(2/pi).
    """
    return recomputed(lambda x: jax.nn.gelu(x, approximate=config.activation == "gelu_tanh"))
