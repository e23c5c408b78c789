"""Parameters, read off the parameter tree, and FLOPs by formula."""

import math
import re
from typing import NamedTuple

import jax

from bert_jax.config.model import ModelConfig
from bert_jax.model.bert import parameter_shapes

PART_TABLE: tuple[tuple[str, str, str], ...] = (
    ("embeddings", "word table", r"bert/embeddings/word"),
    ("embeddings", "segment table", r"bert/embeddings/segment"),
    ("embeddings", "position table", r"bert/embeddings/position"),
    ("embeddings", "LayerNorm", r"bert/embeddings/norm/\w+"),
    ("block", "query, key, value", r"bert/encoder/layers/attention/\w+"),
    ("block", "attention output", r"bert/encoder/layers/attention/output/\w+"),
    ("block", "LayerNorm", r"bert/encoder/layers/attention_norm/\w+"),
    ("block", "feed-forward in", r"bert/encoder/layers/feedforward_in/\w+"),
    ("block", "feed-forward out", r"bert/encoder/layers/feedforward_out/\w+"),
    ("block", "LayerNorm", r"bert/encoder/layers/feedforward_norm/\w+"),
    ("pooler", "pooler", r"bert/pooler/dense/\w+"),
    ("MLM head", "MLM dense", r"masked_lm/dense/\w+"),
    ("MLM head", "MLM LayerNorm", r"masked_lm/norm/\w+"),
    ("MLM head", "MLM bias", r"masked_lm/bias"),
    ("NSP head", "NSP dense", r"next_sentence/dense/\w+"),
)
"""Group and name of a part, and the paths of its parameters. Exactly one row matches each parameter."""

HEADS = ("MLM head", "NSP head")
"""The groups that are left behind when pretraining is over."""

PADDED = ("bert/embeddings/word", "masked_lm/bias")
"""Parameters whose first axis is the padded vocabulary."""


class Part(NamedTuple):
    """Parameters that belong together."""

    group: str
    name: str
    shapes: tuple[tuple[int, ...], ...]
    """Weights first; without padding and, in a block, without the layer axis."""
    copies: int
    """How many of it there are: the number of layers in a block, otherwise 1."""

    @property
    def parameters(self) -> int:
        """Of one copy."""
        return sum(map(math.prod, self.shapes))


def parts(config: ModelConfig) -> list[Part]:
    """The model's parts in the order of PART_TABLE; a row without parameters is left out.

    The word table, which the masked language head uses too, is counted once. Raises ValueError for a parameter that
    not exactly one row matches.
    """
    found: dict[int, list[tuple[int, ...]]] = {row: [] for row in range(len(PART_TABLE))}
    for path, leaf in jax.tree_util.tree_leaves_with_path(parameter_shapes(config)):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        rows = [row for row, (_, _, pattern) in enumerate(PART_TABLE) if re.fullmatch(pattern, name)]
        if len(rows) != 1:
            raise ValueError(f"{len(rows)} rows of the part table match the parameter {name}; exactly one must")
        shape = (config.vocabulary_size, *leaf.shape[1:]) if name in PADDED else leaf.shape
        found[rows[0]].append(shape[1:] if PART_TABLE[rows[0]][0] == "block" else shape)
    return [
        Part(group, name, tuple(sorted(shapes, key=len, reverse=True)), config.num_layers if group == "block" else 1)
        for (group, name, _), shapes in zip(PART_TABLE, found.values(), strict=True)
        if shapes
    ]


def num_parameters(config: ModelConfig, heads: bool = True) -> int:
    """Parameters of the encoder with pooler and, if asked for, both heads; the vocabulary's padding not counted."""
    return sum(part.copies * part.parameters for part in parts(config) if heads or part.group not in HEADS)


def train_flops(config: ModelConfig, length: int, predictions: int) -> int:
    """FLOPs that one training step needs for one sequence: the backward pass takes twice the forward's.

    Recomputation (remat) is not counted.
    """
    return 3 * forward_flops(config, length, predictions)


def forward_flops(config: ModelConfig, length: int, predictions: int) -> int:
    """FLOPs of the forward pass of one sequence in pretraining: matrix products only.

    The vocabulary is counted at the predicted tokens with its true size.
    """
    width = config.hidden_size
    head = 2 * predictions * (width * width + width * config.vocabulary_size)
    pooler = 2 * width * width + 2 * width * 2
    return encoder_flops(config, length, wanted=predictions + 1) + head + pooler


def encoder_flops(config: ModelConfig, length: int, wanted: int) -> int:
    """FLOPs of the blocks' forward pass over one sequence, the last block counted at the `wanted` tokens alone.

    A product of [m, k] and [k, n] counts 2 m k n. Causal attention is counted whole, as it is computed.
    """
    width, inner = config.hidden_size, config.inner_size

    def block(queries: int) -> int:
        keys_and_values = 2 * length * 2 * width * width
        at_queries = 2 * queries * (2 * width * width + 2 * width * inner)
        attention = 2 * 2 * queries * length * width
        return keys_and_values + at_queries + attention

    return (config.num_layers - 1) * block(length) + block(min(wanted, length))
