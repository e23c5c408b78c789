"""Vectors of texts from chosen layers, as feature-based models use them (Devlin et al. 2019, section 5.3)."""

from collections.abc import Sequence
from typing import NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bert_jax.config.model import ModelConfig
from bert_jax.inference.batches import Output, Text
from bert_jax.inference.choices import Join, Pool, Precision
from bert_jax.layout import Tokens
from bert_jax.model.bert import BertForPretraining, Parameters, pooled_places
from bert_jax.system.errors import UsageError

_LAST = 4
"""Layers that are taken if none are named: concatenated, the best of that section's table 7."""


class Feature(NamedTuple):
    """What a model makes of one text of T tokens."""

    text: Text
    pieces: list[str]
    """Its tokens, [CLS] and [SEP] included: T of them."""
    vectors: Float[np.ndarray, "..."]
    """[T, X], or pooled [X]; X is the width, times the number of layers where these are concatenated. With join "none"
    each vector is [layers, width]."""


class Choice(NamedTuple):
    """Which vectors are asked for."""

    layers: tuple[int, ...]
    """0 for the embeddings, 1 to L for the blocks, in the order in which they are joined."""
    join: Join
    pool: Pool
    dtype: Precision

    @classmethod
    def of(cls, layers: Sequence[int], join: str, pool: str, dtype: str, count: int) -> "Choice":
        """For a model of `count` blocks; negative `layers` count from the last, -1. No layers: the last four, or all.

        Raises UsageError for a layer that isn't there or that is named twice, and for other words than those above.
        """
        for name, value, words in (("join", join, Join), ("pool", pool, Pool), ("dtype", dtype, Precision)):
            if value not in get_args(words):
                raise UsageError(f"{name}={value!r} is unknown; choose from {', '.join(get_args(words))}")
        layers = tuple(layers) or range(-1, -1 - min(_LAST, count), -1)
        if absent := [layer for layer in layers if not -count <= layer <= count]:
            raise UsageError(
                f"there is no layer {absent[0]}: the model has {count}, which are 1 to {count} or, from the last, -1 "
                f"to {-count}; 0 are the embeddings"
            )
        numbers = tuple(layer % (count + 1) for layer in layers)
        if len(set(numbers)) < len(numbers):
            raise UsageError(
                f"layers {' '.join(map(str, layers))} name one twice, as -1 and {count} would; leave one out"
            )
        return cls(numbers, join, pool, dtype)

    @property
    def vectors_a_token(self) -> int:
        """How many of the model's width leave the device for each token, at most; 1 where they are pooled."""
        return len(self.layers) if self.pool == "none" and self.join in ("concat", "none") else 1


def features(
    config: ModelConfig,
    params: Parameters,
    tokens: Tokens,
    choice: Choice,
) -> Output:
    """Of each token, or pooled of each text. Blocks above the highest one of `choice` are not computed."""
    depth = max(*choice.layers, 1)
    blocks = jax.tree.map(lambda leaf: leaf[:depth], params["bert"]["encoder"])
    variables = {"params": {**params, "bert": {**params["bert"], "encoder": blocks}}}
    network = BertForPretraining(config.replace(num_layers=depth))
    layers = network.apply(variables, tokens, return_layers=True, method="encode").layers
    vectors = _joined([layers[number].astype(jnp.float32) for number in choice.layers], choice.join)
    if choice.pool == "none":
        return Output(vectors.astype(choice.dtype), None)
    telling = pooled_places(config, tokens)[:, 0]
    return Output(None, _pooled(vectors, tokens.sequence > 0, choice.pool, telling).astype(choice.dtype))


def _joined(layers: list[Float[Array, "B T D"]], join: Join) -> Float[Array, "B T ..."]:
    if join == "concat":
        return jnp.concatenate(layers, axis=-1)
    stacked = jnp.stack(layers, axis=2)
    return stacked if join == "none" else stacked.sum(axis=2) if join == "sum" else stacked.mean(axis=2)


def _pooled(
    vectors: Float[Array, "B T ..."], mask: Bool[Array, "B T"], pool: Pool, telling: Int[Array, " B"]
) -> Float[Array, "B ..."]:
    """One vector a text: that of the token `telling`, or of all, [CLS] and [SEP] too, as in sentence-transformers."""
    if pool == "cls":
        return vectors[jnp.arange(len(vectors)), telling]
    real = mask.reshape(*mask.shape, *[1] * (vectors.ndim - 2))
    if pool == "max":
        return jnp.where(real, vectors, -jnp.inf).max(axis=1)
    return jnp.where(real, vectors, 0).sum(axis=1) / jnp.maximum(real.sum(axis=1), 1)
