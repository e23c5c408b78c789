"""Attention within packed rows, as programs of a TPU kernel: queries and keys that share no sequence aren't multiplied.

A row is cut into tiles of 128 keys, and into tiles of 128 or 256 queries. The keys of a tile of queries are its span:
the tiles from the first to the last that may share a sequence with it. A span has one of a few widths. The code for
each width is a branch with static shapes, so that the softmax needs no running maximum here either.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jaxtyping import Array, Int, UInt32

from bert_jax.model.dropout import column_word, row_word, scale, survives
from bert_jax.model.kernels.attention_blocks import LANES, LEAST, Bounds, TpuKernel, block_product, block_spans

_QUERIES = 256
"""Most queries of a tile. With 128 there is less to multiply, but libtpu 0.0.42 schedules more cycles in all."""


def widths(tiles: int) -> list[int]:
    """The widths, in tiles, that a span may have in rows of `tiles` tiles. Other widths are rounded up, by a third at
    most."""
    steps = sorted({1, tiles} | {part << power for power in range(tiles.bit_length()) for part in (2, 3)})
    return [width for width in steps if width <= tiles]


def tile_spans(kernel: TpuKernel, places: Int[Array, "B 2 T"], queries: int) -> Int[Array, "B Q 2"]:
    """The span of each tile of queries (Q = T / queries): its first tile of keys, and its number of tiles, which is 0
    if all queries are padding."""
    tiles = places.shape[2] // LANES
    begin, end = block_spans(kernel.admission.shared(Bounds.of(places, queries), Bounds.of(places, LANES)))
    steps = np.array([0, *widths(tiles)])
    width = jnp.asarray(steps)[jnp.searchsorted(steps, end - begin)]
    return jnp.stack([jnp.minimum(begin, tiles - width), width], axis=2).astype(jnp.int32)


def token_lines(
    kernel: TpuKernel, places: Int[Array, "B 2 T"], head_keys: UInt32[Array, "B N H 2"]
) -> Int[Array, "B G L T"]:
    """For each group of heads (G) that share a program, L lines with a number for each token: its sequence and its
    position, and with dropout, for each head, the word of its row in the mask and the second half of its sequence's
    key."""
    if not kernel.rate:
        return places[:, None]
    batch, _, length = places.shape
    # A sum of one sequence's value and zeros is elementwise; indexing by token would be a gather.
    numbers = jnp.arange(1, kernel.admission.sequences + 1)[:, None, None, None]
    words = head_keys[..., None] * (places[:, :1, None, None] == numbers).astype(jnp.uint32)
    words = words.sum(axis=1, dtype=jnp.uint32)
    words = words.at[:, :, 0].set(row_word(words[:, :, 0], places[:, 1:].astype(jnp.uint32)))
    words = jax.lax.bitcast_convert_type(words, jnp.int32).reshape(batch, -1, 2 * kernel.together, length)
    shared = jnp.broadcast_to(places[:, None], (batch, words.shape[1], 2, length))
    return jnp.concatenate([shared, words], axis=2)


def attend_block(kernel: TpuKernel, spans, query, key, value, lines, context):
    """The context of a block of queries."""

    def attend(row, tile, keys, columns, key_lines):
        for number, head in enumerate(kernel.lanes):
            scores = block_product(query[row, tile, head], key[row, keys, head], (1, 1)) / math.sqrt(kernel.head_size)
            powers, total = _powers(kernel, scores, columns, key_lines)
            dropped = _dropped(kernel, powers, columns, key_lines, number)
            sums = block_product(dropped.astype(value.dtype), value[row, keys, head], (1, 0))
            context[row, tile, head] = (sums * (scale(kernel.rate) / total)).astype(context.dtype)

    _each_tile(kernel, spans, lines, query.shape, attend, nothing=(context,))


def differentiate_block(kernel: TpuKernel, spans, query, key, value, lines, gradient, dq, dk, dv, key_sum, value_sum):
    """The gradients of a block of queries (dq) and of its keys and values (dk, dv), which are summed over
    the blocks."""
    score_factor = scale(kernel.rate) / math.sqrt(kernel.head_size)

    @pl.when(pl.program_id(2) == 0)
    def _():
        key_sum[...] = jnp.zeros_like(key_sum)
        value_sum[...] = jnp.zeros_like(value_sum)

    def differentiate(row, tile, keys, columns, key_lines):
        for number, head in enumerate(kernel.lanes):
            scores = block_product(query[row, tile, head], key[row, keys, head], (1, 1)) / math.sqrt(kernel.head_size)
            powers, total = _powers(kernel, scores, columns, key_lines)
            probabilities = powers / total
            of_context = gradient[row, tile, head]
            # Constant factors are applied to the sums, which are smaller arrays.
            dropped = _dropped(kernel, probabilities, columns, key_lines, number)
            weighted = dropped * block_product(of_context, value[row, keys, head], (1, 1))
            mean = jnp.sum(weighted, axis=1, keepdims=True)
            of_scores = (weighted - probabilities * mean).astype(query.dtype)
            dq[row, tile, head] = (block_product(of_scores, key[row, keys, head], (1, 0)) * score_factor).astype(
                dq.dtype
            )
            key_sum[row, keys, head] += block_product(of_scores, query[row, tile, head], (0, 0))
            value_sum[row, keys, head] += block_product(dropped.astype(of_context.dtype), of_context, (0, 0))

    _each_tile(kernel, spans, lines, query.shape, differentiate, nothing=(dq,))

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        dk[...] = (key_sum[...] * score_factor).astype(dk.dtype)
        dv[...] = (value_sum[...] * scale(kernel.rate)).astype(dv.dtype)


def _each_tile(kernel: TpuKernel, spans, lines, shape: tuple[int, ...], program: Callable[..., None], nothing: tuple):
    """Runs `program` for each tile of a block of queries that has keys, and writes 0 to `nothing` for the other tiles.
    `program` takes the row, the places of queries and keys, and the lines of their tokens, for queries as columns."""
    rows, block = shape[:2]
    length, queries = lines.shape[2], tile_of(block)
    first_row, first_tile = pl.program_id(0) * rows, pl.program_id(2) * (block // queries)

    def run(row, number, width: int, first):
        tile = _part(number * queries, queries)
        if not width:
            for result in nothing:
                result[row, tile, :] = jnp.zeros((queries, result.shape[2]), result.dtype)
            return
        keys = _part(first * LANES, width * LANES)
        columns = jnp.transpose(lines[row, :, _part((first_tile + number) * queries, queries)])
        program(row, tile, keys, columns, lines[row, :, keys])

    @pl.loop(0, rows)
    def _(row):
        @pl.loop(0, block // queries)
        def _(number):
            at = 2 * ((first_row + row) * (length // queries) + first_tile + number)
            for width in (0, *widths(length // LANES)):
                pl.when(spans[at + 1] == width)(functools.partial(run, row, number, width, spans[at]))


def tile_of(block: int) -> int:
    """Number of queries in a tile of a block of `block` queries. Tiles of few queries have fewer keys; tiles of many
    queries fill the chip's units better."""
    return math.gcd(block, _QUERIES)


def _part(begin, size: int):
    """A slice of a row that begins with a tile."""
    return pl.ds(pl.multiple_of(begin, LANES), size)


def _powers(kernel: TpuKernel, scores, columns, key_lines) -> tuple[Array, Array]:
    """The numerators of each query's softmax, and the sum of these."""
    admitted = kernel.admission.admits((columns[:, :1], columns[:, 1:2]), (key_lines[:1], key_lines[1:2]))
    scores = jnp.where(admitted, scores, LEAST)
    powers = jnp.exp(scores - jnp.max(scores, axis=1, keepdims=True))
    return powers, jnp.sum(powers, axis=1, keepdims=True)


def _dropped(kernel: TpuKernel, x, columns, key_lines, number: int):
    """One head's `x` after dropout, not yet scaled."""
    if not kernel.rate:
        return x
    row, second = (columns[:, at : at + 1].astype(jnp.uint32) for at in (2 + 2 * number, 3 + 2 * number))
    keep = survives(row, second, column_word(key_lines[1:2].astype(jnp.uint32)), kernel.rate)
    return jnp.where(keep, x, 0.0)
