"""Attention kernels for GPUs, written in Pallas and compiled by Triton. Neither the forward nor the backward pass
writes a [T, S] array to the GPU's memory.

Each program handles one block of queries. It loops over blocks of keys and keeps a running maximum and sum (Dao 2023,
"FlashAttention-2"). The backward pass recomputes the probabilities twice: for each block of keys, and for each block of
queries. So one program computes each sum, without atomic additions. Dropout is drawn inside the kernel, by the function
and keys of the exact form (model/dropout.py), so both keep the same elements.

Blocks of keys that share no sequence with a block of queries are skipped, in packed rows and at the padded end of rows.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int, UInt32

from bert_jax.model.dropout import column_word, row_word, scale, survives
from bert_jax.model.kernels.attention_blocks import LEAST, Admission, Bounds, block_product, block_spans

_LOG2_E = math.log2(math.e)


class Tiling(NamedTuple):
    """Block sizes and launch parameters of a kernel."""

    queries: int
    keys: int
    """Tokens of a block."""
    warps: int
    stages: int
    """Stages of Triton's software pipeline."""


class GpuKernel(NamedTuple):
    """The static settings of the kernels."""

    head_size: int
    rate: float
    """Rate of dropout; 0 for none."""
    admission: Admission
    forward: Tiling
    key_tiling: Tiling
    """Blocks for the gradients of keys and values."""
    query_tiling: Tiling
    """Blocks for the gradients of queries."""

    @property
    def scale(self) -> float:
        """The factor of inner products, 1 / sqrt(head size)."""
        return 1 / math.sqrt(self.head_size)

    def scores(self, first, second):
        """The scores of a block of queries and a block of keys, times log2(e), since the kernels use powers of 2."""
        return block_product(first, second, (1, 1)) * (self.scale * _LOG2_E)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def gpu_attention(
    kernel: GpuKernel,
    projected: Float[Array, "B T 3 H K"],
    places: Int[Array, "B 2 T"],
    head_keys: UInt32[Array, "B N H 2"],
) -> Float[Array, "B T H K"]:
    """The mean of the values under each query's softmax over the keys of its sequence, after dropout.

    `projected`: queries, keys and values in one array, because one matrix product computes them. Their gradients are
    one array too. `places`: the number of each token's sequence, 0 for padding, and its position. `head_keys`: the
    dropout keys of each sequence and head. The context of padding is finite and has no meaning.
    """
    return _forward(kernel, projected, places, head_keys)[0]


def _forward(kernel, projected, places, head_keys):
    tiling = kernel.forward
    call = _Call(projected.shape, tiling, tiling.queries, head_keys.shape[1])
    batch, length, _, heads, size = projected.shape
    like_context = jax.ShapeDtypeStruct((batch, length, heads, size), projected.dtype)
    like_log_sums = jax.ShapeDtypeStruct((batch, heads, length), jnp.float32)
    context, log_sums = call(
        functools.partial(_attend_block, kernel),
        "attention",
        (_spans(kernel, places, tiling), call.span),
        (projected, call.block_of(0)),
        (projected, call.row_of(1)),
        (projected, call.row_of(2)),
        (places, call.places),
        (head_keys, call.head_keys),
        results=[(like_context, call.block), (like_log_sums, call.line)],
    )
    return context, (projected, places, head_keys, context, log_sums)


def _backward(kernel, residuals, gradient):
    projected, places, head_keys, context, log_sums = residuals
    means = jnp.sum(gradient.astype(jnp.float32) * context.astype(jnp.float32), axis=-1).swapaxes(1, 2)
    tiling = kernel.key_tiling
    call = _Call(projected.shape, tiling, tiling.keys, head_keys.shape[1])
    (of_projected,) = call(
        functools.partial(_differentiate_keys, kernel),
        "attention_keys",
        (_spans(kernel, places, tiling, by_key=True), call.span),
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
    tiling = kernel.query_tiling
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
        (of_projected, call.block_of(0)),  # already holds the gradients of keys and values
        results=[(projected, call.block_of(0))],
        aliases={9: 0},
    )
    return of_projected, None, None


gpu_attention.defvjp(_forward, _backward)


def _spans(kernel: GpuKernel, places: Int[Array, "B 2 T"], tiling: Tiling, by_key: bool = False) -> Int[Array, "B Q 2"]:
    """The span of keys of each block of queries; with `by_key`, the span of queries of each block of keys."""
    shared = kernel.admission.shared(Bounds.of(places, tiling.queries), Bounds.of(places, tiling.keys))
    return jnp.stack(block_spans(shared.swapaxes(1, 2) if by_key else shared), axis=2).astype(jnp.int32)


class _Call:
    """Calls a program for each block of tokens, head and row. The attributes are BlockSpecs: each selects the part of
    an array that belongs to a program's block, row and head."""

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

    def block_of(self, which: int) -> pl.BlockSpec:
        """The block's part of the queries (0), keys (1) or values (2) of projected tokens."""
        shape = (None, self._block, None, None, self._size)
        return pl.BlockSpec(shape, lambda part, head, row: (row, part, which, head, 0))

    def row_of(self, which: int) -> pl.BlockSpec:
        """The whole row's part of the queries (0), keys (1) or values (2) of projected tokens."""
        shape = (None, self._length, None, None, self._size)
        return pl.BlockSpec(shape, lambda part, head, row: (row, 0, which, head, 0))

    def __call__(
        self,
        program: Callable[..., None],
        name: str,
        *arguments: tuple[Array, pl.BlockSpec],
        results: list[tuple[jax.ShapeDtypeStruct | Array, pl.BlockSpec]],
        aliases: dict[int, int] | None = None,
    ) -> Sequence[Array]:
        """Runs `program` on the grid; returns its results. `results`: for each result, an array or ShapeDtypeStruct of
        its shape and type, and the part that one program writes."""
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


def _attend_block(kernel: GpuKernel, span, query, key, value, places, head_keys, context, log_sums):
    """The context of a block of queries, and the base-2 log-sum-exp of each query's scores."""
    tiling, (block, size) = kernel.forward, query.shape
    here = pl.ds(pl.program_id(0) * block, block)
    queries, of_query = query[...], _Tokens(kernel, places, head_keys, here)

    def step(number, sums):
        most, total, context = sums
        there = pl.ds(number * tiling.keys, tiling.keys)
        of_key = _Tokens(kernel, places, head_keys, there)
        scores = kernel.scores(queries, key[there, :])
        scores = jnp.where(kernel.admission.admits(of_query.columns(), of_key.rows()), scores, LEAST)
        new_most = jnp.maximum(most, jnp.max(scores, axis=1))
        powers, factor = jnp.exp2(scores - new_most[:, None]), jnp.exp2(most - new_most)
        total = total * factor + jnp.sum(powers, axis=1)
        if kernel.rate:
            powers = jnp.where(of_query.keeps(of_key), powers, 0.0)
        values = value[there, :]
        return new_most, total, context * factor[:, None] + block_product(powers.astype(values.dtype), values, (1, 0))

    sums = jnp.full((block,), LEAST), jnp.zeros((block,)), jnp.zeros((block, size))
    most, total, sums = jax.lax.fori_loop(span[0], span[1], step, sums)
    total = jnp.where(total > 0, total, 1.0)  # for queries without keys
    context[...] = (sums * (scale(kernel.rate) / total)[:, None]).astype(context.dtype)
    log_sums[...] = most + jnp.log2(total)


def _differentiate_keys(
    kernel: GpuKernel, span, query, key, value, gradient, places, head_keys, log_sums, means, results
):
    """The gradients of a block of keys and their values. Arrays of scores are transposed here: [keys, queries]."""
    tiling, (block, size) = kernel.key_tiling, key.shape
    here = pl.ds(pl.program_id(0) * block, block)
    keys, values, key_tokens = key[...], value[...], _Tokens(kernel, places, head_keys, here)

    def step(number, sums):
        key_sum, value_sum = sums
        there = pl.ds(number * tiling.queries, tiling.queries)
        query_tokens = _Tokens(kernel, places, head_keys, there)
        queries, of_context = query[there, :], gradient[there, :]
        admitted = kernel.admission.admits(query_tokens.rows(), key_tokens.columns())
        keep = query_tokens.keeps(key_tokens, transposed=True) if kernel.rate else None
        of_queries = log_sums[there][None, :], means[there][None, :]
        of_dropped = block_product(values, of_context, (1, 1))
        dropped, of_scores = _of_scores(kernel, kernel.scores(keys, queries), admitted, keep, of_dropped, *of_queries)
        value_sum += block_product(dropped.astype(values.dtype), of_context, (1, 0))
        key_sum += block_product(of_scores.astype(keys.dtype), queries, (1, 0))
        return key_sum, value_sum

    nothing = jnp.zeros((block, size))
    key_sum, value_sum = jax.lax.fori_loop(span[0], span[1], step, (nothing, nothing))
    results[:, 1, :] = (key_sum * kernel.scale).astype(keys.dtype)
    results[:, 2, :] = (value_sum * scale(kernel.rate)).astype(keys.dtype)


def _differentiate_queries(
    kernel: GpuKernel, span, query, key, value, gradient, places, head_keys, log_sums, means, _, of_query
):
    """The gradients of a block of queries."""
    tiling, (block, size) = kernel.query_tiling, query.shape
    here = pl.ds(pl.program_id(0) * block, block)
    queries, of_context, query_tokens = query[...], gradient[...], _Tokens(kernel, places, head_keys, here)
    log_sum, mean = log_sums[...][:, None], means[...][:, None]

    def step(number, query_sum):
        there = pl.ds(number * tiling.keys, tiling.keys)
        key_tokens, keys = _Tokens(kernel, places, head_keys, there), key[there, :]
        admitted = kernel.admission.admits(query_tokens.columns(), key_tokens.rows())
        keep = query_tokens.keeps(key_tokens) if kernel.rate else None
        of_dropped = block_product(of_context, value[there, :], (1, 1))
        _, of_scores = _of_scores(kernel, kernel.scores(queries, keys), admitted, keep, of_dropped, log_sum, mean)
        return query_sum + block_product(of_scores.astype(keys.dtype), keys, (1, 0))

    query_sum = jax.lax.fori_loop(span[0], span[1], step, jnp.zeros((block, size)))
    of_query[...] = (query_sum * kernel.scale).astype(of_query.dtype)


def _of_scores(kernel: GpuKernel, scores, admitted, keep, of_dropped, log_sums, means):
    """The probabilities after dropout (not yet scaled), and the gradients of the scores, from the gradients of the
    probabilities after dropout. `keep`: the mask of dropout, or None."""
    probabilities = jnp.where(admitted, jnp.exp2(scores - log_sums), 0.0)
    if keep is None:
        return probabilities, probabilities * (of_dropped - means)
    of_probabilities = jnp.where(keep, of_dropped * scale(kernel.rate), 0.0)
    return jnp.where(keep, probabilities, 0.0), probabilities * (of_probabilities - means)


class _Tokens:
    """Data of a block of tokens that decides which keys are admitted and which of these dropout keeps."""

    def __init__(self, kernel: GpuKernel, places, head_keys, here):
        self._kernel, self._head_keys = kernel, head_keys
        self.sequence, self.position = places[0, here], places[1, here]

    def columns(self) -> tuple[Array, Array]:
        """Sequences and positions as column vectors, [tokens, 1]."""
        return self.sequence[:, None], self.position[:, None]

    def rows(self) -> tuple[Array, Array]:
        """Sequences and positions as row vectors, [1, tokens]."""
        return self.sequence[None, :], self.position[None, :]

    def keeps(self, keys: "_Tokens", transposed: bool = False) -> Array:
        """Which keys dropout keeps for these queries: [queries, keys], or [keys, queries] if `transposed`."""
        kernel = self._kernel
        if kernel.admission.sequences == 1:
            first, second = self._head_keys[0, 0], self._head_keys[0, 1]
        else:
            number = jnp.maximum(self.sequence - 1, 0)
            first, second = (self._head_keys[number, half] for half in range(2))
            second = second[None, :] if transposed else second[:, None]
        row = row_word(first, self.position.astype(jnp.uint32))
        column = column_word(keys.position.astype(jnp.uint32))
        row, column = (row[None, :], column[:, None]) if transposed else (row[:, None], column[None, :])
        return survives(row, second, column, kernel.rate)
