"""Converts piece ids to vectors."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.layout import Tokens
from bert_jax.model.dropout import token_dropout
from bert_jax.model.kernels.products import product
from bert_jax.model.linear import LayerNorm, Linear, compute_dtype, initial_weights
from bert_jax.model.placement import gathered, on_one_device

ROW_MULTIPLE = 128
"""The word table's rows are padded to a multiple of this, so that they divide over devices and fill their tiles."""


def vocabulary_size(config: ModelConfig) -> int:
    """Number of pieces in the model's vocabulary. Raises ValueError if the config doesn't set it yet."""
    if config.vocabulary_size is None:
        raise ValueError("model.vocabulary_size is not set")
    return config.vocabulary_size


def padded_vocabulary_size(config: ModelConfig) -> int:
    """Rows of the word table in memory. Rows past `vocabulary_size` are never read or predicted; rows past
    `num_word_rows` are never counted or exported."""
    return -(-max(vocabulary_size(config), config.num_word_rows) // ROW_MULTIPLE) * ROW_MULTIPLE


class Embeddings(nn.Module):
    """LayerNorm of the sum of the word, segment and position tables that the model has, then dropout and, if the tables
    are narrower than the model, a projection. With relative positions there is no LayerNorm."""

    config: ModelConfig

    def setup(self):
        config, initial = self.config, initial_weights(self.config)
        width = config.table_size
        self.word = gathered(self.param("word", initial_words(config), (padded_vocabulary_size(config), width)))
        if config.num_segments:
            self.segment = self.param("segment", initial, (config.num_segments, width))
        if config.positions == "learned":
            rows = config.first_position + config.max_positions
            self.position = self.param("position", initial, (rows, width))
        if config.num_task_types:
            self.task_type = self.param("task_type", initial, (config.num_task_types, width))
        if config.has_query_stream:
            self.mask = self.param("mask", initial, (width,))
        else:
            self.norm = LayerNorm(config)
        if config.embedding_size:
            self.projection = Linear(config, (config.input_size,), bias=config.biases)

    def __call__(self, tokens: Tokens, dropout_keys: Key[Array, "B N"] | None) -> Float[Array, "B T D"]:
        """The vectors of B rows of T tokens."""
        config, length = self.config, tokens.ids.shape[1]
        dtype = compute_dtype(config)
        x = rows_of(self.word, tokens.ids).astype(dtype)
        if config.num_segments:
            # A product with a one-hot matrix, because its gradient is a product too and not a scatter onto two rows.
            # With one segment, as in RoBERTa, both texts of a pair are in it, and separators stand between them.
            segment = jnp.minimum(tokens.segment, config.num_segments - 1)
            x += nn.one_hot(segment, config.num_segments, dtype=dtype) @ self.segment.astype(dtype)
        one_each = tokens.begin.shape[1] == 1
        if config.positions in ("learned", "sinusoidal"):
            if config.positions == "sinusoidal":
                positions = jnp.asarray(sinusoids(config, length))
            else:
                positions = self.position[config.first_position :] if config.first_position else self.position
            # With one sequence a row, from its first token, the gradient is a sum and not a scatter. Rows of a task may
            # be longer than a sequence can be.
            if one_each and length <= len(positions):
                x += positions[:length].astype(dtype)
            else:
                x += rows_of(positions, tokens.position).astype(dtype)
        if config.num_task_types:
            x += self.task_type[0].astype(dtype)
        places = tokens.sequence, None if one_each else tokens.position
        x = x if config.has_query_stream else self.norm(x)
        x = token_dropout(x, config.dropout, dropout_keys, *places)
        return self.projection(x) if config.embedding_size else x

    def query_stream(
        self, tokens: Tokens, places: Int[Array, "B P"], dropout_keys: Key[Array, "B N"] | None
    ) -> Float[Array, "B P D"]:
        """The first vectors of the query stream at `places` of each row: one vector for all, which knows no token."""
        x = jnp.broadcast_to(self.mask.astype(compute_dtype(self.config)), (*places.shape, len(self.mask)))
        at_places = (jnp.take_along_axis(each, places, axis=1) for each in (tokens.sequence, tokens.position))
        return token_dropout(x, self.config.dropout, dropout_keys, *at_places)


def sinusoids(config: ModelConfig, length: int) -> Float[np.ndarray, "T D"]:
    """sin(t / 10000^(2i/D)) in column 2i and its cosine in column 2i + 1, for position t (Vaswani et al. 2017).

    The paper's positions have a root mean square of sqrt(1/2), beside words scaled by sqrt(D). Positions here have a
    root mean square of `initializer_range`, about that of a new learned table, so that they don't outweigh the words.
    """
    angles = np.arange(length)[:, None] / 10_000 ** (np.arange(0, config.table_size, 2) / config.table_size)
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, config.table_size)
    return (table * math.sqrt(2) * config.initializer_range).astype(np.float32)


def initial_words(config: ModelConfig) -> Callable[..., Array]:
    """Initialiser of the word table. Its padding rows are 0 and stay 0, so that they don't change norms."""

    def init(key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "V D"]:
        true = jnp.arange(shape[0])[:, None] < vocabulary_size(config)
        return jnp.where(true, initial_weights(config)(key, shape), 0.0)

    return init


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
