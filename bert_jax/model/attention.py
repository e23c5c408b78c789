"""Multi-head self-attention."""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.model.dropout import dropout
from bert_jax.model.linear import Linear, initial_weights, project


class SelfAttention(nn.Module):
    """softmax(Q K^T / sqrt(K)) V, heads side by side, then a projection (He and Xu 2020, section 5.2).

    Grabovoy's lecture (slide on B_L) has neither the scale 1 / sqrt(K) nor any bias; BERT's code, and this, has both.
    """

    config: ModelConfig

    @nn.compact
    def __call__(
        self,
        queries: Float[Array, "B T D"],
        x: Float[Array, "B S D"],
        mask: Bool[Array, "B #T S"],
        dropout_keys: Key[Array, " B"] | None,
        return_probabilities: bool,
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B H T S"] | None]:
        """Each of `queries` attends to what of `x` its row of `mask` (or the one row there is for all) admits.

        The probabilities are those before dropout.
        """
        config = self.config
        shape = (3, config.num_heads, config.head_size)
        kernel = self.param("kernel", initial_weights(config), (config.hidden_size, *shape))
        bias = self.param("bias", nn.initializers.zeros_init(), shape)
        # Heads are the slowest of the features' axes, since they are what may be split over devices.
        if queries is x:  # one product instead of two
            query, key, value = _parted(project(x, kernel, bias, config, slowest=1))
        else:
            query = project(queries, kernel[:, 0], bias[0], config)
            key, value = _parted(project(x, kernel[:, 1:], bias[1:], config, slowest=1))
        rate = config.attention_dropout if dropout_keys is not None else 0.0
        if rate or return_probabilities:
            probabilities = attention_probabilities(query, key, mask)
            dropped = dropout(probabilities, rate, dropout_keys).astype(value.dtype)
            context = jnp.einsum("BHTS,BSHK->BTHK", dropped, value)
        else:
            probabilities = None
            context = jax.nn.dot_product_attention(query, key, value, mask=mask[:, None])
        output = Linear(config, (config.hidden_size,), contracted=2, name="output")(context)
        return output, probabilities if return_probabilities else None


def _parted(x: Float[Array, "B T H N K"]) -> list[Float[Array, "B T H K"]]:
    """The N parts of `x`. By split, whose gradient puts the parts together once; that of indexing adds up N wholes."""
    return [jnp.squeeze(part, 3) for part in jnp.split(x, x.shape[3], axis=3)]


def admitted(config: ModelConfig, mask: Bool[Array, "B S"], read: Int[Array, "B T"] | None) -> Bool[Array, "B #T S"]:
    """What each query may attend to: tokens where `mask` is True and, in a causal model, none that comes after it.

    `read` says where the queries stand, None that they are all tokens. A model that sees both sides has one row for
    all queries.
    """
    if not config.causal:
        return mask[:, None]
    places = jnp.arange(mask.shape[1])
    return mask[:, None] & (places <= (places if read is None else read)[..., None])


def attention_probabilities(
    query: Float[Array, "B T H K"], key: Float[Array, "B S H K"], mask: Bool[Array, "B #T S"]
) -> Float[Array, "B H T S"]:
    """The softmax over the keys that `mask` admits, in float32."""
    scores = jnp.einsum("BTHK,BSHK->BHTS", query, key, preferred_element_type=jnp.float32)
    return softmax_where(scores / math.sqrt(query.shape[-1]), mask)


def softmax_where(scores: Float[Array, "B H T S"], mask: Bool[Array, "B #T S"]) -> Float[Array, "B H T S"]:
    """Over the keys that `mask` admits."""
    return jax.nn.softmax(jnp.where(mask[:, None], scores, jnp.finfo(jnp.float32).min), axis=-1)
