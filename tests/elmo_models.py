"""A small model of LSTM layers, and rows of tokens for it."""

import jax
import jax.numpy as jnp

from bert_jax.config.model import ModelConfig
from bert_jax.layout import TokenSequence, lay_out_sequences

CONFIG = ModelConfig(
    layer="lstm",
    positions="none",
    num_segments=0,
    num_layers=2,
    hidden_size=12,
    feedforward_size=10,
    vocabulary_size=50,
    initializer_range=0.4,
    compute_dtype="float32",
)
TEXTS = [[3, 4, 5, 6, 7], [8, 9, 3, 9, 1, 2, 4]]


def rows(*texts: list[int], length: int = 9):
    return jax.tree.map(
        jnp.asarray, lay_out_sequences([TokenSequence(text, len(text)) for text in texts], (len(texts), length), 0)
    )
