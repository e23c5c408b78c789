"""Attention without dropout on NVIDIA GPUs, by cuDNN: no [T, S] array in main memory, forwards or backwards.

cuDNN has dropout of its own, but its random numbers depend on how often the kernel has run in a process. A run that
goes on from a checkpoint would draw others than the undisturbed one, so the exact form computes attention with dropout.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

_WIDEST = 128
"""Most features of a head. JAX' call of cuDNN takes 256 on Hopper and newer GPUs, 128 on those before."""


def obstacle(
    platform: str,
    dtype: jnp.dtype,
    head_size: int,
    dropout: float,
    sequences: int = 1,
    causal: bool = False,
    window: int | None = None,
) -> str | None:
    """Why cuDNN can't attend on devices of this `platform`; None where it can.

    `dtype`: of queries, keys and values. `dropout`: the rate at which probabilities are dropped. `sequences`: how many
    a row may hold. `causal` and `window`: as in model.attention.AttentionPattern.
    """
    if platform != "gpu":
        return f"this is a {platform.upper()}, and cuDNN is for NVIDIA's GPUs"
    if dropout:
        return f"attention's dropout is {dropout}, and what cuDNN drops would differ after a restart"
    if dtype != jnp.bfloat16:
        return f"activations are {dtype.name}, and cuDNN attends in bfloat16"
    if head_size % 8 or head_size > _WIDEST:
        return f"heads of width {head_size}, and cuDNN is for multiples of 8 up to {_WIDEST}"
    if sequences > 1:
        return f"rows of up to {sequences} sequences, and cuDNN is used for one a row"
    if window is not None and not causal:
        return f"a window of {window} tokens on both sides, and cuDNN has one on the left only, for causal attention"
    return None


def attend(
    query: Float[Array, "B T H K"],
    key: Float[Array, "B S H K"],
    value: Float[Array, "B S H K"],
    lengths: Int[Array, " B"],
    causal: bool = False,
    window: int | None = None,
    implementation: Literal["cudnn", "xla"] = "cudnn",
) -> Float[Array, "B T H K"]:
    """The mean of `value` under each query's softmax over the first keys of its row, as many as `lengths` says.

    With `causal`, a query attends to no later key than itself; with `window` as well, to none that is farther away.
    A row without tokens attends to its first key, so that the result is a number. `implementation`: "xla" computes the
    same on any device, for tests.
    """
    return jax.nn.dot_product_attention(
        query,
        key,
        value,
        key_value_seq_lengths=jnp.maximum(lengths, 1),
        is_causal=causal,
        local_window_size=None if window is None else (window, 0),
        implementation=implementation,
    )
