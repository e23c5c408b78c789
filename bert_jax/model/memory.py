"""Estimates the memory of a training step on a device, by formula."""

from typing import NamedTuple

import jax
from jax.sharding import AbstractMesh, Mesh

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.phase import Phase
from bert_jax.model.bert import parameter_shapes
from bert_jax.model.embeddings import padded_vocabulary_size
from bert_jax.model.kernels.attention_forms import training_forms
from bert_jax.model.kernels.platform import compute_dtype
from bert_jax.model.kernels.total_cross_entropy import logits_at_once
from bert_jax.model.positions import SCHEMES
from bert_jax.model.relatives.characters import LETTER_WIDTH, LONGEST_PIECE
from bert_jax.model.relatives.lstm import GATES
from bert_jax.model.sharding import num_shards, row_shards

_F32 = 4
_STATE = 3
"""Arrays of the parameters' size that stay between steps: parameters and two moments of AdamW or LAMB."""


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
    parameters = sum(leaf.size for leaf in jax.tree.leaves(parameter_shapes(model)))
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
        state=_STATE * _F32 * parameters // split,
        gradients=copies * _F32 * parameters // split,
        activations=stored + largest,
        outputs=logits + table,
    )


def _kept_products(model: ModelConfig, tensor: int) -> int:
    """Numbers for each token that a block or layer keeps with remat=dots: its input and its products."""
    width, inner = model.hidden_size, model.inner_size * (2 if model.feedforward == "gated" else 1)
    return width + 2 * GATES * inner if model.layer == "lstm" else 2 * width + (4 * width + inner) // tensor


def _character_bytes(model: ModelConfig, size: int) -> tuple[int, int]:
    """Bytes for each token that a convolution over bytes keeps for the backward pass, and those of its largest width,
    with the gradient."""
    count = sum(model.character_filters)
    kept = size * (LONGEST_PIECE * LETTER_WIDTH + 9 * model.highways * count) if count else 0
    widths = enumerate(model.character_filters, start=1)
    of_widths = [size * LONGEST_PIECE * (LETTER_WIDTH * width + 2 * filters) for width, filters in widths]
    return kept, max(of_widths, default=0)


def _block_bytes(model: ModelConfig, probabilities: int, size: int, tensor: int) -> int:
    """Bytes for each token that one block without remat keeps for the backward pass; `probabilities`: how many a head
    keeps for each query."""
    if model.layer == "lstm":  # a direction's gates and what cells show, its input and output; states, bounds
        half, cell = model.input_size, model.inner_size
        return 2 * (size * ((GATES + 1) * cell + 2 * half) + _F32 * (cell + 2 * half))
    width, scores = model.hidden_size, model.num_heads * probabilities // tensor
    # The block's input, LayerNorm's two, the residual sums; queries, keys, values and context; GELU's input and output
    # and, of a gated layer, the gate.
    inner = (3 if model.feedforward == "gated" else 2) * model.inner_size
    linear = size * (4 * width + (4 * width + inner) // tensor)
    of_positions = SCHEMES[model.positions].kept_scores * _F32
    return linear + scores * (_F32 + size + of_positions)
