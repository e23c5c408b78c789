"""Attention as one TPU kernel: neither the forward nor the backward pass has a [T, S] array in main memory.

A program of the kernel has a block of queries and all keys of a few heads on the chip, so that the softmax needs no
running maximum; the backward pass computes the probabilities again, as in FlashAttention (Dao et al. 2022). Dropout is
drawn inside the kernel, by the function and keys of the exact form (model/dropout.py), so both keep the same elements.
JAX's splash attention has no dropout.

The programs here are for rows that hold one sequence. The programs for packed rows, in tpu_attention_tiles.py, leave
out queries and keys that share no sequence.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Int, UInt32

from bert_jax.model.dropout import column_word, row_word, scale, survives
from bert_jax.model.kernels import tpu_attention_tiles
from bert_jax.model.kernels.attention_blocks import LANES, LEAST, TpuKernel, block_product

_MOST_SCORES = 512 * 512
"""Most scores of a head in a program at a time. This array takes 1 MiB in float32, and about six such arrays are alive
at once."""
_MOST_FEATURES = 1024 * LANES
"""Most features of queries, or of keys, in a program of several rows."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def tpu_attention(
    kernel: TpuKernel,
    query: Float[Array, "B T D"],
    key: Float[Array, "B T D"],
    value: Float[Array, "B T D"],
    places: Int[Array, "B 2 T"],
    head_keys: UInt32[Array, "B N H 2"],
) -> Float[Array, "B T D"]:
    """The mean of `value` under each query's softmax over the keys of its row, after dropout; heads side by side.

    `places`: the number of each token's sequence, 0 for padding, and its position. `head_keys`: the dropout keys of
    each sequence and head.
    """
    return _forward(kernel, query, key, value, places, head_keys)[0]


def _forward(kernel, query, key, value, places, head_keys):
    program = _attend_block if kernel.admission.sequences == 1 else tpu_attention_tiles.attend_block
    (context,) = _call(program, kernel, places, head_keys, (query, key, value), ("queries",), in_scratch=0)
    return context, (query, key, value, places, head_keys)


def _backward(kernel, residuals, gradient):
    query, key, value, places, head_keys = residuals
    program = _differentiate_block if kernel.admission.sequences == 1 else tpu_attention_tiles.differentiate_block
    arrays, results = (query, key, value, gradient), ("queries", "keys", "keys")
    return *_call(program, kernel, places, head_keys, arrays, results, in_scratch=2), None, None


tpu_attention.defvjp(_forward, _backward)


def _call(
    program: Callable[..., None],
    kernel: TpuKernel,
    places: Int[Array, "B 2 T"],
    head_keys: UInt32[Array, "B N H 2"],
    arrays: tuple[Float[Array, "B T D"], ...],
    results: tuple[str, ...],
    in_scratch: int,
) -> tuple[Array, ...]:
    """Runs `program` over rows, heads and blocks of queries, one after the other. `results`: for each result, whether
    it is split by blocks of "queries" or has all "keys". `in_scratch`: number of results of the latter kind, which are
    summed over the blocks of queries."""
    batch, length, width = arrays[0].shape
    block = _block(length)
    lanes = kernel.together * kernel.head_size
    rows = math.gcd(batch, max(1, _MOST_FEATURES // (length * lanes)))
    grid = batch // rows, width // lanes, length // block
    if kernel.admission.sequences == 1:
        scalars, lines = head_keys, places[:, None]
    else:
        scalars = tpu_attention_tiles.tile_spans(kernel, places, tpu_attention_tiles.tile_of(block))
        lines = tpu_attention_tiles.token_lines(kernel, places, head_keys)
    _, groups, *of_group = lines.shape
    by = {
        "queries": pl.BlockSpec((rows, block, lanes), lambda row, head, part, *_: (row, part, head)),
        "keys": pl.BlockSpec((rows, length, lanes), lambda row, head, part, *_: (row, 0, head)),
        "lines": pl.BlockSpec((rows, None, *of_group), lambda row, head, part, *_: (row, head % groups, 0, 0)),
    }
    taken = ["queries", "keys", "keys", "lines", "queries"][: len(arrays) + 1]
    products = (2 if len(results) == 1 else 5) * 2 * batch * length * length * width
    moved = (len(arrays) + len(results)) * arrays[0].nbytes + lines.nbytes
    return pl.pallas_call(
        functools.partial(program, kernel),
        out_shape=[jax.ShapeDtypeStruct(arrays[0].shape, arrays[0].dtype)] * len(results),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=grid,
            in_specs=[by[name] for name in taken],
            out_specs=[by[name] for name in results],
            scratch_shapes=[pltpu.VMEM((rows, length, lanes), jnp.float32)] * in_scratch,
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        # The estimate is for rows of one sequence: how much of packed rows is skipped is known only when the kernel
        # runs.
        cost_estimate=pl.CostEstimate(
            flops=products, transcendentals=batch * kernel.heads * length * length, bytes_accessed=moved
        ),
    )(scalars.reshape(-1), *arrays[:3], lines, *arrays[3:])


def _block(length: int) -> int:
    """Number of queries in a block: the most that have at most _MOST_SCORES scores, in blocks of equal size."""
    sizes = [size for size in range(LANES, length + 1, LANES) if length % size == 0 and size * length <= _MOST_SCORES]
    return max(sizes, default=LANES)


def _attend_block(kernel: TpuKernel, head_keys, query, key, value, places, context):
    here = _here()

    @pl.loop(0, query.shape[0])
    def _(row):
        for number, head in enumerate(kernel.lanes):
            probabilities, _, keep = _probabilities(kernel, here, head_keys, query, key, places, row, number)
            if keep is not None:
                probabilities = jnp.where(keep, probabilities * scale(kernel.rate), 0.0)
            sums = block_product(probabilities.astype(value.dtype), value[row, :, head], (1, 0))
            context[row, :, head] = sums.astype(context.dtype)


def _differentiate_block(
    kernel: TpuKernel, head_keys, query, key, value, places, gradient, of_query, of_key, of_value, key_sum, value_sum
):
    here = _here()

    @pl.when(here[2] == 0)
    def _():
        key_sum[...] = jnp.zeros_like(key_sum)
        value_sum[...] = jnp.zeros_like(value_sum)

    @pl.loop(0, query.shape[0])
    def _(row):
        for number, head in enumerate(kernel.lanes):
            probabilities, admitted, keep = _probabilities(kernel, here, head_keys, query, key, places, row, number)
            of_context = gradient[row, :, head]
            of_dropped = block_product(of_context, value[row, :, head], (1, 1))
            dropped, of_probabilities = probabilities, of_dropped
            if keep is not None:
                dropped = jnp.where(keep, probabilities * scale(kernel.rate), 0.0)
                of_probabilities = jnp.where(keep, of_dropped * scale(kernel.rate), 0.0)
            value_sum[row, :, head] += block_product(dropped.astype(of_context.dtype), of_context, (0, 0))
            mean = jnp.sum(probabilities * of_probabilities, axis=1, keepdims=True)
            of_scores = probabilities * (of_probabilities - mean) / math.sqrt(kernel.head_size)
            # If no key is admitted, all keys have the same probability and none has a gradient.
            of_scores = jnp.where(admitted, of_scores, 0.0).astype(query.dtype)
            of_query[row, :, head] = block_product(of_scores, key[row, :, head], (1, 0)).astype(of_query.dtype)
            key_sum[row, :, head] += block_product(of_scores, query[row, :, head], (0, 0))

    @pl.when(here[2] == pl.num_programs(2) - 1)
    def _():
        of_key[...] = key_sum[...].astype(of_key.dtype)
        of_value[...] = value_sum[...].astype(of_value.dtype)


def _here() -> tuple[Array, Array, Array]:
    """The program's numbers along rows, heads and blocks of queries. They can't be read within a loop."""
    return pl.program_id(0), pl.program_id(1), pl.program_id(2)


def _probabilities(kernel: TpuKernel, here, head_keys, query, key, places, row, number: int):
    """One head's softmax in one row of the block; which keys are admitted, and which keys dropout keeps (None: all)."""
    head = kernel.lanes[number]
    scores = block_product(query[row, :, head], key[row, :, head], (1, 1)) / math.sqrt(kernel.head_size)
    admitted = _admitted(kernel, here, places, row, scores.shape[0])
    scores = jnp.where(admitted, scores, LEAST)
    powers = jnp.exp(scores - jnp.max(scores, axis=1, keepdims=True))
    probabilities = powers / jnp.sum(powers, axis=1, keepdims=True)
    if not kernel.rate:
        return probabilities, admitted, None
    first = 2 * ((here[0] * query.shape[0] + row) * kernel.heads + here[1] * kernel.together + number)
    queries, keys = scores.shape
    line = jax.lax.broadcasted_iota(jnp.int32, (queries, LANES), 0)[:, :1] + here[2] * queries
    column = jax.lax.broadcasted_iota(jnp.int32, (8, keys), 1)[:1]
    row = row_word(head_keys[first], line.astype(jnp.uint32))
    keep = survives(row, head_keys[first + 1], column_word(column.astype(jnp.uint32)), kernel.rate)
    return probabilities, admitted, keep


def _admitted(kernel: TpuKernel, here, places, row, block: int):
    """Which keys each query of the block attends to; a single line if it is the same for all queries."""
    sequence, position = places[row, :1], places[row, 1:]
    admitted = sequence > 0
    if not kernel.admission.causal and kernel.admission.window is None:
        return admitted
    begin = pl.multiple_of(here[2] * block, LANES)
    of_queries = places[row, 1:, pl.ds(begin, block)]
    at = jnp.transpose(jnp.broadcast_to(of_queries, (LANES, block)))[:, :1]
    if kernel.admission.causal:
        admitted &= position <= at
    if kernel.admission.window is not None:
        admitted &= jnp.abs(position - at) <= kernel.admission.window
    return admitted
