"""Counts parameters, from the parameter tree, and FLOPs, by formula."""

import itertools
import math
import operator
from typing import NamedTuple

import jax

from bert_jax.config.model import ModelConfig
from bert_jax.model.bert import Parameters, parameter_shapes
from bert_jax.model.embeddings import vocabulary_size
from bert_jax.model.parameters import PARAMETERS, parameter_at, path_of
from bert_jax.model.positions import SCHEMES
from bert_jax.model.relatives.characters import LETTER_WIDTH, LONGEST_PIECE
from bert_jax.model.relatives.lstm import GATES

HEADS = ("MLM head", "pair head", "RTD head", "task head")
"""The groups that are dropped when a model is trained for another task; a generator is dropped too."""
_GENERATOR = "generator/"
FORWARD_SHARE = 1 / 3
"""FLOPs of the forward pass as a share of those of forward and backward pass."""


class ModelPart(NamedTuple):
    """Parameters that belong together."""

    group: str
    name: str
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of the parameters, weights first, without padding and, in a block, without the layer axis."""
    copies: int
    """For a part of a block, the number of blocks that have their own parameters; otherwise 1."""
    of_generator: bool = False
    """Whether it belongs to a discriminator's generator."""

    @property
    def parameters(self) -> int:
        """Number of parameters in one copy of the part."""
        return sum(map(math.prod, self.shapes))

    @property
    def in_encoder(self) -> bool:
        """Whether the part is kept when the model is trained for another task."""
        return not self.of_generator and self.group not in HEADS


def model_parts(config: ModelConfig, shapes: Parameters | None = None) -> list[ModelPart]:
    """The model's parts in the order of PARAMETERS. `shapes`: the model's parameters; None: those of pretraining.

    The parts of a generator follow those of its discriminator. The word table, which the masked language head uses too,
    is counted once; so are tables that both models use. Raises ValueError for a parameter that isn't in PARAMETERS.
    """
    rows = []
    for keys, leaf in jax.tree_util.tree_leaves_with_path(shapes or parameter_shapes(config)):
        parameter = parameter_at(path := path_of(keys))
        if parameter.constant:
            continue
        order = path.startswith(_GENERATOR), PARAMETERS.index(parameter)
        rows.append((order, parameter, leaf.shape))
    rows.sort(key=operator.itemgetter(0))
    counted = []
    for (of_generator, group, name), same in itertools.groupby(
        rows, lambda one: (one[0][0], one[1].group, one[1].part)
    ):
        of_part = [(parameter, shape) for _, parameter, shape in same]
        own = [parameter.own_shape(shape, config.num_word_rows) for parameter, shape in of_part]
        copies = of_part[0][1][0] if group == "block" else 1
        counted.append(ModelPart(group, name, tuple(sorted(own, key=len, reverse=True)), copies, of_generator))
    return counted


def num_parameters(config: ModelConfig, heads: bool = True, shapes: Parameters | None = None) -> int:
    """Parameters of the encoder with its pooler and, with `heads`, of the heads and of a discriminator's generator,
    without the vocabulary's padding. `shapes`: the model's parameters; None: those of pretraining."""
    return sum(part.copies * part.parameters for part in model_parts(config, shapes) if heads or part.in_encoder)


def train_flops(config: ModelConfig, length: int, predictions: int) -> int:
    """FLOPs that one training step needs for one sequence: the backward pass takes twice the forward's.

    Recomputation (remat) is not counted.
    """
    return 3 * forward_flops(config, length, predictions)


def forward_flops(config: ModelConfig, length: int, predictions: int) -> int:
    """FLOPs of the forward pass of one sequence in pretraining: matrix products only.

    The vocabulary is counted at the predicted tokens with its true size, the head of a discriminator at all tokens, and
    its generator without pooler.
    """
    total = 0
    for network in config.networks:
        width = network.hidden_size
        if network.discriminator:
            total += encoder_flops(network, length, last_queries=length) + 2 * length * width * (width + 1)
        else:
            stream = predictions if network.has_query_stream else 0
            total += encoder_flops(network, length, last_queries=predictions + 1, stream=stream)
            dense = 0 if network.has_query_stream else network.input_size
            total += 2 * predictions * network.table_size * (dense + vocabulary_size(network))
    pooler = 2 * width * width + 2 * width * 2 if config.has_pair_head else 0
    return total + pooler


def _character_flops(config: ModelConfig) -> int:
    """FLOPs of a convolution over the bytes of one token, of its highways and its projection."""
    count = sum(config.character_filters)
    filters = sum(
        2 * (LONGEST_PIECE - width + 1) * width * LETTER_WIDTH * filters
        for width, filters in enumerate(config.character_filters, start=1)
    )
    return filters + config.highways * 2 * 2 * count * count + 2 * count * config.input_size


def encoder_flops(config: ModelConfig, length: int, last_queries: int, stream: int = 0) -> int:
    """FLOPs of the forward pass of embeddings and blocks over one sequence; the last block is computed at
    `last_queries` tokens, and the others also at `stream` tokens of a query stream.

    A product of [m, k] and [k, n] counts as 2 m k n. Causal attention counts as if each query had all keys, because it
    is computed so; local attention counts the keys of its window. The products of relative positions with their
    weights, which are the same for all rows, aren't counted. LSTM layers are computed at all tokens.
    """
    width, inner, last = config.hidden_size, config.inner_size, config.num_layers - 1
    if config.layer == "lstm":  # a direction's products with its input and its last output, and its projection
        of_layer = 2 * 2 * (2 * config.input_size * GATES * inner + inner * config.input_size)
        return length * (config.num_layers * of_layer + _character_flops(config))
    matrices = 3 if config.feedforward == "gated" else 2

    def block(number: int) -> int:
        queries = min(last_queries, length) if number == last else length + stream
        window = None if config.is_global(number) else config.local_window
        keys = length if window is None else min(length, 2 * window + 1)
        keys_and_values = 2 * length * 2 * width * width
        at_queries = 2 * queries * (2 * width * width + matrices * width * inner)
        attention = 2 * SCHEMES[config.positions].products * queries * keys * width
        return keys_and_values + at_queries + attention

    projection = 2 * length * config.table_size * width if config.embedding_size else 0
    return projection + sum(map(block, range(config.num_layers)))
