"""The encoder with the head of a task (Devlin et al. 2019, figure 4).

Further letters in shapes: E examples a row, C sequences an example (its choices, otherwise one), M marked words, O
outputs of the head. A row holds N = E C sequences, those of an example one after the other.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.task_kind import HeadInput
from bert_jax.config.vectors import Pooling
from bert_jax.layout import UNPOOLED, Tokens
from bert_jax.model.attention import at_places
from bert_jax.model.bert import BertEncoder, Parameters, of_ends, one_token, pooled_places, shapes_of, without
from bert_jax.model.dropout import dropout, split, token_dropout
from bert_jax.model.encoder import UNTRAINED
from bert_jax.model.heads import TaskHead
from bert_jax.model.kernels.platform import product_precision


class HeadShape(NamedTuple):
    """Input and output sizes of a task's head."""

    input: HeadInput
    outputs: int
    """Number of outputs for each input vector."""
    marks: int = 0
    """Number of marked words in an example."""
    drops: bool = True
    """Whether dropout is applied to the head's input."""
    mixes: bool = False
    """Whether its input is a weighted mean of all layers instead of the last layer."""

    @classmethod
    def of(cls, task: TaskConfig) -> "HeadShape":
        """The head of a task whose labels are known."""
        kind = task.task_kind
        outputs = len(task.labels or ()) if kind.labelled else kind.outputs
        assert outputs is not None, "a task without labels has a fixed number of outputs"
        return cls(kind.head, outputs, len(task.marks) // 2, kind.head_dropout, task.mix_layers)

    def has_pooler(self, config: ModelConfig) -> bool:
        """Whether the head reads the pooler's output. A head for tokens reads it only if `pools_tokens`."""
        return pools_tokens(config) if self.input == "tokens" else self.input != "texts"


class BertForTask(nn.Module):
    """The encoder and a task's head."""

    config: ModelConfig
    head: HeadShape
    execution: ExecutionConfig = UNTRAINED
    frozen_layers: int | None = None
    """Number of blocks, from the first, that are frozen together with the embeddings. None: nothing is frozen."""

    def setup(self):
        self.bert = BertEncoder(self.config, self.execution, self.frozen_layers)
        self.task = TaskHead(self.config, self.head.outputs, self.head.mixes)

    def __call__(
        self, tokens: Tokens, marks: Int[Array, "B E M 2"], dropout_keys: Key[Array, "B E"] | None = None
    ) -> Float[Array, "B ..."]:
        """Float32 outputs: [B, E, O] of pooled and marked vectors, [B, E, C] of choices, [B, T, O] of tokens.

        `marks` are begin and end (exclusive) of the marked words, as positions in their sequence. An absent example has
        no tokens.
        """
        rows, examples = marks.shape[:2]
        in_encoder, in_head = (None, None) if dropout_keys is None else split(dropout_keys, 2)
        if in_encoder is not None:
            choices = tokens.length.shape[1] // examples
            in_encoder = jnp.moveaxis(split(in_encoder, choices), 0, -1).reshape(rows, -1)
        places = None if self.head.input in ("marked", "tokens") else jnp.zeros((rows, 0), jnp.int32)
        encoded = self.bert(tokens, in_encoder, places, return_layers=self.head.mixes)
        if encoded.layers is not None:
            encoded = encoded._replace(tokens=self.task.mixed(encoded.layers))
            if encoded.pooled is not None:
                at_pooled = at_places(encoded.tokens, pooled_places(self.config, tokens))
                encoded = encoded._replace(pooled=self.bert.pooler(of_ends(self.config, at_pooled)))
        rate, in_head = self.config.dropout, in_head if self.head.drops else None
        if self.head.input == "tokens":
            vectors = self.bert.pooler(encoded.tokens) if pools_tokens(self.config) else encoded.tokens
            return self.task(token_dropout(vectors, rate, in_head, tokens.sequence, tokens.position))
        assert encoded.pooled is not None, "this head needs a pooler"
        if self.head.input == "choices":
            vectors = encoded.pooled.reshape(rows, examples, -1, encoded.pooled.shape[-1])
            return self.task(dropout(vectors, rate, in_head))[..., 0]
        vectors = encoded.pooled
        if self.head.input == "marked":
            words = mean_of_marked(encoded.tokens, marks + tokens.begin[:, :, None, None])
            vectors = jnp.concatenate([vectors, words.reshape(rows, examples, -1)], axis=-1)
        return self.task(dropout(vectors, rate, in_head))


def mean_of_marked(x: Float[Array, "B T D"], marks: Int[Array, "B E M 2"]) -> Float[Array, "B E M D"]:
    """For each mark (begin, end), the mean vector of the tokens at places begin to end - 1 of the row; 0 for an empty
    mark."""
    places = jnp.arange(x.shape[1])
    inside = (places >= marks[..., :1]) & (places < marks[..., 1:])
    share = inside / jnp.maximum(jnp.sum(inside, axis=-1, keepdims=True), 1)
    return jnp.einsum("BEMT,BTD->BEMD", share.astype(x.dtype), x, precision=product_precision(x.dtype))


def pools_tokens(config: ModelConfig) -> bool:
    """Whether a head for tokens reads every token's vector through the pooler, as ModernBERT's does."""
    return config.pooler == "transform"


def init_for_task(config: ModelConfig, head: HeadShape, key: Key[Array, ""]) -> Parameters:
    """Initial parameters of encoder and head. Equal keys give equal values."""
    if head.input == "texts":
        return without(PooledEncoder(config, "mean").init(key, one_token())["params"], ["bert/pooler"])
    params = BertForTask(config, head).init(key, one_token(), jnp.zeros((1, 1, head.marks, 2), jnp.int32))["params"]
    return params if head.has_pooler(config) else without(params, ["bert/pooler"])


def task_parameter_shapes(config: ModelConfig, head: HeadShape) -> Parameters:
    """The tree of `init_for_task` as shapes and types; nothing is allocated."""
    return shapes_of(init_for_task, config, head)


_SHORTEST = 1e-12
"""Least length that a vector is divided by, so that the zero vector stays zero, as in sentence-transformers."""


class PooledEncoder(nn.Module):
    """The encoder without any head. Its parameters, under `bert`, are those of `BertEncoder` without pooler."""

    config: ModelConfig
    pool: Pooling
    execution: ExecutionConfig = UNTRAINED
    frozen_layers: int | None = None
    """Number of blocks, from the first, that are frozen together with the embeddings. None: nothing is frozen."""

    def setup(self):
        self.bert = BertEncoder(self.config, self.execution, self.frozen_layers)

    def __call__(self, tokens: Tokens, dropout_keys: Key[Array, "B N"] | None = None) -> Float[Array, "B N D"]:
        """The vector of each sequence of each row, in float32 and not normalised; 0 for an absent sequence.
        `dropout_keys` holds one key for each sequence; None means no dropout."""
        return pooled(self.config, self.bert(tokens, dropout_keys).tokens.astype(jnp.float32), tokens, self.pool)


def pooled(config: ModelConfig, x: Float[Array, "B T ..."], tokens: Tokens, pool: Pooling) -> Float[Array, "B N ..."]:
    """One vector for each sequence from the vectors `x` of its tokens, [CLS] and [SEP] included; 0 for an absent one.

    Tokens with the unit bit UNPOOLED, which begin a sequence, are left out. `cls` takes the vector of the first token
    that isn't left out, or of the last token if the model pools that one.
    """
    of_sequence = tokens.sequence[:, None, :] == jnp.arange(1, tokens.length.shape[1] + 1)[None, :, None]
    left_out = of_sequence & ((tokens.units & UNPOOLED) > 0)[:, None, :]
    of_sequence &= ~left_out
    if pool == "mean":
        share = of_sequence / jnp.maximum(of_sequence.sum(axis=-1), 1)[..., None]
        return jnp.einsum("BNT,BT...->BN...", share, x, precision=jax.lax.Precision.HIGHEST)
    there = (tokens.length > 0).reshape(*tokens.length.shape, *[1] * (x.ndim - 2))
    if pool == "cls":
        places = pooled_places(config, tokens, left_out.sum(axis=-1))
        return jnp.where(there, of_ends(config, x[jnp.arange(len(x))[:, None], places]), 0)

    def maximum(inside: Array) -> Array:
        return jnp.where(inside.reshape(*inside.shape, *[1] * (x.ndim - 2)), x, -jnp.inf).max(axis=1)

    # The sequences of a row are pooled one after the other, because an array [B, N, T, D] would be large.
    return jnp.where(there, jax.lax.map(maximum, of_sequence.swapaxes(0, 1)).swapaxes(0, 1), 0)


def normalised(x: Float[Array, "... D"], width: int | None = None) -> Float[Array, "... W"]:
    """The first `width` components of each vector (None: all), divided by their Euclidean length."""
    x = x[..., :width]
    return x * jax.lax.rsqrt(jnp.maximum(jnp.sum(jnp.square(x), axis=-1, keepdims=True), _SHORTEST**2))
