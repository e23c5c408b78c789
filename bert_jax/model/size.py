"""Parameters and FLOPs by formula."""

import math

import jax

from bert_jax.config.model import ModelConfig
from bert_jax.model.bert import parameter_shapes
from bert_jax.model.embeddings import padded_vocabulary_size


def num_parameters(config: ModelConfig, heads: bool = True) -> int:
    """Parameters of the encoder with pooler and, if asked for, both heads; the padding of the vocabulary not counted.

    The word table, which the masked language head uses too, is counted once.
    """
    shapes = parameter_shapes(config)
    padding = padded_vocabulary_size(config) - config.vocabulary_size
    counted = shapes if heads else {"bert": shapes["bert"]}
    total = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(counted))
    return total - padding * (config.hidden_size + heads)


def train_flops(config: ModelConfig, length: int, predictions: int) -> int:
    """FLOPs that one training step needs for one sequence: matrix products only, backward twice the forward.

    A product of [m, k] and [k, n] counts 2 m k n. The last block is counted where it is read (the predicted tokens
    and the first), the vocabulary at the predicted tokens with its true size; recomputation (remat) is not counted.
    """
    width, inner = config.hidden_size, config.inner_size

    def block(read: int) -> int:
        keys_and_values = 2 * length * 2 * width * width
        at_read_positions = 2 * read * (2 * width * width + 2 * width * inner)
        attention = 2 * 2 * read * length * width
        return keys_and_values + at_read_positions + attention

    blocks = (config.num_layers - 1) * block(length) + block(predictions + 1)
    head = 2 * predictions * (width * width + width * config.vocabulary_size)
    pooler = 2 * width * width + 2 * width * 2
    return 3 * (blocks + head + pooler)
