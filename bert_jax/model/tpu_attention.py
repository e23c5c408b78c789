"""Attention as one TPU kernel: no [T, S] array in main memory, forwards or backwards.

A program of the kernel has a block of queries and all keys of a few heads on the chip, so that the softmax needs no
running maximum; the backward pass computes the probabilities again, as in FlashAttention (Dao et al. 2022). Dropout is
drawn inside, by the function and keys of the exact form (model/dropout.py): both keep the same elements. JAX's splash
attention has no dropout.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Int, UInt32

from bert_jax.model.dropout import scale, survives

LANES = 128
"""Width of a TPU's vector registers: the last axis of every block is a multiple of it."""
MOST_KEYS = {16: 512, 32: 1024, 64: 2048, 128: 2048, 256: 1024}
"""Tokens of the longest rows, by the width of a head. So many fit in the chip's fast memory with every pattern in
float32, as libtpu 0.0.42 compiles for v4, which has the least of it."""
_MOST_SCORES = 512 * 512
"""Scores of a head in a program at a time: a MiB in float32, of which about six are alive at once."""
_MOST_FEATURES = 1024 * LANES
"""Features of queries, or of keys, in a program where that has several rows."""
_LEAST = float(np.finfo(np.float32).min)


class Kernel(NamedTuple):
    """What a kernel is compiled for."""

    heads: int
    head_size: int
    rate: float
    """Of dropout; 0 for none."""
    sequences: int
    """How many sequences a row may hold."""
    causal: bool
    window: int | None
    interpreted: bool
    """Whether it runs as plain JAX operations, on any backend: for tests."""

    @property
    def together(self) -> int:
        """Heads of a program: as many as fill the lanes."""
        return max(1, LANES // self.head_size)

    @property
    def by_query(self) -> bool:
        """Whether the queries of a row attend to different keys."""
        return self.sequences > 1 or self.causal or self.window is not None


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
    arrays = query, key, value, places
    (context,) = _call(_attend_block, kernel, head_keys, arrays, ("queries",), in_scratch=0)
    return context, (*arrays, head_keys)


def _backward(kernel, kept, gradient):
    *arrays, head_keys = kept
    made = "queries", "keys", "keys"
    gradients = _call(_differentiate_block, kernel, head_keys, (*arrays, gradient), made, in_scratch=2)
    return *gradients, None, None


attend.defvjp(_forward, _backward)


def _call(
    program: Any, kernel: Kernel, head_keys: Array, arrays: tuple, made: tuple[str, ...], in_scratch: int
) -> tuple[Array, ...]:
    """Runs `program` over rows, heads and blocks of queries, one after the other; `made`: what each result is split by.

    `in_scratch`: how many of the results that are split by keys alone are summed over the blocks of queries.
    """
    query, places = arrays[0], arrays[3]
    batch, length, width = query.shape
    block = _block(length)
    lanes = kernel.together * kernel.head_size
    rows = math.gcd(batch, max(1, _MOST_FEATURES // (length * lanes)))
    grid = batch // rows, width // lanes, length // block
    by = {
        "queries": pl.BlockSpec((rows, block, lanes), lambda row, head, part, *_: (row, part, head)),
        "keys": pl.BlockSpec((rows, length, lanes), lambda row, head, part, *_: (row, 0, head)),
        "places": pl.BlockSpec((rows, *places.shape[1:]), lambda row, head, part, *_: (row, 0, 0)),
    }
    taken = ["queries", "keys", "keys", "places", "queries"][: len(arrays)]
    products = (2 if len(made) == 1 else 5) * 2 * batch * length * length * width
    moved = (len(arrays) - 1 + len(made)) * query.nbytes
    return pl.pallas_call(
        functools.partial(program, kernel),
        out_shape=[jax.ShapeDtypeStruct(query.shape, query.dtype)] * len(made),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=grid,
            in_specs=[by[name] for name in taken],
            out_specs=[by[name] for name in made],
            scratch_shapes=[pltpu.VMEM((rows, length, lanes), jnp.float32)] * in_scratch,
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        cost_estimate=pl.CostEstimate(
            flops=products, transcendentals=batch * kernel.heads * length * length, bytes_accessed=moved
        ),
        interpret=kernel.interpreted,
    )(head_keys.reshape(-1), *arrays)


def _block(length: int) -> int:
    """Queries in a block: as many as have no more than _MOST_SCORES scores, in blocks of equal size."""
    sizes = [size for size in range(LANES, length + 1, LANES) if length % size == 0 and size * length <= _MOST_SCORES]
    return max(sizes, default=LANES)


def _attend_block(kernel: Kernel, head_keys, query, key, value, places, context):
    here = _here()

    @pl.loop(0, query.shape[0])
    def _(row):
        for number, head in enumerate(_heads(kernel)):
            probabilities, _, kept = _probabilities(kernel, here, head_keys, query, key, places, row, number)
            if kept is not None:
                probabilities = jnp.where(kept, probabilities * scale(kernel.rate), 0.0)
            found = _product(probabilities.astype(value.dtype), value[row, :, head], (1, 0))
            context[row, :, head] = found.astype(context.dtype)


def _differentiate_block(
    kernel: Kernel, head_keys, query, key, value, places, gradient, of_query, of_key, of_value, key_sum, value_sum
):
    here = _here()

    @pl.when(here[2] == 0)
    def _():
        key_sum[...] = jnp.zeros_like(key_sum)
        value_sum[...] = jnp.zeros_like(value_sum)

    @pl.loop(0, query.shape[0])
    def _(row):
        for number, head in enumerate(_heads(kernel)):
            probabilities, admitted, kept = _probabilities(kernel, here, head_keys, query, key, places, row, number)
            of_context = gradient[row, :, head]
            of_dropped = _product(of_context, value[row, :, head], (1, 1))
            dropped, of_probabilities = probabilities, of_dropped
            if kept is not None:
                dropped = jnp.where(kept, probabilities * scale(kernel.rate), 0.0)
                of_probabilities = jnp.where(kept, of_dropped * scale(kernel.rate), 0.0)
            value_sum[row, :, head] += _product(dropped.astype(of_context.dtype), of_context, (0, 0))
            mean = jnp.sum(probabilities * of_probabilities, axis=1, keepdims=True)
            of_scores = probabilities * (of_probabilities - mean) / math.sqrt(kernel.head_size)
            # Where no key is admitted all have the same probability, and none a gradient.
            of_scores = jnp.where(admitted, of_scores, 0.0).astype(query.dtype)
            of_query[row, :, head] = _product(of_scores, key[row, :, head], (1, 0)).astype(of_query.dtype)
            key_sum[row, :, head] += _product(of_scores, query[row, :, head], (0, 0))

    @pl.when(here[2] == pl.num_programs(2) - 1)
    def _():
        of_key[...] = key_sum[...].astype(of_key.dtype)
        of_value[...] = value_sum[...].astype(of_value.dtype)


def _here() -> tuple[Array, Array, Array]:
    """The program's numbers along rows, heads and blocks of queries. Not to be asked for within a loop."""
    return pl.program_id(0), pl.program_id(1), pl.program_id(2)


def _heads(kernel: Kernel) -> list[slice]:
    """The lanes of each head of a program."""
    return [slice(at * kernel.head_size, (at + 1) * kernel.head_size) for at in range(kernel.together)]


def _probabilities(kernel: Kernel, here, head_keys, query, key, places, row, number: int):
    """One head's softmax in one row of the block; which keys are admitted, and which dropout keeps (None: all)."""
    head = _heads(kernel)[number]
    scores = _product(query[row, :, head], key[row, :, head], (1, 1)) / math.sqrt(kernel.head_size)
    own, at = _of_queries(kernel, here, places, row, scores.shape[0])
    admitted = _admitted(kernel, own, at, places, row)
    scores = jnp.where(admitted, scores, _LEAST)
    powers = jnp.exp(scores - jnp.max(scores, axis=1, keepdims=True))
    probabilities = powers / jnp.sum(powers, axis=1, keepdims=True)
    if not kernel.rate:
        return probabilities, admitted, None
    words = _words(kernel, (here[0] * query.shape[0] + row), here[1] * kernel.together + number, head_keys, own)
    if kernel.sequences > 1:
        line, column = at, places[row, 1:]
    else:
        line, column = (jax.lax.broadcasted_iota(jnp.int32, scores.shape, axis) for axis in range(2))
        line += here[2] * scores.shape[0]
    return probabilities, admitted, survives(words, line.astype(jnp.uint32), column.astype(jnp.uint32), kernel.rate)


def _of_queries(kernel: Kernel, here, places, row, block: int):
    """The sequence and position of each query of the block, as columns; None where all attend to the same keys."""
    if not kernel.by_query:
        return None, None
    begin = pl.multiple_of(here[2] * block, LANES)
    lines = (places[row, part : part + 1, pl.ds(begin, block)] for part in range(2))
    return (jnp.transpose(jnp.broadcast_to(line, (LANES, block)))[:, :1] for line in lines)


def _admitted(kernel: Kernel, own, at, places, row):
    """Which keys each query of the block attends to; one line for all where that is the same."""
    sequence, position = places[row, :1], places[row, 1:]
    admitted = sequence > 0
    if kernel.sequences > 1:
        admitted &= own == sequence
    if kernel.causal:
        admitted &= position <= at
    if kernel.window is not None:
        admitted &= jnp.abs(position - at) <= kernel.window
    return admitted


def _words(kernel: Kernel, row, head, head_keys, own):
    """Both words of a head's key in a row: of each query's own sequence, as columns, where there are several."""
    first = 2 * (row * kernel.sequences * kernel.heads + head)
    words: tuple[Any, ...] = head_keys[first], head_keys[first + 1]
    for number in range(1, kernel.sequences):
        at = first + 2 * number * kernel.heads
        words = tuple(jnp.where(own == number + 1, head_keys[at + half], words[half]) for half in range(2))
    return words


def _product(first, second, contracted: tuple[int, int]):
    """A product of two matrices over these axes, summed in float32."""
    axes = ((contracted[0],), (contracted[1],)), ((), ())
    return jax.lax.dot_general(first, second, axes, preferred_element_type=jnp.float32)
