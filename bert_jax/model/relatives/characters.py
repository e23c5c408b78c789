"""Vectors of pieces from their bytes: ELMo's convolution (Peters et al. 2018; Kim et al. 2016), in place of a word
table.

Further letters in shapes: C bytes of a piece, W width of a byte's vector, K bytes of a filter, N filters.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.layout import Tokens
from bert_jax.model.dropout import token_dropout
from bert_jax.model.embeddings import padded_vocabulary_size
from bert_jax.model.kernels.platform import compute_dtype
from bert_jax.model.kernels.products import rows_of
from bert_jax.model.linear import project
from bert_jax.model.placement import gathered

LONGEST_PIECE = 50
"""Bytes of a piece (C) with its marks; a longer piece is cut."""
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = range(257, 262)
"""The numbers of marks. Byte b is number b + 1, as in ELMo's release; 0 stands in a spelling that isn't known."""
_ROWS, LETTER_WIDTH = 262, 16
"""Rows and width (W) of the table of bytes and marks."""
_CARRY_BIAS = -2.0
"""Initial bias of the highways' gates, so that at first most of the input is passed on unchanged."""


class Spelling(nn.Module):
    """The numbers of the bytes and marks of each piece. They are a constant among the parameters, stored as float32
    like these; they get no gradient, and the optimizer leaves them as they are. Without a vocabulary all are 0, for
    unknown."""

    config: ModelConfig

    @nn.compact
    def __call__(self, ids: Int[Array, "B T"]) -> Int[Array, "B T C"]:
        shape = padded_vocabulary_size(self.config), LONGEST_PIECE
        numbers = jax.lax.stop_gradient(self.param("numbers", nn.initializers.zeros_init(), shape))
        return jnp.take(gathered(numbers), ids, axis=0).astype(jnp.int32)


class CharacterEmbeddings(nn.Module):
    """Convolutions over the vectors of a piece's bytes, the maximum over places, ReLU, highways and a projection, then
    dropout."""

    config: ModelConfig
    spelling: Spelling
    word = None
    """There is no word table."""

    @nn.compact
    def __call__(self, tokens: Tokens, dropout_keys: Key[Array, "B N"] | None) -> Float[Array, "B T E"]:
        """The vectors of B rows of T tokens."""
        config, dtype = self.config, compute_dtype(self.config)
        letters = rows_of(
            self.param("letters", _uniform(1.0), (_ROWS, LETTER_WIDTH)), self.spelling(tokens.ids)
        ).astype(dtype)
        found = []
        for width, count in enumerate(config.character_filters, start=1):
            kernel = self.param(f"convolution_{width}_kernel", _uniform(0.05), (width, LETTER_WIDTH, count))
            bias = self.param(f"convolution_{width}_bias", nn.initializers.zeros_init(), (count,))
            found.append(jax.checkpoint(_strongest)(letters, kernel, bias))
        x = nn.relu(jnp.concatenate(found, axis=-1))
        width = x.shape[-1]
        normal = nn.initializers.normal(1 / math.sqrt(width))
        if config.highways:
            kernels = self.param("highways_kernel", normal, (config.highways, 2, width, width))
            biases = self.param("highways_bias", _highway_biases, (config.highways, 2, width))
            for kernel, bias in zip(kernels, biases, strict=True):
                new, gate = (project(x, *each, dtype) for each in zip(kernel, bias, strict=True))
                gate = nn.sigmoid(gate)
                x = gate * nn.relu(new) + (1 - gate) * x
        kernel = self.param("projection_kernel", normal, (width, config.input_size))
        x = project(x, kernel, self.param("projection_bias", nn.initializers.zeros_init(), (config.input_size,)), dtype)
        position = None if tokens.begin.shape[1] == 1 else tokens.position
        return token_dropout(x, config.dropout, dropout_keys, tokens.sequence, position)


def _strongest(
    letters: Float[Array, "B T C W"], kernel: Float[Array, "K W N"], bias: Float[Array, " N"]
) -> Float[Array, "B T N"]:
    """The largest result of each filter over the places of a piece. Only the arguments are kept for the backward pass,
    since the results at all places take some 40 times their memory."""
    width, places = len(kernel), letters.shape[2] - len(kernel) + 1
    windows = jnp.stack([letters[:, :, begin : begin + places] for begin in range(width)], axis=3)
    return jnp.max(project(windows, kernel, bias, letters.dtype, contracted=2), axis=2)


def _uniform(bound: float) -> Callable[..., Array]:
    """Initialiser with values between -`bound` and `bound`, as in ELMo's release."""
    return lambda key, shape: jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def _highway_biases(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "n 2 N"]:
    return jnp.zeros(shape).at[:, 1].set(_CARRY_BIAS)
