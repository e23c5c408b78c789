"""Attention as GPU kernels, written in Pallas and compiled by Triton: no [T, S] array in main memory, forwards or
backwards.

A program has a block of queries and goes through the blocks of keys with a running maximum, as FlashAttention does
(Dao 2023, "FlashAttention-2"). The backward pass computes the probabilities again, from the queries for each block of
keys and from the keys for each block of queries, so that no sum depends on the order in which programs run. Dropout is
drawn inside, by the function and keys of the exact form (model/dropout.py): both keep the same elements.

Blocks of keys that share no sequence with a block of queries are skipped, in packed rows and at the padded end of rows.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int, UInt32

from bert_jax.model.attention_blocks import LEAST, Admission, Bounds, product, spans
from bert_jax.model.dropout import column_word, row_word, scale, survives

_LOG2_E = math.log2(math.e)


class Tiling(NamedTuple):
    """How a kernel cuts its work."""

    queries: int
    keys: int
    """Tokens of a block."""
    warps: int
    stages: int
    """Loads that are in flight at a time."""


class Kernel(NamedTuple):
    """What the kernels are compiled for."""

    rate: float
    """Of dropout; 0 for none."""
    admission: Admission
    forward: Tiling
    of_keys: Tiling
    """Of the gradients of keys and values."""
    of_queries: Tiling

    def score(self, head_size: int) -> float:
        """The factor of a score, for powers of 2."""
        return _LOG2_E / math.sqrt(head_size)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(
    kernel: Kernel,
    projected: Float[Array, "B T 3 H K"],
    places: Int[Array, "B 2 T"],
    head_keys: UInt32[Array, "B N H 2"],
) -> Float[Array, "B T H K"]:
    """The mean of the values under each query's softmax over the keys of its sequence, after dropout.

    `projected`: queries, keys and values. They and their gradients stay one array, as the product before them wants it.
    `places`: the number of each token's sequence, 0 for padding, and its position. `head_keys`: of dropout, for each
    sequence and head. The context of padding is finite and has no meaning.
    """
    return _forward(kernel, projected, places, head_keys)[0]


def _forward(kernel, projected, places, head_keys):
    tiling = kernel.forward
    call = _Call(projected.shape, tiling, tiling.queries, head_keys.shape[1])
    context, log_sums = call(
        functools.partial(_attend_block, kernel),
        "attention",
        (_spans(kernel, places, tiling), call.span),
        (projected, call.block_of(0)),
        (projected, call.row_of(1)),
        (projected, call.row_of(2)),
        (places, call.places),
        (head_keys, call.head_keys),
        results=[(call.context(projected.dtype), call.block), (call.sums, call.line)],
    )
    return context, (projected, places, head_keys, context, log_sums)


def _backward(kernel, residuals, gradient):
    projected, places, head_keys, context, log_sums = residuals
    means = jnp.sum(gradient.astype(jnp.float32) * context.astype(jnp.float32), axis=-1).swapaxes(1, 2)
    tiling = kernel.of_keys
    call = _Call(projected.shape, tiling, tiling.keys, head_keys.shape[1])
    (of_projected,) = call(
        functools.partial(_differentiate_keys, kernel),
        "attention_keys",
        (_spans(kernel, places, tiling, of_keys=True), call.span),
        (projected, call.row_of(0)),
        (projected, call.block_of(1)),
        (projected, call.block_of(2)),
        (gradient, call.row),
        (places, call.places),
        (head_keys, call.head_keys),
        (log_sums, call.whole_line),
        (means, call.whole_line),
        results=[(projected, call.block_of_all)],
    )
    tiling = kernel.of_queries
    call = _Call(projected.shape, tiling, tiling.queries, head_keys.shape[1])
    (of_projected,) = call(
        functools.partial(_differentiate_queries, kernel),
        "attention_queries",
        (_spans(kernel, places, tiling), call.span),
        (projected, call.block_of(0)),
        (projected, call.row_of(1)),
        (projected, call.row_of(2)),
        (gradient, call.block),
        (places, call.places),
        (head_keys, call.head_keys),
        (log_sums, call.line),
        (means, call.line),
        (of_projected, call.block_of(0)),  # has the gradients of keys and values already
        results=[(projected, call.block_of(0))],
        aliases={9: 0},
    )
    return of_projected, None, None


attend.defvjp(_forward, _backward)


def _spans(kernel: Kernel, places: Int[Array, "B 2 T"], tiling: Tiling, of_keys: bool = False) -> Int[Array, "B Q 2"]:
    """The span of keys of each block of queries; if `of_keys`, that of queries of each block of keys."""
    shared = kernel.admission.shared(Bounds.of(places, tiling.queries), Bounds.of(places, tiling.keys))
    return jnp.stack(spans(shared.swapaxes(1, 2) if of_keys else shared), axis=2).astype(jnp.int32)


class _Call:
    """Calls a program for each block of tokens, head and row. Its attributes are the parts of arrays that a program
    sees: those of its block, row and head."""

    def __init__(self, shape: tuple[int, ...], tiling: Tiling, block: int, sequences: int):
        """`shape`: of the projected tokens. `block`: tokens of a block."""
        self._tiling, self._block, (self._batch, self._length, _, self._heads, self._size) = tiling, block, shape
        length, size = self._length, self._size
        self.block = pl.BlockSpec((None, block, None, size), lambda part, head, row: (row, part, head, 0))
        self.block_of_all = pl.BlockSpec((None, block, 3, None, size), lambda part, head, row: (row, part, 0, head, 0))
        self.row = pl.BlockSpec((None, length, None, size), lambda part, head, row: (row, 0, head, 0))
        self.line = pl.BlockSpec((None, None, block), lambda part, head, row: (row, head, part))
        self.whole_line = pl.BlockSpec((None, None, length), lambda part, head, row: (row, head, 0))
        self.places = pl.BlockSpec((None, 2, length), lambda part, head, row: (row, 0, 0))
        self.head_keys = pl.BlockSpec((None, sequences, None, 2), lambda part, head, row: (row, 0, head, 0))
        self.span = pl.BlockSpec((None, None, 2), lambda part, head, row: (row, part, 0))
        self.sums = jax.ShapeDtypeStruct((self._batch, self._heads, length), jnp.float32)

    def block_of(self, which: int) -> pl.BlockSpec:
        """The block's part of the queries (0), keys (1) or values (2) of projected tokens."""
        shape = (None, self._block, None, None, self._size)
        return pl.BlockSpec(shape, lambda part, head, row: (row, part, which, head, 0))

    def row_of(self, which: int) -> pl.BlockSpec:
        """As `block_of`, of the whole row."""
        shape = (None, self._length, None, None, self._size)
        return pl.BlockSpec(shape, lambda part, head, row: (row, 0, which, head, 0))

    def context(self, dtype: Any) -> jax.ShapeDtypeStruct:
        """The shape of the context."""
        return jax.ShapeDtypeStruct((self._batch, self._length, self._heads, self._size), dtype)

    def __call__(
        self,
        program: Any,
        name: str,
        *arguments: tuple[Array, pl.BlockSpec],
        results: list[tuple[Any, pl.BlockSpec]],
        aliases: dict[int, int] | None = None,
    ) -> Any:
        """The results of `program`, each with the shape and type of the array named with its part."""
        return pl.pallas_call(
            program,
            out_shape=[jax.ShapeDtypeStruct(like.shape, like.dtype) for like, _ in results],
            grid=(self._length // self._block, self._heads, self._batch),
            in_specs=[part for _, part in arguments],
            out_specs=[part for _, part in results],
            input_output_aliases=aliases or {},
            compiler_params=triton.CompilerParams(num_warps=self._tiling.warps, num_stages=self._tiling.stages),
            name=name,
        )(*(array for array, _ in arguments))


def _attend_block(kernel: Kernel, span, query, key, value, places, head_keys, context, log_sums):
    """The context of a block of queries, and the logarithm of the sum of each query's powers (of 2, both)."""
    tiling, (block, size) = kernel.forward, query.shape
    here = pl.ds(pl.program_id(0) * block, block)
    queries, of_query = query[...], _Tokens(kernel, places, head_keys, here)

    def step(number, sums):
        most, total, context = sums
        there = pl.ds(number * tiling.keys, tiling.keys)
        of_key = _Tokens(kernel, places, head_keys, there)
        scores = product(queries, key[there, :], (1, 1)) * kernel.score(size)
        scores = jnp.where(kernel.admission.admits(of_query.columns(), of_key.lines()), scores, LEAST)
        new_most = jnp.maximum(most, jnp.max(scores, axis=1))
        powers, factor = jnp.exp2(scores - new_most[:, None]), jnp.exp2(most - new_most)
        total = total * factor + jnp.sum(powers, axis=1)
        if kernel.rate:
            powers = jnp.where(of_query.keeps(of_key), powers, 0.0)
        values = value[there, :]
        return new_most, total, context * factor[:, None] + product(powers.astype(values.dtype), values, (1, 0))

    sums = jnp.full((block,), LEAST), jnp.zeros((block,)), jnp.zeros((block, size))
    most, total, sums = jax.lax.fori_loop(span[0], span[1], step, sums)
    total = jnp.where(total > 0, total, 1.0)  # of queries without keys
    context[...] = (sums * (scale(kernel.rate) / total)[:, None]).astype(context.dtype)
    log_sums[...] = most + jnp.log2(total)


def _differentiate_keys(kernel: Kernel, span, query, key, value, gradient, places, head_keys, log_sums, means, results):
    """The gradients of a block of keys and their values. All arrays of scores have their queries along the lines."""
    tiling, (block, size) = kernel.of_keys, key.shape
    here = pl.ds(pl.program_id(0) * block, block)
    keys, values, key_tokens = key[...], value[...], _Tokens(kernel, places, head_keys, here)

    def step(number, sums):
        key_sum, value_sum = sums
        there = pl.ds(number * tiling.queries, tiling.queries)
        query_tokens = _Tokens(kernel, places, head_keys, there)
        queries, of_context = query[there, :], gradient[there, :]
        scores = product(keys, queries, (1, 1)) * kernel.score(size)
        admitted = kernel.admission.admits(query_tokens.lines(), key_tokens.columns())
        probabilities = jnp.where(admitted, jnp.exp2(scores - log_sums[there][None, :]), 0.0)
        dropped, of_probabilities = probabilities, product(values, of_context, (1, 1))
        if kernel.rate:
            keep = query_tokens.keeps(key_tokens, turned=True)
            dropped = jnp.where(keep, probabilities, 0.0)
            of_probabilities = jnp.where(keep, of_probabilities * scale(kernel.rate), 0.0)
        value_sum += product(dropped.astype(values.dtype), of_context, (1, 0))
        of_scores = probabilities * (of_probabilities - means[there][None, :])
        key_sum += product(of_scores.astype(keys.dtype), queries, (1, 0))
        return key_sum, value_sum

    nothing = jnp.zeros((block, size))
    key_sum, value_sum = jax.lax.fori_loop(span[0], span[1], step, (nothing, nothing))
    results[:, 1, :] = (key_sum / math.sqrt(size)).astype(keys.dtype)
    results[:, 2, :] = (value_sum * scale(kernel.rate)).astype(keys.dtype)


def _differentiate_queries(
    kernel: Kernel, span, query, key, value, gradient, places, head_keys, log_sums, means, _, of_query
):
    """The gradients of a block of queries."""
    tiling, (block, size) = kernel.of_queries, query.shape
    here = pl.ds(pl.program_id(0) * block, block)
    queries, of_context, query_tokens = query[...], gradient[...], _Tokens(kernel, places, head_keys, here)
    log_sum, mean = log_sums[...][:, None], means[...][:, None]

    def step(number, query_sum):
        there = pl.ds(number * tiling.keys, tiling.keys)
        key_tokens, keys = _Tokens(kernel, places, head_keys, there), key[there, :]
        scores = product(queries, keys, (1, 1)) * kernel.score(size)
        admitted = kernel.admission.admits(query_tokens.columns(), key_tokens.lines())
        probabilities = jnp.where(admitted, jnp.exp2(scores - log_sum), 0.0)
        of_probabilities = product(of_context, value[there, :], (1, 1))
        if kernel.rate:
            keep = query_tokens.keeps(key_tokens)
            of_probabilities = jnp.where(keep, of_probabilities * scale(kernel.rate), 0.0)
        of_scores = probabilities * (of_probabilities - mean)
        return query_sum + product(of_scores.astype(keys.dtype), keys, (1, 0))

    query_sum = jax.lax.fori_loop(span[0], span[1], step, jnp.zeros((block, size)))
    of_query[...] = (query_sum / math.sqrt(size)).astype(of_query.dtype)


class _Tokens:
    """The facts of a block of tokens that decide which keys are admitted, and which of them dropout keeps."""

    def __init__(self, kernel: Kernel, places, head_keys, here):
        self._kernel, self._head_keys = kernel, head_keys
        self.sequence, self.position = places[0, here], places[1, here]

    def columns(self) -> tuple[Any, Any]:
        """Sequences and positions, one below the other."""
        return self.sequence[:, None], self.position[:, None]

    def lines(self) -> tuple[Any, Any]:
        """Sequences and positions, side by side."""
        return self.sequence[None, :], self.position[None, :]

    def keeps(self, keys: "_Tokens", turned: bool = False) -> Any:
        """Which of the keys dropout keeps for these queries, [queries, keys]; [keys, queries] if `turned`."""
        kernel = self._kernel
        if kernel.admission.sequences == 1:
            first, second = self._head_keys[0, 0], self._head_keys[0, 1]
        else:
            number = jnp.maximum(self.sequence - 1, 0)
            first, second = (self._head_keys[number, half] for half in range(2))
            second = second[None, :] if turned else second[:, None]
        row = row_word(first, self.position.astype(jnp.uint32))
        column = column_word(keys.position.astype(jnp.uint32))
        row, column = (row[None, :], column[:, None]) if turned else (row[:, None], column[None, :])
        return survives(row, second, column, kernel.rate)
