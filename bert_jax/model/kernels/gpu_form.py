"""The form of attention for NVIDIA GPUs: a kernel with dropout inside, for rows of one or several sequences.

The kernel's module is imported at the first use, because Pallas takes a second to import.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Key

from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.kernels.attention_blocks import Admission
from bert_jax.model.kernels.attention_form import AttentionCase, Form, on_every_device
from bert_jax.model.kernels.platform import is_ampere_or_newer
from bert_jax.model.placement import BATCH_AXES

_HEAD_SIZES = (16, 32, 64, 128)
_LEAST_BLOCK = 32
"""Tokens of the smallest block; the length of a row must be a multiple of it."""


def _obstacle(case: AttentionCase) -> str | None:
    """Why the kernel can't compute `case`; None if it can."""
    if case.platform != "gpu":
        return f"this is a {case.platform.upper()}, and the kernel is for NVIDIA's GPUs"
    if not is_ampere_or_newer():
        return "the kernel needs an NVIDIA GPU of compute capability 8.0 or higher"
    if case.dtype != jnp.bfloat16:
        return f"activations are {case.dtype.name}, and the kernel is for bfloat16"
    if case.head_size not in _HEAD_SIZES:
        return f"heads have width {case.head_size}; the kernel supports {', '.join(map(str, _HEAD_SIZES))}"
    if case.length % _LEAST_BLOCK:
        return f"rows of {case.length:,} tokens, not a multiple of {_LEAST_BLOCK}"
    if case.some_queries:
        return "only some tokens of a row are queries, and the kernel needs all of them"
    return None


def _attend(
    query: Float[Array, "B T H K"],
    key: Float[Array, "B T H K"],
    value: Float[Array, "B T H K"],
    pattern: AttentionPattern,
    rate: float,
    dropout_keys: Key[Array, "B N H"] | None,
) -> Float[Array, "B T H K"]:
    """Computes attention by the kernel; the result is that of the exact form, up to rounding."""
    from bert_jax.model.kernels import gpu_attention

    batch, length, heads, _ = key.shape
    if dropout_keys is None:
        rate, keys = 0.0, jnp.zeros((batch, pattern.sequences, heads, 2), jnp.uint32)
    else:
        keys = jax.random.key_data(dropout_keys)
    block = functools.partial(math.gcd, length)
    kernel = gpu_attention.GpuKernel(
        key.shape[3],
        rate,
        Admission(pattern.sequences, pattern.causal, pattern.window),
        # The fastest of the tried settings on an H200, for heads of 64 and rows of 128 and 512.
        forward=gpu_attention.Tiling(block(128), block(64), warps=4, stages=3),
        of_keys=gpu_attention.Tiling(block(64), block(64), warps=4, stages=3),
        of_queries=gpu_attention.Tiling(block(64), block(64), warps=4, stages=2),
    )
    by_head = P(BATCH_AXES, None, "tensor")
    attend_here = on_every_device(
        functools.partial(gpu_attention.gpu_attention, kernel),
        (P(BATCH_AXES, None, None, "tensor"), P(BATCH_AXES), by_head),
        by_head,
    )
    places = jnp.stack([pattern.keys.sequence, pattern.keys.position], axis=1)
    # If the three are slices of one product, XLA removes the stack.
    return attend_here(jnp.stack([query, key, value], axis=2), places, keys)


GPU = Form("gpu", _obstacle, _attend)
