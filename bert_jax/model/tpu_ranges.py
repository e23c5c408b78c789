"""The TPU's attention kernel for rows in which queries attend to different keys: several sequences, windows, causal.

Queries and keys are taken in blocks of 128. A block of queries goes over that range of the row's blocks of keys which
any of its queries may attend to, with a running maximum and sum, as in FlashAttention (Dao et al. 2022): what lies
before and after the range is neither multiplied nor masked.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int, UInt32

from bert_jax.model.dropout import scale
from bert_jax.model.tpu_kernel import (
    LANES,
    LEAST,
    Call,
    Kernel,
    admitted,
    as_column,
    as_line,
    here,
    of_queries,
    product,
    survivors,
)

_TINY = float(np.finfo(np.float32).tiny)


def key_ranges(kernel: Kernel, places: Int[Array, "B 2 T"]) -> Int[Array, "B Q 2"]:
    """For each of the Q blocks of queries in a row: the first block of keys that one of them may attend to, and the one
    after the last.

    A row's sequences lie one after the other, so positions that are w apart lie w apart in the row.
    """
    sequence = places[:, 0].reshape(len(places), -1, LANES)
    there = sequence > 0
    first = jnp.min(jnp.where(there, sequence, np.iinfo(np.int32).max), axis=2)
    last = jnp.max(sequence, axis=2)
    common = (first[:, :, None] <= last[:, None]) & (first[:, None] <= last[:, :, None])
    count = sequence.shape[1]
    ahead = np.arange(count) - np.arange(count)[:, None]
    if kernel.causal:
        common &= ahead <= 0
    if kernel.window is not None:
        common &= np.abs(ahead) <= -(-kernel.window // LANES)
    begin = jnp.argmax(common, axis=2)
    end = jnp.where(jnp.any(common, axis=2), count - jnp.argmax(common[:, :, ::-1], axis=2), begin)
    return jnp.stack([begin, end], axis=2).astype(jnp.int32)


def attend(
    call: Call,
    query: Float[Array, "B T D"],
    key: Float[Array, "B T D"],
    value: Float[Array, "B T D"],
    places: Int[Array, "B 2 T"],
    head_keys: UInt32[Array, "B N H 2"],
) -> tuple[Float[Array, "B T D"], Float[Array, "B G h T"]]:
    """The context, 0 where a query attends to no key, and the logarithm of each softmax's denominator: of the h heads
    of each of G programs."""
    kernel, (batch, length, width) = call.kernel, call.shape
    taken = ("queries", query), ("keys", key), ("keys", value), ("places", places)
    of_heads = batch, width // kernel.lanes, kernel.together, length
    made = (
        ("queries", jax.ShapeDtypeStruct(query.shape, query.dtype)),
        ("numbers", jax.ShapeDtypeStruct(of_heads, jnp.float32)),
    )
    context, normaliser = call(_attend, [head_keys, key_ranges(kernel, places)], taken, made, products=2)
    return context, normaliser


def differentiate(
    call: Call,
    query: Float[Array, "B T D"],
    key: Float[Array, "B T D"],
    value: Float[Array, "B T D"],
    places: Int[Array, "B 2 T"],
    head_keys: UInt32[Array, "B N H 2"],
    context: Float[Array, "B T D"],
    normaliser: Float[Array, "B G h T"],
    gradient: Float[Array, "B T D"],
) -> Sequence[Float[Array, "B T D"]]:
    """The gradients of query, key and value, from what `attend` gave and the gradient of the context."""
    taken = (
        *(("queries", query), ("keys", key), ("keys", value), ("places", places)),
        *(("queries", context), ("numbers", normaliser), ("queries", gradient)),
    )
    made = [(by, jax.ShapeDtypeStruct(query.shape, query.dtype)) for by in ("queries", "keys", "keys")]
    scalars = [head_keys, key_ranges(call.kernel, places)]
    return call(_differentiate, scalars, taken, made, products=5, summed=2)


class _Block:
    """The queries of one head in one row of a program, and their scores with one block of keys after the other."""

    def __init__(self, kernel: Kernel, program, head_keys, ranges, query, key, places, row, number: int):
        rows = query.shape[0]
        self._kernel, self._head_keys, self._key, self._places, self._row = kernel, head_keys, key, places, row
        self.head, self._number = kernel.head_lanes[number], program[1] * kernel.together + number
        self._of_row = program[0] * rows + row
        self.query = query[row, :, self.head]
        self._own, self._at = of_queries(places, row, program[2], LANES)
        first = 2 * (self._of_row * pl.num_programs(2) + program[2])
        self.range = ranges[first], ranges[first + 1]

    def keys(self, number):
        """The places in the row of block `number` of the keys."""
        return pl.ds(pl.multiple_of(number * LANES, LANES), LANES)

    def scores(self, number):
        """The scores with a block of keys, which of these are admitted, and which dropout keeps (None: all)."""
        keys = self.keys(number)
        sequence, position = self._places[self._row, :1, keys], self._places[self._row, 1:, keys]
        allowed = admitted(self._kernel, self._own, self._at, sequence, position)
        scores = product(self.query, self._key[self._row, keys, self.head], (1, 1)) / math.sqrt(self._kernel.head_size)
        kept = None
        if self._kernel.rate:
            of_head = self._kernel, self._head_keys, self._of_row, self._number
            kept = survivors(*of_head, self._own, self._at, position)
        return jnp.where(allowed, scores, LEAST), allowed, kept


def _attend(kernel: Kernel, head_keys, ranges, query, key, value, places, context, normaliser):
    program = here()

    @pl.loop(0, query.shape[0])
    def _(row):
        for number, head in enumerate(kernel.head_lanes):
            block = _Block(kernel, program, head_keys, ranges, query, key, places, row, number)

            def step(at, so_far, block=block, head=head):
                most, total, found = so_far
                scores, allowed, kept = block.scores(at)
                highest = jnp.maximum(most, jnp.max(scores, axis=1, keepdims=True))
                powers = jnp.where(allowed, jnp.exp(scores - highest), 0.0)
                before = jnp.exp(most - highest)
                total = total * before + jnp.sum(powers, axis=1, keepdims=True)
                if kept is not None:
                    powers = jnp.where(kept, powers * scale(kernel.rate), 0.0)
                values = value[row, block.keys(at), head]
                return highest, total, found * before + product(powers.astype(values.dtype), values, (1, 0))

            column = jnp.zeros((LANES, 1), jnp.float32)
            begun = column + LEAST, column, jnp.zeros((LANES, kernel.head_size), jnp.float32)
            most, total, found = jax.lax.fori_loop(*block.range, step, begun)
            total = jnp.maximum(total, _TINY)  # of a query that attends to nothing
            context[row, :, head] = (found / total).astype(context.dtype)
            normaliser[row, 0, number : number + 1] = as_line(most + jnp.log(total))


def _differentiate(
    kernel: Kernel,
    head_keys,
    ranges,
    query,
    key,
    value,
    places,
    context,
    normaliser,
    gradient,
    of_query,
    of_key,
    of_value,
    key_sum,
    value_sum,
):
    program = here()

    @pl.when(program[2] == 0)
    def _():
        key_sum[...] = jnp.zeros_like(key_sum)
        value_sum[...] = jnp.zeros_like(value_sum)

    @pl.loop(0, query.shape[0])
    def _(row):
        for number, head in enumerate(kernel.head_lanes):
            block = _Block(kernel, program, head_keys, ranges, query, key, places, row, number)
            of_context = gradient[row, :, head]
            # The sum over keys of probability times its gradient is that of context times its gradient.
            products = of_context.astype(jnp.float32) * context[row, :, head].astype(jnp.float32)
            mean = jnp.sum(products, axis=1, keepdims=True)
            logarithm = as_column(normaliser[row, 0, number : number + 1])

            def step(at, found, block=block, head=head, of_context=of_context, mean=mean, logarithm=logarithm):
                keys = block.keys(at)
                scores, allowed, kept = block.scores(at)
                probabilities = jnp.where(allowed, jnp.exp(scores - logarithm), 0.0)
                of_probabilities = product(of_context, value[row, keys, head], (1, 1))
                dropped = probabilities
                if kept is not None:
                    dropped = jnp.where(kept, probabilities * scale(kernel.rate), 0.0)
                    of_probabilities = jnp.where(kept, of_probabilities * scale(kernel.rate), 0.0)
                value_sum[row, keys, head] += product(dropped.astype(of_context.dtype), of_context, (0, 0))
                of_scores = probabilities * (of_probabilities - mean) / math.sqrt(kernel.head_size)
                of_scores = of_scores.astype(block.query.dtype)
                key_sum[row, keys, head] += product(of_scores, block.query, (0, 0))
                return found + product(of_scores, key[row, keys, head], (1, 0))

            found = jax.lax.fori_loop(*block.range, step, jnp.zeros((LANES, kernel.head_size), jnp.float32))
            of_query[row, :, head] = found.astype(of_query.dtype)

    @pl.when(program[2] == pl.num_programs(2) - 1)
    def _():
        of_key[...] = key_sum[...].astype(of_key.dtype)
        of_value[...] = value_sum[...].astype(of_value.dtype)
