"""The main operations of a step, each with its FLOPs and bytes."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.config.finetune import TaskRunConfig
from bert_jax.config.model import ModelConfig
from bert_jax.layout import Tokens
from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.dropout import dropout
from bert_jax.model.embeddings import padded_vocabulary_size, vocabulary_size
from bert_jax.model.exact_attention import band, head_keys, softmax_where
from bert_jax.model.heads import MaskedLanguageHead, ReplacedTokenHead
from bert_jax.model.linear import LayerNorm, activation, compute_dtype, project
from bert_jax.model.products import heads_first, inner_products, weighted_sums
from bert_jax.planning.work import AnyTrainer, random_batch
from bert_jax.pretraining.masking import Masked
from bert_jax.pretraining.replaced import draw_tokens

_FORWARD_AND_BACKWARD = 3
"""FLOPs of forward and backward pass over those of the forward pass: the backward pass takes twice as many."""


@dataclass(frozen=True)
class Operation:
    """One operation of a step, forward and backward, at its real size."""

    name: str
    count: int
    """How often a step runs it at all positions. The last block isn't counted if it runs at predicted ones only."""
    run: Callable[[], Any]
    flops: int
    """FLOPs of its matrix products."""
    bytes: int
    """Bytes of its arguments and results, the gradients among them, each read or written once."""


def operations(trainer: AnyTrainer) -> list[Operation]:
    """The operations that take most of a step of the trainer's first phase, at one device's share of the batch.

    Those of a generator, beside its discriminator's, have names of their own. A task's head isn't among them.
    """
    config, model = trainer.config, trainer.objective.model
    length = config.phases[0].length
    tokens = jax.tree.map(lambda leaf: leaf.reshape(-1, leaf.shape[-1]), random_batch(config, 0, 1).tokens)
    tokens = jax.tree.map(lambda leaf: leaf[: len(leaf) // trainer.mesh.size], tokens)
    if isinstance(config, TaskRunConfig):
        return _of_encoder(model, tokens, 1 if config.task.facts.head in ("pooled", "choices") else length)
    slots = config.slots(length)
    entries = _of_model(model, tokens, length if model.discriminator else slots)
    if model.generator:
        of_generator = [*_of_model(model.generator, tokens, slots), _drawing(model.generator, tokens, slots)]
        entries += [replace(operation, name=f"generator: {operation.name}") for operation in of_generator]
    return entries


def _of_model(model: ModelConfig, tokens: Tokens, slots: int) -> list[Operation]:
    """The operations of one model of pretraining, whose last block runs at `slots` tokens of a row."""
    return [*_of_encoder(model, tokens, slots), _head(model, tokens, slots)]


def _of_encoder(model: ModelConfig, tokens: Tokens, slots: int) -> list[Operation]:
    """The operations of the blocks, the last of which runs at `slots` tokens of a row."""
    batch, length = tokens.ids.shape
    blocks, width = model.num_layers - (slots < length), model.hidden_size
    x, inner = (_random(model, batch, length, features) for features in (width, model.inner_size))
    of_all_keys = sum(map(model.is_global, range(blocks)))
    entries = [_matrices(model, x, inner, blocks), *_attention(model, tokens, None, of_all_keys)]
    if of_all_keys < blocks:
        of_windows = _attention(model, tokens, model.local_window, blocks - of_all_keys)
        entries += [replace(operation, name=f"{operation.name}, local") for operation in of_windows]
    if model.dropout:
        keys = jax.random.split(jax.random.key(0), batch)
        entries.append(_operation("dropout of outputs", 2 * blocks + 1, lambda x: dropout(x, model.dropout, keys), x))
    entries.append(_of_module("LayerNorm", 2 * blocks + 1, LayerNorm(model), x))
    entries.append(_operation("GELU", blocks, activation(model), inner))
    return entries


def _head(model: ModelConfig, tokens: Tokens, slots: int) -> Operation:
    """The head of a discriminator, at all tokens, or the one that predicts `slots` tokens of a row."""
    (batch, length), width = tokens.ids.shape, model.hidden_size
    if model.discriminator:
        flops = 2 * batch * length * width * (width + 1)
        x = _random(model, batch, length, width)
        return _of_module("discriminator's head", 1, ReplacedTokenHead(model), x, flops=flops)
    table = _random(model, padded_vocabulary_size(model), model.table_size).astype(jnp.float32)
    flops = 2 * batch * slots * model.table_size * (width + vocabulary_size(model))
    predicted = _random(model, batch, slots, width)
    return _of_module("masked-language head", 1, MaskedLanguageHead(model), predicted, table, flops=flops)


def _random(model: ModelConfig, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(len(shape)), shape, compute_dtype(model))


def _operation(name: str, count: int, function: Callable, *arguments: jax.Array, flops: int = 0) -> Operation:
    """`function`, which takes so many `flops`, and its gradients; its output serves as the gradient of the output."""

    @jax.jit
    def both(*arguments):
        output, backward = jax.vjp(function, *arguments)
        return output, backward(output)

    moved = [*arguments, *jax.tree.leaves(jax.eval_shape(both, *arguments))]
    size = sum(each.size * each.dtype.itemsize for each in moved)
    return Operation(name, count, lambda: both(*arguments), _FORWARD_AND_BACKWARD * flops, size)


def _of_module(name: str, count: int, module: nn.Module, *arguments: jax.Array, flops: int = 0) -> Operation:
    """`module` with fixed parameters."""
    params = jax.jit(module.init)(jax.random.key(0), *arguments)
    return _operation(name, count, functools.partial(module.apply, params), *arguments, flops=flops)


def _matrices(model: ModelConfig, x: jax.Array, inner: jax.Array, blocks: int) -> Operation:
    """The matrix products of a block's projections and feed-forward layers, each with its own input."""
    width, within = model.hidden_size, model.inner_size
    into = 2 * within if model.feedforward == "gated" else within
    shapes = ((width, 3 * width), (width, width), (width, into), (within, width))
    kernels = [_random(model, *shape).astype(jnp.float32) for shape in shapes]

    def products(x, inner, *kernels):
        inputs = (x, x, x, inner)
        return [
            project(rows, kernel, jnp.zeros(kernel.shape[1]), x.dtype)
            for rows, kernel in zip(inputs, kernels, strict=True)
        ]

    flops = 2 * x.shape[0] * x.shape[1] * sum(kernel.size for kernel in kernels)
    return _operation("projections and feed-forward", blocks, products, x, inner, *kernels, flops=flops)


def _attention(model: ModelConfig, tokens: Tokens, window: int | None, blocks: int) -> list[Operation]:
    """Attention between the projections, in `blocks` blocks. Of long rows with a window it is computed in bands, which
    are rows of their own here."""
    (rows, queries), keys = tokens.ids.shape, tokens.ids.shape[1]
    if block := band(queries, window):
        rows, queries, keys = rows * -(-queries // block), block, 3 * block
        admitted = jnp.ones((1, 1, 1), bool)
    else:
        admitted = AttentionPattern.of(jax.device_put(tokens), model.causal)._replace(window=window).admitted()
    heads = model.num_heads, model.head_size
    query, key, value = (_random(model, rows, length, *heads) for length in (queries, keys, keys))
    scores = _random(model, rows, model.num_heads, queries, keys).astype(jnp.float32)

    def products(query, key, value):
        scores = inner_products(heads_first(query), heads_first(key), jnp.float32)
        return weighted_sums(scores.astype(value.dtype), heads_first(value), value.dtype).swapaxes(1, 2)

    flops = 2 * 2 * rows * queries * keys * model.hidden_size
    entries = [
        _operation("attention's products", blocks, products, query, key, value, flops=flops),
        _operation("softmax", blocks, lambda x: softmax_where(x, admitted), scores),
    ]
    if rate := model.attention_dropout:
        of_heads = head_keys(jax.random.split(jax.random.key(0), rows)[:, None], model.num_heads)[:, 0]
        entries.append(_operation("dropout of attention", blocks, lambda x: dropout(x, rate, of_heads), scores))
    return entries


def _drawing(model: ModelConfig, tokens: Tokens, slots: int) -> Operation:
    """Drawing the replacements of masked tokens from a generator's logits; nothing is learned by it."""
    batch = tokens.ids.shape[0]
    logits = _random(model, batch, slots, padded_vocabulary_size(model)).astype(jnp.float32)
    nowhere, keys = jnp.zeros((batch, slots), jnp.int32), jax.random.split(jax.random.key(0), tokens.begin.shape)
    masked = Masked(jax.device_put(tokens), nowhere, nowhere, jnp.ones((batch, slots)))
    draw = jax.jit(draw_tokens)
    return Operation("drawing", 1, lambda: draw(logits, masked, keys), 0, logits.nbytes + nowhere.nbytes)
