"""The form of attention for TPUs: bert_jax's own kernel for rows whose keys fit on the chip, and JAX's splash attention
for longer rows. The kernels' modules are imported at their first use, because Pallas takes a second to import.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Key

from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.exact_attention import is_in_strips
from bert_jax.model.kernels.attention_blocks import LANES, Admission, TpuKernel
from bert_jax.model.kernels.attention_form import AttentionCase, Form, head_shards, on_every_device
from bert_jax.model.placement import BATCH_AXES

MOST_KEYS = {16: 512, 32: 1024, 64: 2048, 128: 2048, 256: 1024}
"""Tokens of the longest rows for bert_jax's own kernel, by the width of a head. Rows of this length fit in the chip's
fast memory with every attention pattern in float32. This was found with libtpu 0.0.42 for v4, the chip with the least
fast memory."""
_WIDEST = 256
"""Most features of a head in splash attention, so that its programs fit in the chip's memory in float32."""


def _obstacle(case: AttentionCase) -> str | None:
    """Why no kernel can compute `case`; None if one can."""
    if case.platform != "tpu":
        return f"this is a {case.platform.upper()}, and the kernel is for TPUs"
    return _obstacle_of_long_rows(case) if is_in_strips(case.length, case.length) else _obstacle_of_short_rows(case)


def _obstacle_of_short_rows(case: AttentionCase) -> str | None:
    heads, size, length = case.heads, case.head_size, case.length
    if size not in MOST_KEYS:
        return f"heads of width {size}, and the kernel is for {', '.join(map(str, MOST_KEYS))}"
    if heads * size % LANES:
        return f"{heads} heads of {size} that take up {heads * size} lanes together, not a multiple of {LANES}"
    if length % LANES or length > MOST_KEYS[size]:
        return f"rows of {length:,} tokens, not a multiple of {LANES} up to {MOST_KEYS[size]:,}"
    if case.some_queries:
        return "queries at some tokens of a row alone, and the kernel is for all"
    return None


def _obstacle_of_long_rows(case: AttentionCase) -> str | None:
    rows = f"rows of {case.length:,} tokens"
    if case.dropout:
        return f"{rows} with attention's dropout at {case.dropout:g}, and the kernel for long rows has none"
    if case.head_size > _WIDEST:
        return f"heads of width {case.head_size}, and the kernel for long rows is for up to {_WIDEST}"
    if case.length % LANES:
        return f"{rows}, not a multiple of {LANES}"
    if case.some_queries and (case.causal or case.window is not None):
        return "queries at some tokens of a row alone that attend to different keys, and the kernel is for all tokens"
    return None


def _attend(
    query: Float[Array, "B T H K"],
    key: Float[Array, "B S H K"],
    value: Float[Array, "B S H K"],
    pattern: AttentionPattern,
    rate: float,
    dropout_keys: Key[Array, "B N H"] | None,
) -> Float[Array, "B T H K"]:
    """Computes attention by a kernel; the result is that of the exact form, up to rounding."""
    if is_in_strips(key.shape[1], key.shape[1]):
        from bert_jax.model.kernels import splash_attention

        return splash_attention.splash_attention(query, key, value, pattern)
    from bert_jax.model.kernels import tpu_attention

    batch, length, heads, size = key.shape
    if dropout_keys is None:
        rate, keys = 0.0, jnp.zeros((batch, pattern.sequences, heads, 2), jnp.uint32)
    else:
        keys = jax.random.key_data(dropout_keys)
    kernel = TpuKernel(
        heads=heads // head_shards(),
        head_size=size,
        rate=rate,
        admission=Admission(pattern.sequences, pattern.causal, pattern.window),
    )
    features, rows = P(BATCH_AXES, None, "tensor"), P(BATCH_AXES)
    attend_here = on_every_device(
        functools.partial(tpu_attention.tpu_attention, kernel),
        (features, features, features, rows, P(BATCH_AXES, None, "tensor")),
        features,
    )
    places = jnp.stack([pattern.keys.sequence, pattern.keys.position], axis=1)
    flat = (each.reshape(batch, length, -1) for each in (query, key, value))
    return attend_here(*flat, places, keys).reshape(query.shape)


TPU = Form("tpu", _obstacle, _attend, whole_arrays=True)
