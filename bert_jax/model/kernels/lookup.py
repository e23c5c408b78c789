"""Rows of a table by number, with a gradient that has the same bits in each run."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bert_jax.model.kernels.platform import on_one_device
from bert_jax.model.kernels.products import product

_CHUNK = 128
"""Rows of the gradient that one matrix product sums."""


def rows_of(table: Float[Array, "V D"], ids: Int[Array, "*N"]) -> Float[Array, "*N D"]:
    """table[ids].

    On one GPU the gradient has the same bits in each run. XLA's own gradient adds rows in the order in which the GPU's
    threads arrive.
    """
    return _rows_of(table, ids) if on_one_device("gpu") else jnp.take(table, ids, axis=0)


@jax.custom_vjp
def _rows_of(table: Float[Array, "V D"], ids: Int[Array, "*N"]) -> Float[Array, "*N D"]:
    return jnp.take(table, ids, axis=0)


def _backward(residuals, gradient):
    """Sorts the gradient's rows by id, cuts them into chunks, and sums the rows of each id within a chunk.

    The first such sum of an id is added to its row of the table. If the rows of an id continue in the next chunks, the
    sums there stand at the chunks' beginnings; they are summed once more and added together. So neither of the two
    additions to the table has an index twice.
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


_rows_of.defvjp(lambda table, ids: (_rows_of(table, ids), (table, ids)), _backward)


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
