"""From piece ids to vectors."""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.model.dropout import dropout
from bert_jax.model.linear import LayerNorm, compute_dtype, initial_weights

ROW_MULTIPLE = 128
"""The word table is padded to a multiple of so many rows, so that it splits over devices and fills their tiles."""


def padded_vocabulary_size(config: ModelConfig) -> int:
    """Rows of the word table in memory; those past `vocabulary_size` are never read, predicted or counted."""
    return -(-config.vocabulary_size // ROW_MULTIPLE) * ROW_MULTIPLE


class Embeddings(nn.Module):
    """LayerNorm(word + segment + position), then dropout.

    He and Xu (2020), section 5.1, have neither the LayerNorm nor the dropout; BERT's code, and this, has both.
    """

    config: ModelConfig

    def setup(self):
        config, initial = self.config, initial_weights(self.config)
        self.word = self.param("word", initial, (padded_vocabulary_size(config), config.hidden_size))
        self.segment = self.param("segment", initial, (config.num_segments, config.hidden_size))
        self.position = self.param("position", initial, (config.max_positions, config.hidden_size))
        self.norm = LayerNorm(config)

    def __call__(
        self, ids: Int[Array, "B T"], segments: Int[Array, "B T"], dropout_keys: Key[Array, " B"] | None
    ) -> Float[Array, "B T D"]:
        """Sequences start at position 0."""
        dtype = compute_dtype(self.config)
        words = jnp.take(self.word, ids, axis=0).astype(dtype)
        # A product with a one-hot matrix: its gradient is a product too, not a scatter onto two rows.
        one_hot = nn.one_hot(segments, self.config.num_segments, dtype=dtype)
        x = words + one_hot @ self.segment.astype(dtype) + self.position[: ids.shape[1]].astype(dtype)
        return dropout(self.norm(x), self.config.dropout, dropout_keys)
