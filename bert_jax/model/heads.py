"""The pooler and the heads on top of the encoder."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from bert_jax.config.model import ModelConfig
from bert_jax.layout import Tokens
from bert_jax.model.embeddings import initial_words, padded_vocabulary_size, vocabulary_size
from bert_jax.model.kernels.platform import compute_dtype
from bert_jax.model.kernels.products import product, product_with_transposed, rows_of, transposed
from bert_jax.model.linear import LayerNorm, Linear, activation, initial_weights
from bert_jax.model.placement import gathered

MASKED_OUT = -1e30
"""Added to the logits of the vocabulary's padding rows, so that their probability is exactly 0."""


class Pooler(nn.Module):
    """The vector of a sequence: tanh(x W + b) of the vector x of its first token (or of its last:
    `ModelConfig.pooled_ends`).

    With model.pooler=gelu or relu, that function takes the place of tanh; with model.pooler=transform, the activation
    of the prediction head and a norm after it.
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, x: Float[Array, "B N D"]) -> Float[Array, "B N D"]:
        config = self.config
        has_bias = config.biases or config.pooler == "gelu"  # only EuroBERT's has a bias in a model without biases
        x = Linear(config, (config.hidden_size,), bias=has_bias, name="dense")(x)
        match config.pooler:
            case "tanh":
                return jnp.tanh(x)
            case "gelu":  # transformers' ELECTRA has GELU by the error function here, whatever its blocks use
                return activation(config.replace(activation="gelu_erf"))(x)
            case "relu":
                return jax.nn.relu(x)
            case "transform":
                return LayerNorm(config, name="norm")(activation(config.prediction_head)(x))


class TokenLogits(NamedTuple):
    """Logits over the padded vocabulary as factors: vectors table^T + bias. The product, the largest array of a small
    model's step, need not exist in full to compute a loss."""

    vectors: Float[Array, "B P E"]
    table: Float[Array, "V E"]
    bias: Float[Array, " V"]

    def whole(self) -> Float[Array, "B P V"]:
        """The logits in float32."""
        vectors = self.vectors.reshape(-1, self.vectors.shape[-1])
        product = times_table(vectors, self.table.astype(vectors.dtype))
        return product.reshape(*self.vectors.shape[:2], -1) + self.bias


class MaskedLanguageHead(nn.Module):
    """A dense layer to the width of the word table, activation and LayerNorm, then a product with that table and a bias
    over the vocabulary. A model with a query stream has only the product and the bias; with model.head=product, there
    is only the product. The table of positions of a mask decoder is part of the head too."""

    config: ModelConfig

    def setup(self):
        config, rows = self.config, padded_vocabulary_size(self.config)
        if config.character_filters or not config.tied_words:
            self.table = self.param("table", initial_words(config), (rows, config.table_size))
        if config.transforms_head:
            self.dense = Linear(config, (config.table_size,), bias=config.biases)
            self.norm = LayerNorm(config)
        if config.head == "transform":
            self.bias = self.param("bias", nn.initializers.zeros_init(), (rows,))
        if config.mask_decoder:
            self.position = self.param("position", initial_weights(config), (config.max_positions, config.hidden_size))

    def __call__(self, x: Float[Array, "B P D"], word_table: Float[Array, "V E"] | None) -> TokenLogits:
        """The logits at each of the P places. The head has a table of its own if `word_table` is None or isn't tied."""
        config = self.config
        if word_table is None or not config.tied_words:
            word_table = gathered(self.table)
        if config.transforms_head:
            x = self.norm(activation(config.prediction_head)(self.dense(x)))
        bias = self.bias if config.head == "transform" else jnp.zeros(word_table.shape[:1])
        padding = jnp.where(jnp.arange(len(bias)) < vocabulary_size(config), 0.0, MASKED_OUT)
        return TokenLogits(x.astype(compute_dtype(config)), word_table, bias + padding)

    def positions(self, tokens: Tokens, places: Int[Array, "B P"]) -> Float[Array, "B P D"]:
        """The mask decoder's vectors of the positions of the tokens at `places`."""
        return rows_of(self.position, jnp.take_along_axis(tokens.position, places, axis=1))


class NextSentenceHead(nn.Module):
    """Two classes from the pooled vector: 0 the second segment follows, 1 it was drawn at random."""

    config: ModelConfig

    @nn.compact
    def __call__(self, pooled: Float[Array, "B N D"]) -> Float[Array, "B N 2"]:
        return Linear(self.config, (2,), float32=True, name="dense")(pooled)


class ReplacedTokenHead(nn.Module):
    """A dense layer and activation, then one number a token: the logit that it was replaced (Clark et al. 2020, section
    2). With model.discriminator_head=product, there is only the product."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T"]:
        """Float32 logits that each token was replaced."""
        if self.config.discriminator_head == "transform":
            x = activation(self.config)(Linear(self.config, (self.config.hidden_size,), name="dense")(x))
        return Linear(self.config, (1,), float32=True, name="output")(x)[..., 0]


class TaskHead(nn.Module):
    """A task's own parameters: a linear layer (Devlin et al. 2019, section 4) and, if its input is a weighted mean of
    all layers, the weights of this mean."""

    config: ModelConfig
    outputs: int
    mixes: bool = False

    def setup(self):
        self.dense = Linear(self.config, (self.outputs,), float32=True)
        if self.mixes:
            self.mix = self.param("mix", nn.initializers.zeros_init(), (self.config.num_layers + 1,))
            self.gamma = self.param("gamma", nn.initializers.ones_init(), (1,))

    def mixed(self, layers: Float[Array, "_ B T D"]) -> Float[Array, "B T D"]:
        """gamma * sum_l softmax(mix)_l layers_l, summed in float32 (Peters et al. 2018, equation 1). `layers`: the
        embeddings, then every layer's vectors."""
        weights = self.gamma * jax.nn.softmax(self.mix)
        return jnp.sum(weights[:, None, None, None] * layers.astype(jnp.float32), axis=0).astype(layers.dtype)

    def __call__(self, x: Float[Array, "*vectors D"]) -> Float[Array, "*vectors O"]:
        """Float32 outputs for each vector of `x`."""
        return self.dense(x)


@jax.custom_vjp
def times_table(x: Float[Array, "N E"], table: Float[Array, "V E"]) -> Float[Array, "N V"]:
    """x table^T in float32.

    The gradient is written out to choose what is transposed. For the table's gradient, XLA would transpose the gradient
    of the logits, the largest array of a small model's step; here x and the result are transposed.
    """
    return product_with_transposed(x, table, jnp.float32)


def _forward(x, table):
    return times_table(x, table), (x, table)


def _backward(residuals, gradient):
    x, table = residuals
    gradient = jax.lax.optimization_barrier(gradient.astype(x.dtype))
    of_table = jax.lax.optimization_barrier(product(transposed(x), gradient, x.dtype))
    return product(gradient, table, x.dtype), of_table.T


times_table.defvjp(_forward, _backward)
