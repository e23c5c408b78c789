"""Multi-head self-attention."""

import functools

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import AttentionForm
from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.exact_attention import attention_probabilities
from bert_jax.model.kernels.attention_form import AttentionCase, head_shards
from bert_jax.model.kernels.attention_forms import form_for
from bert_jax.model.kernels.platform import compute_dtype
from bert_jax.model.linear import Linear, initial_weights, project
from bert_jax.model.positions import SCHEMES

INTERMEDIATES = "intermediates"
"""Name of a Flax collection that a call fills only if it is mutable. The encoder stores `projected` there: a tuple
whose one item is the queries, keys and values of its last layer, [B, T, H, K] each, before rotary positions are
applied."""


class SelfAttention(nn.Module):
    """softmax(Q K^T / sqrt(K)) V, heads side by side, then a projection (Vaswani et al. 2017, section 3.2)."""

    config: ModelConfig
    form: AttentionForm = "auto"
    local: bool = False
    """Whether queries attend only to keys within `local_window`."""

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B S D"],
        at_queries: Float[Array, "B T D"],
        pattern: AttentionPattern,
        dropout_keys: Key[Array, "B N H"] | None,
        places: Int[Array, "B R"] | None = None,
        return_probabilities: bool = False,
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B H T S"] | None]:
        """The output at `places` of each row (T = R), or at every place (T = S). `at_queries`: the vectors that queries
        are computed from; those of `x` at `places`, except in a mask decoder. The probabilities, if requested, are
        those before dropout.

        If the pattern has a query stream, its vectors follow those of the row's tokens in `x`.
        """
        config, dtype = self.config, compute_dtype(self.config)
        shape = (3, config.num_heads, config.head_size)
        grouped = config.key_value_heads
        if not grouped:
            kernel = self.param("kernel", initial_weights(config), (config.hidden_size, *shape))
            bias = self.param("bias", nn.initializers.zeros_init(), shape) if config.attention_biases else None
        rate = 0.0 if dropout_keys is None else config.attention_dropout
        if self.local:
            pattern = pattern._replace(window=config.local_window)
        case = AttentionCase.of(config, x.shape[1], local=self.local, dropout=rate, sequences=pattern.sequences)
        form = form_for(self.form, case._replace(some_queries=places is not None))
        all_are_keys = places is None and not pattern.has_query_stream
        # Heads that are split over devices have to be the slowest axis of the features; otherwise the stored order is
        # best.
        slowest = int(head_shards() > 1)
        if grouped:
            of_heads, of_groups = (config.num_heads, config.head_size), (2, grouped, config.head_size)
            query = Linear(config, of_heads, bias=config.attention_biases, name="query")(at_queries)
            both = Linear(config, of_groups, bias=config.attention_biases, name="key_value")(x)
            key, value = (jnp.repeat(part, config.num_heads // grouped, axis=2) for part in _parted(both, 2))
        elif form.whole_arrays and all_are_keys:
            # Three products: the kernel reads whole arrays, and slices of one array would be copied.
            biases = [None] * 3 if bias is None else bias
            query, key, value = (project(x, kernel[:, part], biases[part], dtype) for part in range(3))
        elif all_are_keys:  # one product instead of two
            query, key, value = _parted(project(x, kernel, bias, dtype, slowest=slowest), 2 + slowest)
        else:
            of_query, of_others = (None, None) if bias is None else (bias[0], bias[1:])
            query = project(at_queries, kernel[:, 0], of_query, dtype)
            x = x[:, : pattern.keys.sequence.shape[1]]
            key, value = _parted(project(x, kernel[:, 1:], of_others, dtype, slowest=slowest), 2 + slowest)
        if all_are_keys:
            self.sow(INTERMEDIATES, "projected", (query, key, value))
        scheme, key_positions, length = SCHEMES[config.positions], pattern.query_positions, key.shape[1]
        pattern, terms = pattern.of_queries(places), None
        if scheme.turned:
            key = scheme.turned(config, self.local, key, key_positions, length)
            query = scheme.turned(config, self.local, query, pattern.query_positions, length)
        if scheme.score_terms:
            added = scheme.score_terms(config, name="positions")
            nn.share_scope(self, added)  # so that all parameters of attention lie beside each other
            of_two = None if bias is None else bias[:2]
            query, terms = added(query, key, pattern, lambda vectors: project(vectors, kernel[:, :2], of_two, dtype))
        attend = form.attend if terms is None else functools.partial(form.attend, terms=terms)
        context = attend(query, key, value, pattern, rate, dropout_keys)
        output = Linear(config, (config.hidden_size,), 2, config.attention_biases, into_sum=True, name="output")(
            context
        )
        return output, attention_probabilities(query, key, pattern, terms) if return_probabilities else None


def at_places(x: Float[Array, "B S D"], places: Int[Array, "B R"] | None) -> Float[Array, "B T D"]:
    """The vectors at `places` of each row; None means all places."""
    return x if places is None else jnp.take_along_axis(x, places[:, :, None], axis=1)


def _parted(x: Float[Array, "B T _ _ K"], axis: int) -> list[Float[Array, "B T H K"]]:
    """`x` split along `axis`. The gradient of a split joins the parts once; the gradient of indexing adds up whole
    arrays."""
    return [jnp.squeeze(part, axis) for part in jnp.split(x, x.shape[axis], axis)]
