"""Attention without dropout on NVIDIA GPUs, by cuDNN: no [T, S] array in main memory, forwards or backwards.

cuDNN has dropout of its own, but its random numbers depend on how often the kernel has run in a process. A run that
goes on from a checkpoint would draw others than the undisturbed one, so the exact form computes attention with dropout.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Key

from bert_jax.model.attention_form import AttentionCase, Form, on_every_device
from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.placement import BATCH_AXES

_WIDEST = 128
"""Most features of a head. JAX' call of cuDNN takes 256 on Hopper and newer GPUs, 128 on those before."""


def obstacle(case: AttentionCase) -> str | None:
    """Why cuDNN can't compute `case`; None where it can."""
    if case.platform != "gpu":
        return f"this is a {case.platform.upper()}, and cuDNN is for NVIDIA's GPUs"
    if case.dropout:
        return f"attention's dropout is {case.dropout}, and what cuDNN drops would differ after a restart"
    if case.dtype != jnp.bfloat16:
        return f"activations are {case.dtype.name}, and cuDNN attends in bfloat16"
    if case.head_size % 8 or case.head_size > _WIDEST:
        return f"heads of width {case.head_size}, and cuDNN is for multiples of 8 up to {_WIDEST}"
    if case.sequences > 1:
        return f"rows of up to {case.sequences} sequences, and cuDNN is used for one a row"
    if case.window is not None and not case.causal:
        return (
            f"a window of {case.window} tokens on both sides, and cuDNN has one on the left only, for causal attention"
        )
    if case.some_queries:
        return "some tokens of a row are queries, and cuDNN is used for all"
    return None


def attend(
    query: Float[Array, "B T H K"],
    key: Float[Array, "B T H K"],
    value: Float[Array, "B T H K"],
    pattern: AttentionPattern,
    rate: float,
    dropout_keys: Key[Array, "B N"] | None,
) -> Float[Array, "B T H K"]:
    """The exact form's result without dropout, where each row holds one sequence and all its tokens are queries.

    A row without tokens attends to its first key, so that the result is a number.
    """
    attention = functools.partial(
        jax.nn.dot_product_attention,
        is_causal=pattern.causal,
        local_window_size=None if pattern.window is None else (pattern.window, 0),
        implementation="cudnn",
    )

    def attend_here(query: Array, key: Array, value: Array, lengths: Array) -> Array:
        return attention(query, key, value, key_value_seq_lengths=jnp.maximum(lengths, 1))

    heads = P(BATCH_AXES, None, "tensor", None)
    lengths = jnp.sum(pattern.keys.sequence > 0, axis=1, dtype=jnp.int32)
    return on_every_device(attend_here, (heads, heads, heads, P(BATCH_AXES)), heads)(query, key, value, lengths)


CUDNN = Form("cudnn", obstacle, attend)
