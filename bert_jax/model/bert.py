"""BERT: embeddings, encoder, pooler and the two pretraining heads.

Letters in shapes and einsum strings, here and everywhere:

    B batch          T query positions    S key positions     L layers
    D width          H heads              K head width        F feed-forward width
    V vocabulary     P predicted slots
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.model.dropout import split
from bert_jax.model.embeddings import Embeddings
from bert_jax.model.encoder import Encoder, Remat
from bert_jax.model.heads import MaskedLanguageHead, NextSentenceHead, Pooler

Parameters = dict[str, Any]
"""A nested dict of float32 arrays. A block's parameters carry a leading layer axis."""

OPTIONAL_PARTS = ("bert/pooler", "masked_lm", "next_sentence")
"""Parts that a model made elsewhere may lack, each whole; what is left is the encoder."""


class Encoded(NamedTuple):
    """What the encoder says of a batch."""

    tokens: Float[Array, "B R D"]
    """The last layer's vector at each position that is read: of every token, unless fewer were asked for."""
    pooled: Float[Array, "B D"] | None
    """One vector a sequence; None where the parameters have no pooler."""
    layers: Float[Array, "N B T D"] | None
    """The embeddings and after them every layer's vectors, N = L + 1, if asked for."""
    attention: Float[Array, "L B H T T"] | None
    """Every layer's attention probabilities, if asked for."""


class BertEncoder(nn.Module):
    """Embeddings, blocks and pooler: what stays when pretraining is over."""

    config: ModelConfig
    remat: Remat = "none"
    unroll: int = 1
    frozen_layers: int | None = None
    """Blocks, from the first on, into which no gradient goes back; None: it goes into all."""

    def setup(self):
        self.embeddings = Embeddings(self.config)
        self.encoder = Encoder(self.config, self.remat, self.unroll, self.frozen_layers)
        self.pooler = Pooler(self.config)

    def __call__(
        self,
        ids: Int[Array, "B T"],
        segments: Int[Array, "B T"],
        mask: Bool[Array, "B T"],
        dropout_keys: Key[Array, " B"] | None = None,
        read: Int[Array, "B R"] | None = None,
        return_layers: bool = False,
        return_attention: bool = False,
    ) -> Encoded:
        """`segments` is 0 in the first and 1 in the second segment, `mask` False at padding.

        `dropout_keys` holds one key an example; None means no dropout. With `read` (and without `return_layers`)
        `tokens` holds these positions alone: the same values for less work. An id past the vocabulary must not get
        here: whoever makes a batch checks it.
        """
        pooled = pooled_position(self.config, mask)
        positions = None if read is None else jnp.concatenate([pooled, read], axis=1)
        in_embeddings, in_encoder = (None, None) if dropout_keys is None else split(dropout_keys, 2)
        embedded = self.embeddings(ids, segments, in_embeddings)
        x, layers, attention = self.encoder(embedded, mask, in_encoder, positions, return_layers, return_attention)
        of_all, x = (jnp.take_along_axis(x, pooled[:, :, None], axis=1), x) if read is None else (x[:, :1], x[:, 1:])
        has_pooler = self.is_initializing() or self.has_variable("params", "pooler")
        layers = None if layers is None else jnp.concatenate([embedded[None], layers])
        return Encoded(x, self.pooler(of_all[:, 0]) if has_pooler else None, layers, attention)


def pooled_position(config: ModelConfig, mask: Bool[Array, "B T"]) -> Int[Array, "B 1"]:
    """The token whose vector stands for the sequence: the first or, where that sees nothing else, the last real one."""
    last = jnp.sum(mask, axis=1, keepdims=True, dtype=jnp.int32) - 1
    return jnp.maximum(last, 0) if config.causal else jnp.zeros_like(last)


class BertForPretraining(nn.Module):
    """The encoder with both heads."""

    config: ModelConfig
    remat: Remat = "none"
    unroll: int = 1

    def setup(self):
        self.bert = BertEncoder(self.config, self.remat, self.unroll)
        self.masked_lm = MaskedLanguageHead(self.config)
        self.next_sentence = NextSentenceHead(self.config)

    def __call__(
        self,
        ids: Int[Array, "B T"],
        segments: Int[Array, "B T"],
        mask: Bool[Array, "B T"],
        positions: Int[Array, "B P"] | None,
        dropout_keys: Key[Array, " B"] | None = None,
    ) -> tuple[Float[Array, "B P V"], Float[Array, "B 2"]]:
        """Float32 logits over the padded vocabulary at `positions` alone (at all where None), and those of the pair."""
        encoded = self.bert(ids, segments, mask, dropout_keys, positions)
        return self.masked_lm(encoded.tokens, self.bert.embeddings.word), self.next_sentence(encoded.pooled)

    def encode(
        self,
        ids: Int[Array, "B T"],
        segments: Int[Array, "B T"],
        mask: Bool[Array, "B T"],
        return_layers: bool = False,
        return_attention: bool = False,
    ) -> Encoded:
        """The encoder alone, at every position and without dropout: `model.apply(variables, ..., method="encode")`."""
        return self.bert(ids, segments, mask, return_layers=return_layers, return_attention=return_attention)


def init(config: ModelConfig, key: Key[Array, ""]) -> Parameters:
    """Initial parameters of encoder and heads. `config.vocabulary_size` must be set. Same key, same values."""
    one = jnp.zeros((1, 1), jnp.int32)
    variables = BertForPretraining(config).init(key, one, one, one.astype(bool), one)
    return variables["params"]


def parameter_shapes(config: ModelConfig, absent: Collection[str] = ()) -> Parameters:
    """The tree of `init`, without the parts `absent`, as shapes and types; nothing is allocated."""
    return without(jax.eval_shape(lambda: init(config, jax.random.key(0))), absent)


def without(params: Parameters, absent: Collection[str]) -> Parameters:
    """`params` without some of OPTIONAL_PARTS."""
    encoder = {name: part for name, part in params["bert"].items() if f"bert/{name}" not in absent}
    return {name: part for name, part in params.items() if name not in absent} | {"bert": encoder}


def completed(params: Parameters, others: Parameters) -> Parameters:
    """`params` with the parts of `others` that it lacks."""
    return {**others, **params, "bert": {**others["bert"], **params["bert"]}}


def absent_parts(params: Parameters) -> frozenset[str]:
    """Those of OPTIONAL_PARTS that `params` lacks."""
    present = {*params, *(f"bert/{name}" for name in params["bert"])}
    return frozenset(OPTIONAL_PARTS) - present
