"""Functions of single elements and of single tokens, in the form that is fastest on the device."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Bool, Float, Int, PyTree

from bert_jax.model.kernels.platform import on_one_device, platform


def recomputed(
    function: Callable[..., Array], gpu_gradients: Callable[..., tuple[Array | None, ...]] | None = None
) -> Callable[..., Array]:
    """`function`, keeping only its arguments for the backward pass.

    For functions that cost less to recompute than to write to memory and read back: activations, normalisation. Without
    prevent_cse, XLA on GPUs merges both computations and keeps the intermediate values.

    `gpu_gradients`: (arguments, gradient of the result) -> gradients of the arguments, which GPUs compute in place of
    automatic differentiation.
    """
    on_gpu = platform() == "gpu"
    if not (on_gpu and gpu_gradients):
        return jax.checkpoint(function, prevent_cse=on_gpu)
    written_out = jax.custom_vjp(function)
    written_out.defvjp(lambda *arguments: (function(*arguments), arguments), gpu_gradients)
    return written_out


def in_float32(
    function: Callable[[Array], Array], gpu_gradients: Callable[..., tuple[Array | None, ...]] | None = None
) -> Callable[[Array], Array]:
    """`function` of single elements, computed in float32, with a result of its argument's type. `gpu_gradients`: see
    `recomputed`.

    On CPUs and GPUs XLA rounds bfloat16 after each operation, which on CPUs takes twice as long. On TPUs XLA rounds
    once in any case, and an input in float32 would take twice the memory until the backward pass. With `gpu_gradients`,
    GPUs compute it in the argument's type: in this form XLA leaves GELU to cuBLAS, which computes it before rounding
    the product (the epilogue GELU_AUX_BIAS of cublasLtMatmul).
    """
    if gpu_gradients and platform() == "gpu":
        return recomputed(function, gpu_gradients)
    return recomputed(lambda x: function(x.astype(x.dtype if platform() == "tpu" else jnp.float32)).astype(x.dtype))


def layer_norm_gradients(
    arguments: tuple[Float[Array, "*B D"], Float[Array, " D"], Float[Array, " D"] | None],
    gradient: Float[Array, "*B D"],
    epsilon: float,
) -> tuple[Float[Array, "*B D"], Float[Array, " D"], Float[Array, " D"] | None]:
    """The gradients of `layer_norm` (model/linear.py), in a form that XLA computes once instead of once per use."""
    x, scale, bias = arguments
    width, rows = x.shape[-1], tuple(range(x.ndim - 1))
    x32, gradient = jax.lax.optimization_barrier(x).astype(jnp.float32), gradient.astype(jnp.float32)
    x32 -= x32[..., :1]  # otherwise a mean much larger than the deviation would cancel the variance's digits
    scaled = gradient * scale
    # All sums over features are computed in one pass; the barrier makes XLA compute them once and not at each use.
    summed = [jnp.sum(array, axis=-1, keepdims=True) for array in (x32, jnp.square(x32), scaled, scaled * x32)]
    of_x32, of_squares, of_scaled, of_products = jax.lax.optimization_barrier(summed)
    mean = of_x32 / width
    inverse = jax.lax.rsqrt(jnp.maximum(of_squares / width - jnp.square(mean), 0) + epsilon)
    normal = (x32 - mean) * inverse
    of_normal = (of_products - mean * of_scaled) * inverse
    of_x = (scaled - (of_scaled + normal * of_normal) / width) * inverse
    of_scale, of_bias = jnp.sum(gradient * normal, rows), None if bias is None else jnp.sum(gradient, rows)
    return jax.lax.optimization_barrier(of_x.astype(x.dtype)), of_scale, of_bias


def gelu_tanh_gradients(arguments: tuple[Float[Array, "..."]], gradient: Float[Array, "..."]) -> tuple[Array]:
    """The gradient of GELU by tanh, computed in float32. GELU is written as x sigmoid(2u) with u = sqrt(2/pi) (x +
    0.044715 x^3), which equals its form with tanh and takes fewer operations."""
    (x,) = arguments
    x32 = jax.lax.optimization_barrier(x).astype(jnp.float32)
    twice, inner = 2 * math.sqrt(2 / math.pi), 0.044715 * jnp.square(x32)
    gate = jax.nn.sigmoid(twice * x32 * (1 + inner))
    slope = gate * (1 + x32 * (1 - gate) * twice * (1 + 3 * inner))
    return ((gradient * slope).astype(x.dtype),)


def cosines_and_sines(
    frequencies: Float[np.ndarray, " K"], positions: Int[Array, "B T"] | None, length: int
) -> tuple[Float[Array, "#B T K"], Float[Array, "#B T K"]]:
    """The cosine and the sine of each position times each frequency. `positions`: None if vector t of each row has
    position t; otherwise each is less than `length`."""
    if positions is not None and platform() != "cpu":
        angles = positions[:, :, None] * frequencies
        return jnp.cos(angles), jnp.sin(angles)
    angles = np.arange(length, dtype=np.float32)[:, None] * frequencies
    cosines, sines = jnp.asarray(np.cos(angles)), jnp.asarray(np.sin(angles))  # constants of the program
    if positions is None:
        return cosines[None], sines[None]
    return cosines[positions], sines[positions]  # XLA would compute them again for each head and use, which is slower


def row_major(x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
    """`x` with a row-major layout on a GPU. XLA would otherwise choose a layout with the batch axis last for the
    residual stream, and transpose it before and after each norm.

    On a mesh of several devices, XLA would gather the whole batch for such a constraint, so `x` is returned as it is.
    """
    return with_layout_constraint(x, Layout(major_to_minor=(0, 1, 2))) if on_one_device("gpu") else x


def updated_if(good: Bool[Array, ""], updated: Callable[[], PyTree], unchanged: PyTree) -> PyTree:
    """The result of `updated` if `good`, else `unchanged`.

    On accelerators the choice is a select, which XLA fuses with the update; a condition would copy weights and moments
    between two layouts (1.2 GB a step of BERT-base on a TPU, and 1 GiB of memory). On CPUs the choice is a condition; a
    select would need arrays of its own (0.5 GB for BERT-base).
    """
    if platform() == "cpu":
        return jax.lax.cond(good, updated, lambda: unchanged)
    return jax.tree.map(lambda new, old: jnp.where(good, new, old), updated(), unchanged)
