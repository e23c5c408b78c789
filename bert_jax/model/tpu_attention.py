"""Attention by TPU kernels: no [T, S] array in main memory, forwards or backwards.

A program has a block of queries and all keys of a few heads on the chip. Where all queries of a row attend to the same
keys it computes all scores of the block at once; where they don't, it goes over those blocks of keys that any of them
may attend to (model/tpu_ranges.py). The backward pass computes the probabilities again, as in FlashAttention (Dao et
al. 2022). Dropout is drawn inside, by the function and keys of the exact form (model/dropout.py): both keep the same
elements. JAX's splash attention has no dropout.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int, UInt32

from bert_jax.model import tpu_ranges
from bert_jax.model.dropout import scale
from bert_jax.model.tpu_kernel import LANES, LEAST, Call, Kernel, admitted, here, of_queries, product, survivors

MOST_KEYS = {16: 512, 32: 1024, 64: 2048, 128: 2048, 256: 1024}
"""Tokens of the longest rows, by the width of a head. So many fit in the chip's fast memory with every pattern in
float32, as libtpu 0.0.42 compiles for v4, which has the least of it."""
_MOST_SCORES = 512 * 512
"""Scores of a head in a program at a time: a MiB in float32, of which about six are alive at once."""
_MOST_FEATURES = 1024 * LANES
"""Features of queries, or of keys, in a program where that has several rows."""


def obstacle(heads: int, head_size: int, length: int) -> str | None:
    """Why the kernel can't attend over rows of `length` tokens; None where it can."""
    if head_size not in MOST_KEYS:
        return f"heads of width {head_size}, and the kernel is for {', '.join(map(str, MOST_KEYS))}"
    if heads * head_size % LANES:
        return (
            f"{heads} heads of {head_size} that take up {heads * head_size} lanes together, not a multiple of {LANES}"
        )
    if length % LANES or length > MOST_KEYS[head_size]:
        return f"rows of {length:,} tokens, not a multiple of {LANES} up to {MOST_KEYS[head_size]:,}"
    return None


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(
    kernel: Kernel,
    query: Float[Array, "B T D"],
    key: Float[Array, "B T D"],
    value: Float[Array, "B T D"],
    places: Int[Array, "B 2 T"],
    head_keys: UInt32[Array, "B N H 2"],
) -> Float[Array, "B T D"]:
    """The mean of `value` under each query's softmax over the keys of its row, after dropout; heads side by side.

    `places`: the number of each token's sequence, 0 for padding, and its position. `head_keys`: of dropout, for each
    sequence and head.
    """
    return _forward(kernel, query, key, value, places, head_keys)[0]


def _forward(kernel, query, key, value, places, head_keys):
    if _by_range(kernel, query):
        context, normaliser = tpu_ranges.attend(_call(kernel, query, LANES), query, key, value, places, head_keys)
        return context, (query, key, value, places, head_keys, context, normaliser)
    taken = ("queries", query), ("keys", key), ("keys", value), ("places", places)
    call = _call(kernel, query, _block(query.shape[1]))
    (context,) = call(_attend_block, [head_keys], taken, [("queries", _like(query))], products=2)
    return context, (query, key, value, places, head_keys, None, None)


def _backward(kernel, kept, gradient):
    query, key, value, places, head_keys, context, normaliser = kept
    if _by_range(kernel, query):
        given = query, key, value, places, head_keys, context, normaliser, gradient
        return *tpu_ranges.differentiate(_call(kernel, query, LANES), *given), None, None
    taken = ("queries", query), ("keys", key), ("keys", value), ("places", places), ("queries", gradient)
    made = ("queries", _like(query)), ("keys", _like(key)), ("keys", _like(value))
    call = _call(kernel, query, _block(query.shape[1]))
    return *call(_differentiate_block, [head_keys], taken, made, products=5, summed=2), None, None


attend.defvjp(_forward, _backward)


def _by_range(kernel: Kernel, query: Float[Array, "B T D"]) -> bool:
    """Whether there are blocks of keys that some queries of a row may leave out."""
    return kernel.by_query and query.shape[1] > LANES


def _call(kernel: Kernel, query: Float[Array, "B T D"], block: int) -> Call:
    batch, length, _ = query.shape
    rows = math.gcd(batch, max(1, _MOST_FEATURES // (length * kernel.lanes)))
    return Call(kernel, query.shape, rows, block)


def _like(array: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _block(length: int) -> int:
    """Queries in a block: as many as have no more than _MOST_SCORES scores, in blocks of equal size."""
    sizes = [size for size in range(LANES, length + 1, LANES) if length % size == 0 and size * length <= _MOST_SCORES]
    return max(sizes, default=LANES)


def _attend_block(kernel: Kernel, head_keys, query, key, value, places, context):
    program = here()

    @pl.loop(0, query.shape[0])
    def _(row):
        for number, head in enumerate(kernel.head_lanes):
            probabilities, _, kept = _probabilities(kernel, program, head_keys, query, key, places, row, number)
            if kept is not None:
                probabilities = jnp.where(kept, probabilities * scale(kernel.rate), 0.0)
            found = product(probabilities.astype(value.dtype), value[row, :, head], (1, 0))
            context[row, :, head] = found.astype(context.dtype)


def _differentiate_block(
    kernel: Kernel, head_keys, query, key, value, places, gradient, of_query, of_key, of_value, key_sum, value_sum
):
    program = here()

    @pl.when(program[2] == 0)
    def _():
        key_sum[...] = jnp.zeros_like(key_sum)
        value_sum[...] = jnp.zeros_like(value_sum)

    @pl.loop(0, query.shape[0])
    def _(row):
        for number, head in enumerate(kernel.head_lanes):
            probabilities, admitted, kept = _probabilities(kernel, program, head_keys, query, key, places, row, number)
            of_context = gradient[row, :, head]
            of_dropped = product(of_context, value[row, :, head], (1, 1))
            dropped, of_probabilities = probabilities, of_dropped
            if kept is not None:
                dropped = jnp.where(kept, probabilities * scale(kernel.rate), 0.0)
                of_probabilities = jnp.where(kept, of_dropped * scale(kernel.rate), 0.0)
            value_sum[row, :, head] += product(dropped.astype(of_context.dtype), of_context, (0, 0))
            mean = jnp.sum(probabilities * of_probabilities, axis=1, keepdims=True)
            of_scores = probabilities * (of_probabilities - mean) / math.sqrt(kernel.head_size)
            # Where no key is admitted all have the same probability, and none a gradient.
            of_scores = jnp.where(admitted, of_scores, 0.0).astype(query.dtype)
            of_query[row, :, head] = product(of_scores, key[row, :, head], (1, 0)).astype(of_query.dtype)
            key_sum[row, :, head] += product(of_scores, query[row, :, head], (0, 0))

    @pl.when(program[2] == pl.num_programs(2) - 1)
    def _():
        of_key[...] = key_sum[...].astype(of_key.dtype)
        of_value[...] = value_sum[...].astype(of_value.dtype)


def _probabilities(kernel: Kernel, program, head_keys, query, key, places, row, number: int):
    """One head's softmax in one row of the block; which keys are admitted, and which dropout keeps (None: all)."""
    head = kernel.head_lanes[number]
    scores = product(query[row, :, head], key[row, :, head], (1, 1)) / math.sqrt(kernel.head_size)
    own, at = of_queries(places, row, program[2], scores.shape[0]) if kernel.by_query else (None, None)
    allowed = admitted(kernel, own, at, places[row, :1], places[row, 1:])
    scores = jnp.where(allowed, scores, LEAST)
    powers = jnp.exp(scores - jnp.max(scores, axis=1, keepdims=True))
    probabilities = powers / jnp.sum(powers, axis=1, keepdims=True)
    if not kernel.rate:
        return probabilities, allowed, None
    if kernel.sequences > 1:
        line, column = at, places[row, 1:]
    else:
        line, column = (jax.lax.broadcasted_iota(jnp.int32, scores.shape, axis) for axis in range(2))
        line += program[2] * scores.shape[0]
    of_row, of_head = program[0] * query.shape[0] + row, program[1] * kernel.together + number
    return probabilities, allowed, survivors(kernel, head_keys, of_row, of_head, own, line, column)
