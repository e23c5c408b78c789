"""Converts piece ids to vectors."""

from collections.abc import Callable

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Key

from bert_jax.config.model import ModelConfig
from bert_jax.layout import Tokens
from bert_jax.model.dropout import token_dropout
from bert_jax.model.kernels.platform import compute_dtype, product_precision
from bert_jax.model.kernels.products import rows_of
from bert_jax.model.linear import LayerNorm, Linear, initial_weights
from bert_jax.model.placement import gathered
from bert_jax.model.positions import SCHEMES

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
    """The sum of rows of the word, segment, position and task type tables that the model has, then LayerNorm (if
    `config.norms_embeddings`), dropout and, if the tables have a width of their own (`config.embedding_size`), a
    projection."""

    config: ModelConfig

    def setup(self):
        config, initial = self.config, initial_weights(self.config)
        width = config.table_size
        self.word = gathered(self.param("word", initial_words(config), (padded_vocabulary_size(config), width)))
        if config.num_segments:
            self.segment = self.param("segment", initial, (config.num_segments, width))
        if SCHEMES[config.positions].learns_vectors:
            rows = config.first_position + config.max_positions
            self.position = self.param("position", initial, (rows, width))
        if config.num_task_types:
            self.task_type = self.param("task_type", initial, (config.num_task_types, width))
        if config.has_query_stream:
            self.mask = self.param("mask", initial, (width,))
        if config.norms_embeddings:
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
            one_hot = nn.one_hot(segment, config.num_segments, dtype=dtype)
            x += jnp.matmul(one_hot, self.segment.astype(dtype), precision=product_precision(dtype))
        one_each = tokens.begin.shape[1] == 1
        positions = self._positions(length)
        if positions is not None:
            # If each row is one sequence, the vectors are a slice, whose gradient is a sum and not a scatter. Rows of a
            # task may be longer than the table of positions.
            if one_each and length <= len(positions):
                x += positions[:length].astype(dtype)
            else:
                x += rows_of(positions, tokens.position).astype(dtype)
        if config.num_task_types:
            x += self.task_type[0].astype(dtype)
        places = tokens.sequence, None if one_each else tokens.position
        x = self.norm(x) if config.norms_embeddings else x
        x = token_dropout(x, config.dropout, dropout_keys, *places)
        return self.projection(x) if config.embedding_size else x

    def _positions(self, length: int) -> Float[Array, "P D"] | None:
        """The vectors to add by position: the first `length` fixed ones, or the whole learned table. None if the model
        adds none."""
        scheme = SCHEMES[self.config.positions]
        if scheme.fixed_vectors:
            return jnp.asarray(scheme.fixed_vectors(self.config, length))
        return self.position[self.config.first_position :] if scheme.learns_vectors else None


def initial_words(config: ModelConfig) -> Callable[..., Array]:
    """Initialiser of the word table. Its padding rows are 0 and stay 0, so that they don't change norms."""

    def init(key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "V D"]:
        true = jnp.arange(shape[0])[:, None] < vocabulary_size(config)
        return jnp.where(true, initial_weights(config)(key, shape), 0.0)

    return init
