"""Attention without dropout over long rows on TPUs, by JAX's splash attention: no [T, S] array in main memory.

The kernel of model/kernels/tpu_attention.py has all keys of a row on the chip, and the keys of a long row don't fit
there. This kernel reads blocks of keys and keeps a running maximum, as FlashAttention does (Dao et al. 2022). It leaves
out blocks outside of the window and, for causal attention, blocks after the query. Keys of another sequence in the row
are computed and masked.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

from bert_jax.model.attention_pattern import AttentionPattern, Places
from bert_jax.model.kernels.attention_blocks import LANES
from bert_jax.model.kernels.attention_form import on_every_device
from bert_jax.model.placement import BATCH_AXES

_BLOCK, _LOCAL_BLOCK = (1024, 512), (512, 256)
"""Most queries and most keys of a program, for global attention and for attention within a window. A larger block has
more keys outside the window. Measured on libtpu 0.0.42's schedule of 8,192 tokens for v5e: global programs of 512
queries take 11% more cycles. Programs of 1,024 keys take 14% fewer, but with wide or float32 heads they don't fit in
the chip's fast memory. Local programs take 10% more cycles with 512 keys and 26% more with 128."""


def splash_attention(
    query: Float[Array, "B T H K"],
    key: Float[Array, "B S H K"],
    value: Float[Array, "B S H K"],
    pattern: AttentionPattern,
) -> Float[Array, "B T H K"]:
    """The mean of `value` under each query's softmax over the keys that `pattern` admits.

    If attention is causal or has a window, all tokens of each row must be queries (T = S), and the tokens of a sequence
    must stand side by side, because the kernel counts places in the row. Padding attends to padding; nothing depends on
    its context.
    """

    def attend_here(query: Array, key: Array, value: Array, queries: Places, keys: Places) -> Array:
        return _attend(query, key, value, pattern._replace(queries=queries, keys=keys))

    heads, rows = P(BATCH_AXES, None, "tensor", None), P(BATCH_AXES)
    on_each = on_every_device(attend_here, (heads, heads, heads, rows, rows), heads)
    return on_each(query, key, value, pattern.queries, pattern.keys)


def _attend(query: Array, key: Array, value: Array, pattern: AttentionPattern) -> Array:
    (_, some, heads, size), length = query.shape, key.shape[1]
    fillers = -some % LANES
    query = jnp.pad(query / math.sqrt(size), [(0, 0), (0, fillers), (0, 0), (0, 0)])
    sequences = splash.SegmentIds(jnp.pad(pattern.queries.sequence, [(0, 0), (0, fillers)]), pattern.keys.sequence)
    of_row = _of_row(heads, query.shape[1], length, pattern.causal, pattern.window)
    context = jax.vmap(of_row)(query.swapaxes(1, 2), key.swapaxes(1, 2), value.swapaxes(1, 2), sequences)
    return context.swapaxes(1, 2)[:, :some]


@functools.cache
def _of_row(
    heads: int, some: int, length: int, causal: bool, window: int | None
) -> Callable[..., Float[Array, "H T K"]]:
    """The kernel for `some` queries of a row of `length` tokens. Finding the blocks of a window takes nearly a second,
    so the result is cached for all layers."""
    if window is not None:
        mask: splash.Mask = splash.LocalMask((some, length), (window, 0 if causal else window), 0)
    else:
        mask = splash.CausalMask((some, length)) if causal else splash.FullMask((some, length))
    most_queries, most_keys = _BLOCK if window is None else _LOCAL_BLOCK
    queries, keys = _block(some, most_queries), _block(length, most_keys)
    sizes = splash.BlockSizes(
        block_q=queries,
        block_kv=keys,
        block_q_dkv=queries,
        block_kv_dkv=keys,
        block_q_dq=queries,
        block_kv_dq=keys,
    )
    with jax.ensure_compile_time_eval():  # concrete arrays, which outlive this trace
        return splash.make_splash_mha_single_device(splash.MultiHeadMask([mask] * heads), block_sizes=sizes)


def _block(length: int, most: int) -> int:
    """The largest number of tokens, up to `most`, that cuts a row of `length` tokens into equal blocks."""
    return max(size for size in range(LANES, most + 1, LANES) if length % size == 0)
