"""Counts parameters, from the parameter tree, and FLOPs and bytes of memory, by formula."""

import itertools
import math
import operator
from typing import NamedTuple

import jax
import optax
from jax.sharding import AbstractMesh, Mesh
from jaxtyping import PyTree

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.training import Phase
from bert_jax.model.bert import TEACHER, Parameters, parameter_shapes
from bert_jax.model.embeddings import padded_vocabulary_size, vocabulary_size
from bert_jax.model.encoder import DECODER_BLOCKS
from bert_jax.model.kernels.attention_forms import training_forms
from bert_jax.model.kernels.cross_entropy import logits_at_once
from bert_jax.model.kernels.platform import compute_dtype
from bert_jax.model.parameters import PARAMETERS, parameter_at, path_of
from bert_jax.model.positions import SCHEMES
from bert_jax.model.relatives.characters import LETTER_WIDTH, LONGEST_PIECE
from bert_jax.model.relatives.lstm import GATES
from bert_jax.model.sharding import num_shards, row_shards

HEADS = ("MLM head", "pair head", "RTD head", "tag head", "task head")
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
    is_generator: bool = False
    """Whether it belongs to a discriminator's generator."""

    @property
    def parameters(self) -> int:
        """Number of parameters in one copy of the part."""
        return sum(map(math.prod, self.shapes))

    @property
    def in_encoder(self) -> bool:
        """Whether the part is kept when the model is trained for another task."""
        return not self.is_generator and self.group not in HEADS


def model_parts(config: ModelConfig, shapes: Parameters | None = None) -> list[ModelPart]:
    """The model's parts in the order of PARAMETERS. `shapes`: the model's parameters; None: those of pretraining.

    The parts of a generator follow those of its discriminator. The word table, which the masked language head uses too,
    is counted once; so are tables that both models use. A teacher isn't counted. Raises ValueError for a parameter that
    isn't in PARAMETERS.
    """
    rows = []
    for keys, leaf in jax.tree_util.tree_leaves_with_path(shapes or parameter_shapes(config)):
        parameter = parameter_at(path := path_of(keys))
        if parameter.constant or path.startswith(f"{TEACHER}/"):
            continue
        order = path.startswith(_GENERATOR), PARAMETERS.index(parameter)
        rows.append((order, parameter, leaf.shape))
    rows.sort(key=operator.itemgetter(0))
    counted = []
    for (is_generator, group, name), same in itertools.groupby(
        rows, lambda one: (one[0][0], one[1].group, one[1].part)
    ):
        of_part = [(parameter, shape) for _, parameter, shape in same]
        own = [parameter.own_shape(shape, config.num_word_rows) for parameter, shape in of_part]
        copies = of_part[0][1][0] if group == "block" else 1
        counted.append(ModelPart(group, name, tuple(sorted(own, key=len, reverse=True)), copies, is_generator))
    return counted


def num_parameters(config: ModelConfig, shapes: Parameters | None = None) -> int:
    """Number of parameters of the model with its heads and, if it is a discriminator, its generator, without the
    vocabulary's padding. `shapes`: the model's parameters; None: those of pretraining."""
    return sum(part.copies * part.parameters for part in model_parts(config, shapes))


def train_flops(config: ModelConfig, length: int, predictions: int) -> int:
    """FLOPs that one training step needs for one sequence: the backward pass takes twice the forward's. Recomputation
    (remat) is not counted."""
    return 3 * forward_flops(config, length, predictions)


def forward_flops(config: ModelConfig, length: int, predictions: int) -> int:
    """FLOPs of the forward pass of one sequence in pretraining: matrix products only. The vocabulary is counted at the
    predicted tokens with its true size, the head of a discriminator at all tokens, and its generator without pooler."""
    total = 0
    for network in config.networks:
        width = network.hidden_size
        if network.discriminator:
            dense = width if network.discriminator_head == "transform" else 0
            total += encoder_flops(network, length, last_queries=length) + 2 * length * width * (dense + 1)
        else:
            stream = predictions if network.has_query_stream else 0
            queries = DECODER_BLOCKS * predictions if network.mask_decoder else predictions
            total += encoder_flops(network, length, last_queries=queries + 1, stream=stream)
            dense = network.input_size if network.transforms_head else 0
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
        keys_and_values = 2 * length * 2 * width * config.head_size * (config.key_value_heads or config.num_heads)
        at_queries = 2 * queries * (2 * width * width + matrices * width * inner)
        attention = 2 * SCHEMES[config.positions].products * queries * keys * width
        return keys_and_values + at_queries + attention

    projection = 2 * length * config.table_size * width if config.embedding_size else 0
    return projection + sum(map(block, range(config.num_layers)))


def flops_at_all_tokens(config: ModelConfig, length: int, predictions: int) -> int:
    """Additional FLOPs of a forward pass over one sequence if the last block is computed at all tokens, instead of only
    at [CLS] and the `predictions` masked ones."""
    at_all, at_slots = (encoder_flops(config, length, last_queries=at) for at in (length, predictions + 1))
    return at_all - at_slots


_F32 = 4


def bytes_of(tree: PyTree) -> int:
    """Bytes of all arrays of a tree, or of the arrays with these shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def optimizer_bytes(optimizer: optax.GradientTransformation, shapes: Parameters) -> int:
    """Bytes of the optimizer's state for parameters of these shapes, over all devices. Nothing is allocated."""
    return bytes_of(jax.eval_shape(optimizer.init, shapes))


class Memory(NamedTuple):
    """Bytes on one device at the peak of a step."""

    state: int
    """Parameters and optimizer state."""
    gradients: int
    activations: int
    """What the forward pass keeps of every block for the backward pass, and the arrays of one block in the backward
    pass."""
    outputs: int
    """Logits of the predicted tokens and their gradient, and the word table in the compute type."""

    @property
    def total(self) -> int:
        """The sum of all parts, without batches and compiled programs."""
        return sum(self)


def step_memory(
    execution: ExecutionConfig,
    model: ModelConfig,
    mesh: Mesh | AbstractMesh,
    phase: Phase,
    optimizer: optax.GradientTransformation,
    *,
    predictions: int,
    packed: int,
) -> Memory:
    """The memory of a step of `phase` on one device of `mesh`. The vocabulary's size must be set in `model`.

    `predictions`: predicted tokens of a row; 0 in fine-tuning, where there are no logits over the vocabulary. `packed`:
    the largest number of sequences in a row.

    The formula for what a block keeps for its backward pass was read off the traced step (jax.vjp's residuals). A
    discriminator and its generator keep these arrays at the same time.
    """
    length = phase.length
    forms = training_forms(execution.attention, model, length, packed, mesh)
    shapes = parameter_shapes(model)
    parameters = bytes_of(shapes)
    split, tensor = num_shards(mesh, ("fsdp", "tensor")), num_shards(mesh, "tensor")
    rows = -(-phase.batch_size // (row_shards(mesh) * execution.accumulation))
    size = compute_dtype(model).itemsize
    tokens = rows * length
    stored, largest = 0, 0
    if model.has_query_stream:
        tokens += rows * predictions
    for one in model.networks:
        stored, largest = stored + tokens * _character_bytes(one, size)[0], tokens * _character_bytes(one, size)[1]
        for layer in range(one.num_layers):
            window, form = (None, forms[0]) if one.is_global(layer) else (one.local_window, forms[1])
            keys, keys_at_once = form.probabilities(length, window)
            stored += {
                "none": tokens * _block_bytes(one, keys, size, tensor),
                "dots": tokens * size * _kept_products(one, tensor),
                "full": tokens * size * one.hidden_size,
            }[execution.remat]
            largest = max(largest, tokens * _block_bytes(one, keys_at_once, size, tensor))
    table = padded_vocabulary_size(model) * model.table_size * size // tensor if predictions else 0
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        at_once = None if model.generator else logits_at_once(rows * predictions)
    logits = (at_once or rows * predictions) * padded_vocabulary_size(model) * (2 * _F32 + size) // tensor
    if model.generator and tensor > 1:  # ELECTRA draws replacements from logits that aren't split
        logits += rows * predictions * padded_vocabulary_size(model) * 2 * _F32
    # Gradients of microbatches are summed in an array of their own.
    copies = 2 if execution.accumulation > 1 else 1
    return Memory(
        state=(parameters + optimizer_bytes(optimizer, shapes)) // split,
        gradients=copies * parameters // split,
        activations=stored + largest,
        outputs=logits + table,
    )


def _kept_products(model: ModelConfig, tensor: int) -> int:
    """Number of values for each token that a block or layer keeps with remat=dots: its input and its products."""
    width, inner = model.hidden_size, model.inner_size * (2 if model.feedforward == "gated" else 1)
    return width + 2 * GATES * inner if model.layer == "lstm" else 2 * width + (4 * width + inner) // tensor


def _character_bytes(model: ModelConfig, size: int) -> tuple[int, int]:
    """Bytes for each token that a convolution over bytes keeps for the backward pass, and the most bytes for each token
    that the arrays of one filter width take, with their gradients."""
    count = sum(model.character_filters)
    kept = size * (LONGEST_PIECE * LETTER_WIDTH + 9 * model.highways * count) if count else 0
    widths = enumerate(model.character_filters, start=1)
    of_widths = [size * LONGEST_PIECE * (LETTER_WIDTH * width + 2 * filters) for width, filters in widths]
    return kept, max(of_widths, default=0)


def _block_bytes(model: ModelConfig, probabilities: int, size: int, tensor: int) -> int:
    """Bytes for each token that one block without remat keeps for the backward pass; `probabilities`: how many a head
    keeps for each query."""
    if model.layer == "lstm":  # for each direction: gates, hidden vector, input, output; in float32 the state, bounds
        half, cell = model.input_size, model.inner_size
        return 2 * (size * ((GATES + 1) * cell + 2 * half) + _F32 * (cell + 2 * half))
    width, scores = model.hidden_size, model.num_heads * probabilities // tensor
    # The block's input, LayerNorm's two, the residual sums; queries, keys, values and context; GELU's input and output
    # and, in a gated layer, the gate.
    inner = (3 if model.feedforward == "gated" else 2) * model.inner_size
    linear = size * (4 * width + (4 * width + inner) // tensor)
    of_positions = SCHEMES[model.positions].kept_scores * _F32
    return linear + scores * (_F32 + size + of_positions)
