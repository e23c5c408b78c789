"""The main operations of a step, each with its FLOPs and bytes."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.layout import Tokens
from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.dropout import dropout
from bert_jax.model.embeddings import padded_vocabulary_size
from bert_jax.model.exact_attention import band, head_keys, softmax_where
from bert_jax.model.heads import MaskedLanguageHead, ReplacedTokenHead
from bert_jax.model.linear import LayerNorm, activation, compute_dtype, project
from bert_jax.model.products import heads_first, inner_products, weighted_sums
from bert_jax.pretraining.masking import Masked
from bert_jax.pretraining.replaced import draw_tokens
from bert_jax.training.batch import synthetic_batch
from bert_jax.training.trainer import Trainer

_FORWARD_AND_BACKWARD = 3
"""FLOPs of forward and backward pass over those of the forward pass: the backward pass takes twice as many."""


class Operation(NamedTuple):
    """One operation of a step, forward and backward, at its real size."""

    name: str
    count: int  # type: ignore[assignment]  # hides a method of tuples
    """How often a step runs it at all positions. The last block isn't counted if it runs at predicted ones only."""
    run: Callable[[], Any]
    flops: int
    """FLOPs of its matrix products."""
    bytes: int
    """Bytes of its arguments and results, the gradients among them, each read or written once."""


def operations(trainer: Trainer) -> list[Operation]:
    """The operations that take most of a step of the trainer's first phase, at one device's share of the batch.

    Those of a generator, beside its discriminator's, have names of their own.
    """
    config = cast(RunConfig, trainer.config)
    model, phase = trainer.objective.model, config.phases[0]
    batch, length = phase.batch_size // trainer.mesh.size, phase.length
    slots = config.slots(length)
    tokens = synthetic_batch(batch, length, 1, config.data.sequences_a_row(length)).tokens
    first, *others = model.networks
    found = _of_model(first, tokens, length if first.discriminator else slots)
    for other in others:
        of_generator = [*_of_model(other, tokens, slots), _drawing(other, tokens, slots)]
        found += [operation._replace(name=f"generator: {operation.name}") for operation in of_generator]
    return found


def _of_model(model: ModelConfig, tokens: Tokens, slots: int) -> list[Operation]:
    """The operations of one model, whose last block runs at `slots` tokens of a row."""
    batch, length = tokens.ids.shape
    blocks = model.num_layers - (slots < length)
    of_tokens = _random(model, batch, length, model.hidden_size)
    inner = _random(model, batch, length, model.inner_size)
    keys = jax.random.split(jax.random.key(0), batch)
    of_all_keys = sum(map(model.is_global, range(blocks)))
    found = [_matrices(model, of_tokens, inner, blocks), *_attention(model, tokens, None, of_all_keys)]
    if of_all_keys < blocks:
        of_windows = _attention(model, tokens, model.local_window, blocks - of_all_keys)
        found += [operation._replace(name=f"{operation.name}, local") for operation in of_windows]
    found += [
        _elementwise("dropout of outputs", 2 * blocks + 1, lambda x: dropout(x, model.dropout, keys), of_tokens),
        _elementwise("LayerNorm", 2 * blocks + 1, _layer_norm(model), of_tokens),
        _elementwise("GELU", blocks, activation(model), inner),
    ]
    found.append(_replaced_head(model, of_tokens) if model.discriminator else _head(model, batch, slots))
    # A step without dropout has no such operation.
    return [operation for operation in found if model.dropout or operation.name != "dropout of outputs"]


def _attention(model: ModelConfig, tokens: Tokens, window: int | None, blocks: int) -> list[Operation]:
    """Attention between the projections, in `blocks` blocks. Of long rows with a window it is computed in bands, which
    are rows of their own here."""
    (rows, queries), keys = tokens.ids.shape, tokens.ids.shape[1]
    if block := band(queries, window):
        rows, queries, keys = rows * -(-queries // block), block, 3 * block
        admitted = jnp.ones((1, 1, 1), bool)
    else:
        admitted = AttentionPattern.of(jax.device_put(tokens), model.causal)._replace(window=window).admitted()
    scores = _random(model, rows, model.num_heads, queries, keys).astype(jnp.float32)
    found = [
        _attention_products(model, rows, queries, keys, blocks),
        _elementwise("softmax", blocks, lambda x: softmax_where(x, admitted), scores),
    ]
    if model.attention_dropout:
        of_rows = jax.random.split(jax.random.key(0), rows)
        found.append(_elementwise("dropout of attention", blocks, _attention_dropout(model, of_rows), scores))
    return found


def _random(model: ModelConfig, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(len(shape)), shape, compute_dtype(model))


def _operation(name: str, count: int, forward_flops: int, function: Callable, *arguments: jax.Array) -> Operation:
    """`function` and its gradients; its output serves as the gradient of the output."""

    @jax.jit
    def both(*arguments):
        output, backward = jax.vjp(function, *arguments)
        return output, backward(output)

    moved = [*arguments, *jax.tree.leaves(jax.eval_shape(both, *arguments))]
    return Operation(
        name,
        count,
        lambda: both(*arguments),
        _FORWARD_AND_BACKWARD * forward_flops,
        sum(each.size * each.dtype.itemsize for each in moved),
    )


def _elementwise(name: str, count: int, function: Callable, x: jax.Array) -> Operation:
    return _operation(name, count, 0, function, x)


def _attention_dropout(model: ModelConfig, keys: Key[Array, " B"]) -> Callable:
    of_heads = head_keys(keys[:, None], model.num_heads)[:, 0]
    return lambda x: dropout(x, model.attention_dropout, of_heads)


def _layer_norm(model: ModelConfig) -> Callable:
    width = model.hidden_size
    params = {"params": {"scale": jnp.ones(width)} | ({"bias": jnp.zeros(width)} if model.biases else {})}
    return lambda x: LayerNorm(model).apply(params, x)


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
    return _operation("projections and feed-forward", blocks, flops, products, x, inner, *kernels)


def _attention_products(model: ModelConfig, rows: int, queries: int, keys: int, blocks: int) -> Operation:
    heads = model.num_heads, model.head_size
    query, key, value = (_random(model, rows, length, *heads) for length in (queries, keys, keys))

    def products(query, key, value):
        scores = inner_products(heads_first(query), heads_first(key), jnp.float32)
        return weighted_sums(scores.astype(value.dtype), heads_first(value), value.dtype).swapaxes(1, 2)

    flops = 2 * 2 * rows * queries * keys * model.hidden_size
    return _operation("attention's products", blocks, flops, products, query, key, value)


def _head(model: ModelConfig, batch: int, slots: int) -> Operation:
    head, x = MaskedLanguageHead(model), _random(model, batch, slots, model.hidden_size)
    table = _random(model, padded_vocabulary_size(model), model.table_size).astype(jnp.float32)
    params = head.init(jax.random.key(0), x, table)
    flops = 2 * batch * slots * model.table_size * (model.hidden_size + (model.vocabulary_size or 0))
    return _operation("masked-language head", 1, flops, lambda x, table: head.apply(params, x, table), x, table)


def _replaced_head(model: ModelConfig, x: jax.Array) -> Operation:
    head = ReplacedTokenHead(model)
    params = head.init(jax.random.key(0), x)
    flops = 2 * x.shape[0] * x.shape[1] * model.hidden_size * (model.hidden_size + 1)
    return _operation("discriminator's head", 1, flops, lambda x: head.apply(params, x), x)


def _drawing(model: ModelConfig, tokens: Tokens, slots: int) -> Operation:
    """What takes the places of masked tokens is drawn from a generator's logits; nothing is learned by it."""
    batch = tokens.ids.shape[0]
    logits = _random(model, batch, slots, padded_vocabulary_size(model)).astype(jnp.float32)
    nowhere, keys = jnp.zeros((batch, slots), jnp.int32), jax.random.split(jax.random.key(0), tokens.begin.shape)
    masked = Masked(jax.device_put(tokens), nowhere, nowhere, jnp.ones((batch, slots)))
    draw = jax.jit(draw_tokens)
    return Operation("drawing", 1, lambda: draw(logits, masked, keys), 0, logits.nbytes + nowhere.nbytes)
