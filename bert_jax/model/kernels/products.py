"""Matrix products and lookups in tables, with their gradients, each in the form that is fastest on the backend."""

import functools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, DTypeLike, Float, Int

from bert_jax.model.kernels.platform import on_one_device, platform, product_precision

_BLOCK = 8
"""Number of rows that `transposed` copies together on a CPU."""


def product(a: Float[Array, "*B N D"], b: Float[Array, "*B D F"], dtype: DTypeLike) -> Float[Array, "*B N F"]:
    """a b in `dtype`, its sums in float32."""
    return _product(a, b, -1, -2, dtype)


def product_with_transposed(
    a: Float[Array, "*B N F"], b: Float[Array, "*B D F"], dtype: DTypeLike
) -> Float[Array, "*B N D"]:
    """a b^T in `dtype`, its sums in float32."""
    return _product(a, b, -1, -1, dtype)


def product_of_transposed(
    a: Float[Array, "*B N D"], b: Float[Array, "*B N F"], dtype: DTypeLike
) -> Float[Array, "*B D F"]:
    """a^T b in `dtype`, its sums in float32."""
    if a.dtype == jnp.bfloat16 and platform() == "cpu":
        return product(transposed(a), b, dtype)
    return _product(a, b, -2, -2, dtype)


def weighted_sums(
    weights: Float[Array, "*B T S"], values: Float[Array, "*B S K"], dtype: DTypeLike
) -> Float[Array, "*B T K"]:
    """The sums of `values`, weighted by `weights`, in `dtype`. The functions above compute the gradients."""
    return _product_with_custom_gradient(weights, values, False, dtype)


def inner_products(
    queries: Float[Array, "*B T K"], keys: Float[Array, "*B S K"], dtype: DTypeLike
) -> Float[Array, "*B T S"]:
    """The inner product of each query with each key, in `dtype`. The functions above compute the gradients."""
    return _product_with_custom_gradient(queries, keys, True, dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _product_with_custom_gradient(a: Array, b: Array, transpose_b: bool, dtype: DTypeLike) -> Array:
    """a b^T if `transpose_b`, otherwise a b."""
    return product_with_transposed(a, b, dtype) if transpose_b else product(a, b, dtype)


def _forward(a, b, transpose_b, dtype):
    return _product_with_custom_gradient(a, b, transpose_b, dtype), (a, b)


def _backward(transpose_b, dtype, residuals, gradient):
    a, b = residuals
    gradient = gradient.astype(a.dtype)
    if transpose_b:
        return product(gradient, b, a.dtype), product_of_transposed(gradient, a, b.dtype)
    return product_with_transposed(gradient, b, a.dtype), product_of_transposed(a, gradient, b.dtype)


_product_with_custom_gradient.defvjp(_forward, _backward)


def heads_first(x: Float[Array, "B T H K"]) -> Float[Array, "B H T K"]:
    """`x` with each head's vectors as the rows of a matrix."""
    if platform() != "cpu":
        return x.swapaxes(1, 2)  # other backends read it in either order
    batch, length, heads, size = x.shape
    return _row_major_copy(x.reshape(batch, length, heads, 1, size).swapaxes(1, 2), (batch, heads, length, size))


def _product(a: Array, b: Array, axis_of_a: int, axis_of_b: int, dtype: DTypeLike) -> Array:
    """Contracts one axis of `a` with one axis of `b`. On CPUs the product's result is float32 and is cast to `dtype`
    afterwards: for a product with a bfloat16 result, XLA (jaxlib 0.10.2) converts the arguments to float32 first, which
    takes twice as long on a CPU with bfloat16 instructions."""
    result_dtype = jnp.float32 if platform() == "cpu" else dtype
    batch = tuple(range(a.ndim - 2))
    axes = (((a.ndim + axis_of_a,), (b.ndim + axis_of_b,)), (batch, batch))
    result = jax.lax.dot_general(a, b, axes, precision=product_precision(a.dtype), preferred_element_type=result_dtype)
    return result.astype(dtype)


def transposed(a: Float[Array, "*B N D"]) -> Float[Array, "*B D N"]:
    """a^T as an array of its own, behind a barrier. On CPUs it is copied into row-major order, because XLA's fast
    bfloat16 product reads only row-major arrays; `_BLOCK` rows are transposed together, so that XLA copies vectors
    instead of single values."""
    if platform() != "cpu":
        return jax.lax.optimization_barrier(a.mT)
    *batch, rows, columns = a.shape
    block = math.gcd(rows, _BLOCK)
    return _row_major_copy(
        jnp.moveaxis(a.reshape(*batch, rows // block, block, columns), -1, -3), (*batch, columns, rows)
    )


def _row_major_copy(x: Array, shape: tuple[int, ...]) -> Array:
    """Copies `x`, an array with permuted axes, into a row-major array of `shape`.

    XLA implements a permutation of axes as a change of layout without a copy, and its fast products refuse that layout.
    A reshape that merges axes, with a barrier after it, makes XLA copy the values.
    """
    return jax.lax.optimization_barrier(x.reshape(shape))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def affine(
    x: Float[Array, "..."],
    kernel: Float[Array, "..."],
    bias: Float[Array, "..."] | None,
    contracted: int,
    slowest: int,
    dtype: DTypeLike,
) -> Float[Array, "N F"]:
    """x W + b in `dtype` as one product of two matrices in that of x, for which every backend has its fastest code.
    `contracted`: number of axes that are summed over, the last of `x` and the first of `kernel`. `slowest`: index of
    the axis of features that becomes the first.

    If one of several axes of features is split over devices, it has to be the slowest: only then are the features of a
    device next to each other in the matrix. The gradient is written out for two reasons. It keeps the arguments as they
    are: a reshaped or converted weight would be kept beside the weight, in every layer. And XLA assembles the output's
    gradient once, instead of in a different layout for each of the three gradients that are computed from it.
    """
    rows, weights = _as_matrices(x, kernel, contracted, slowest)
    result = product(rows, weights, dtype)
    return result if bias is None else result + jnp.moveaxis(bias, slowest, 0).reshape(-1).astype(dtype)


def _as_matrices(
    x: Array, kernel: Array, contracted: int, slowest: int
) -> tuple[Float[Array, "N D"], Float[Array, "D F"]]:
    inner = math.prod(kernel.shape[:contracted])
    weights = jnp.moveaxis(kernel.reshape(inner, *kernel.shape[contracted:]), slowest + 1, 1)
    return x.reshape(-1, inner), weights.reshape(inner, -1).astype(x.dtype)


def moved_to_front(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """`shape` with its axis number `axis` in front of the others."""
    return (shape[axis], *shape[:axis], *shape[axis + 1 :])


def _affine_forward(x, kernel, bias, contracted, slowest, dtype):
    return affine(x, kernel, bias, contracted, slowest, dtype), (x, kernel, bias)


def _affine_backward(contracted, slowest, dtype, residuals, gradient):
    x, kernel, bias = residuals
    rows, weights = _as_matrices(x, kernel, contracted, slowest)
    gradient = jax.lax.optimization_barrier(gradient.astype(x.dtype))
    of_kernel = product_of_transposed(rows, gradient, kernel.dtype)
    features = moved_to_front(kernel.shape[contracted:], slowest)
    of_bias = None
    if bias is not None:
        of_bias = jnp.moveaxis(jnp.sum(gradient, axis=0, dtype=bias.dtype).reshape(features), 0, slowest)
    return (
        product_with_transposed(gradient, weights, x.dtype).reshape(x.shape),
        jnp.moveaxis(of_kernel.reshape(-1, *features), 1, slowest + 1).reshape(kernel.shape),
        of_bias,
    )


affine.defvjp(_affine_forward, _affine_backward)


_CHUNK = 128
"""Rows of the gradient that one matrix product sums."""


def rows_of(table: Float[Array, "V D"], ids: Int[Array, "*N"]) -> Float[Array, "*N D"]:
    """table[ids]. On one GPU the gradient has the same bits in each run. XLA's own gradient adds rows in the order in
    which the GPU's threads arrive."""
    return _rows_of(table, ids) if on_one_device("gpu") else jnp.take(table, ids, axis=0)


@jax.custom_vjp
def _rows_of(table: Float[Array, "V D"], ids: Int[Array, "*N"]) -> Float[Array, "*N D"]:
    return jnp.take(table, ids, axis=0)


def _rows_backward(residuals, gradient):
    """Sorts the gradient's rows by id, cuts them into chunks, and sums the rows of each id within a chunk.

    The first such sum of an id is added to its row of the table. If the rows of an id continue in the next chunks,
    their sums stand at the beginnings of these chunks; a second addition adds the total of these sums. So neither
    addition to the table has an index twice.
    """
    table, ids = residuals
    ids, gradient = ids.reshape(-1), gradient.reshape(-1, gradient.shape[-1])
    ids, order = jax.lax.sort_key_val(ids, jnp.arange(len(ids)))
    padding = (0, -len(ids) % _CHUNK)
    ids, order = jnp.pad(ids, padding, constant_values=len(table)), jnp.pad(order, padding)
    begins = jnp.pad(ids[1:] != ids[:-1], (1, 0), constant_values=True)
    sums = _sums_of_equal(ids, gradient[order], _CHUNK)
    of_table = _add(jnp.zeros(table.shape, table.dtype), begins, ids, sums)

    heads, continue_an_id = ids[::_CHUNK], ~begins[::_CHUNK]
    sums = _sums_of_equal(heads, jnp.where(continue_an_id[:, None], sums[::_CHUNK], 0), len(heads))
    repeats = jnp.pad(continue_an_id[:-1] & (heads[1:] == heads[:-1]), (1, 0))
    return _add(of_table, continue_an_id & ~repeats, heads, sums), None


_rows_of.defvjp(lambda table, ids: (_rows_of(table, ids), (table, ids)), _rows_backward)


def _sums_of_equal(ids: Int[Array, " N"], rows: Float[Array, "N D"], chunk: int) -> Float[Array, "N D"]:
    """In place of each row, the sum in float32 of the rows of its chunk that have the same id."""
    chunks = ids.reshape(-1, chunk)
    equal = (chunks[:, :, None] == chunks[:, None, :]).astype(rows.dtype)
    return product(equal, rows.reshape(*chunks.shape, -1), jnp.float32).reshape(rows.shape)


def _add(
    table: Float[Array, "V D"], chosen: Bool[Array, " N"], ids: Int[Array, " N"], rows: Float[Array, "N D"]
) -> Float[Array, "V D"]:
    """Adds the `chosen` of `rows`, which have different ids, to `table`."""
    past_end = len(table) + jnp.arange(len(ids))
    return table.at[jnp.where(chosen, ids, past_end)].add(rows, mode="drop", unique_indices=True)
