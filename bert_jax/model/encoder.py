"""The stack of transformer blocks."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.model.attention import AttentionForm, AttentionPattern, SelfAttention, taken
from bert_jax.model.dropout import split, token_dropout
from bert_jax.model.linear import PRODUCT, LayerNorm, Linear, activation
from bert_jax.model.placement import split_by_rows

Remat = Literal["none", "full", "dots"]
"""What the backward pass recomputes: nothing, whole blocks, or everything but matrix products."""


class PostNorm(NamedTuple):
    """A layer whose sum with its input is normalised, as in BERT: norm(x + layer(x)) (Vaswani et al. 2017)."""

    norm: Callable[[Array], Array]

    def before(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """Returns the input of the layer."""
        return x

    def after(self, x: Float[Array, "B T D"], output: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """Combines `x` and the layer's output."""
        return self.norm(x + output)


class PreNorm(NamedTuple):
    """A layer whose input is normalised: x + layer(norm(x)) (Xiong et al. 2020). One more follows the last block."""

    norm: Callable[[Array], Array]

    def before(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """Returns the input of the layer."""
        return self.norm(x)

    def after(self, x: Float[Array, "B T D"], output: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """Combines `x` and the layer's output."""
        return x + output


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, at each token by itself."""

    config: ModelConfig
    bias: bool = True

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        config = self.config
        inner = Linear(config, (config.inner_size,), bias=self.bias, name="feedforward_in")(x)
        return Linear(config, (config.hidden_size,), bias=self.bias, name="feedforward_out")(activation(config)(inner))


class Block(nn.Module):
    """Attention and feed-forward, each with dropout, residual sum and normalisation (He and Xu 2020, section 5).

    The lecture of Grabovoy (slides on B_L) leaves out the residual round the attention, and all biases and dropout;
    BERT's code, and this, has them.
    """

    config: ModelConfig
    norm: type[nn.Module] = LayerNorm
    residual: type[PostNorm] | type[PreNorm] = PostNorm
    feedforward: type[nn.Module] = FeedForward
    bias: bool = True
    """Whether the linear layers have biases."""
    attention: AttentionForm = "auto"

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        pattern: AttentionPattern,
        dropout_keys: Key[Array, "B N"] | None,
        wanted: Int[Array, "B R"] | None = None,
        return_probabilities: bool = False,
    ) -> tuple[Float[Array, "B R D"], Float[Array, "B H R T"] | None]:
        """The block's output at the places `wanted`, or at all T of them, and its attention if asked for."""
        config = self.config
        keys = [None] * 3 if dropout_keys is None else split(dropout_keys, 3)
        residual = self.residual(self.norm(config, name="attention_norm"))
        attention = SelfAttention(config, self.bias, self.attention, name="attention")
        attended, probabilities = attention(residual.before(x), pattern, keys[0], wanted, return_probabilities)
        queries = pattern.of_queries(wanted)
        places = queries.queries.sequence, queries.query_positions
        x = residual.after(taken(x, wanted), token_dropout(attended, config.dropout, keys[1], *places))
        residual = self.residual(self.norm(config, name="feedforward_norm"))
        feedforward = self.feedforward(config, self.bias, name="feedforward")
        nn.share_scope(self, feedforward)  # its parameters are the block's, beside the attention's
        output = feedforward(residual.before(x))
        return residual.after(x, token_dropout(output, config.dropout, keys[2], *places)), probabilities


class Encoder(nn.Module):
    """`num_layers` blocks, their parameters stacked along a leading layer axis; all but the last under one scan. Blocks
    that share their parameters have a stack of one.

    The last block is computed only at the places whose vectors are wanted: in pretraining, one token in six.
    """

    config: ModelConfig
    remat: Remat = "none"
    unroll: int | None = 1
    """Blocks in one turn of the loop. None is one with `remat`, where the loop bounds the memory, and all blocks
    otherwise. More take longer to compile and make each step faster: a loop copies what it keeps for the backward pass
    into stacks and out of them."""
    attention: AttentionForm = "auto"
    frozen_layers: int | None = None
    """The number of blocks, from the first on, that get no gradient; nothing below them gets one. None: all get one."""

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        pattern: AttentionPattern,
        dropout_keys: Key[Array, "B N"] | None,
        wanted: Int[Array, "B R"] | None = None,
        return_layers: bool = False,
        return_attention: bool = False,
    ) -> tuple[Float[Array, "B R D"], Float[Array, "L B T D"] | None, Float[Array, "L B H T T"] | None]:
        """The output at the places `wanted` (at all T where None); if asked for, every block's output and attention."""
        count = self.config.num_layers
        at_once = self.unroll
        if at_once is None:
            at_once = 1 if self.remat != "none" else count
        block = Block(self.config, attention=self.attention, parent=None)
        keys = None if dropout_keys is None else split(dropout_keys, count)
        params = self.param("layers", _stacked(self.config), x, pattern)
        if self.config.shared_layers:
            params = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape[1:])), params)
        layers = (params, keys)

        def run(layer, x, wanted=None):
            params, keys = layer
            x, probabilities = block.apply({"params": params}, x, pattern, keys, wanted, return_attention)
            return split_by_rows(x), probabilities

        run = _rematerialised(run, self.remat, in_a_loop=at_once < count - 1)

        def turn(x, layer):
            x, probabilities = run(layer, x)
            return x, (x if return_layers else None, probabilities)

        def scan(x, stack, length):
            return jax.lax.scan(turn, x, stack, unroll=min(at_once, length))

        x = split_by_rows(x)
        if return_layers or return_attention:
            x, (outputs, attention) = scan(x, layers, count)
            return x, outputs, attention
        frozen = min(self.frozen_layers or 0, count - 1)
        begins = range(count) if at_once >= count - 1 else sorted({0, frozen, count - 1})
        ends = (*begins[1:], count)
        for begin, end, stack in zip(begins, ends, _apart(layers, ends[:-1])):
            if begin == frozen and self.frozen_layers is not None:
                x = jax.lax.stop_gradient(x)
            if end - begin > 1:
                x, _ = scan(x, stack, end - begin)
            else:
                layer = jax.tree.map(lambda leaf: leaf[0], stack)
                x, _ = run(layer, x, wanted if end == count else None)
        return (jax.lax.stop_gradient(x) if self.frozen_layers == count else x), None, None


def _apart(layers: Any, places: Sequence[int]) -> list[Any]:
    """The stack of blocks `layers`, cut before each of `places`. The gradient of split joins the parts once, where that
    of slices would add up one whole stack for each part."""
    leaves, structure = jax.tree.flatten(layers)
    return [jax.tree.unflatten(structure, parts) for parts in zip(*(jnp.split(leaf, list(places)) for leaf in leaves))]


def _stacked(config: ModelConfig) -> Callable[..., Any]:
    """Initialiser of the stacked parameters of all blocks that have their own, each from its own key."""
    block = Block(config, attention="exact", parent=None)  # the call of cuDNN can't be mapped over blocks

    def init(key, x, pattern):
        return jax.vmap(lambda key: block.init(key, x, pattern, None)["params"])(
            jax.random.split(key, config.stored_layers)
        )

    return init


def _rematerialised(run: Callable, remat: Remat, in_a_loop: bool) -> Callable:
    """`run` that computes again in the backward pass what `remat` says. Outside of loops XLA is kept from merging that
    with the first computation, which would keep its result in memory."""
    if remat == "none":
        return run
    policy = jax.checkpoint_policies.save_only_these_names(PRODUCT) if remat == "dots" else None
    return jax.checkpoint(run, prevent_cse=not in_a_loop, policy=policy)
