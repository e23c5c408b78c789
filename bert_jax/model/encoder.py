"""The stack of transformer blocks."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.model.attention import SelfAttention, admitted
from bert_jax.model.dropout import dropout, split
from bert_jax.model.linear import LayerNorm, Linear, activation
from bert_jax.model.placement import split_by_rows

Remat = Literal["none", "full", "dots"]
"""What the backward pass computes again: nothing, whole blocks, or all but the matrix products."""


class Block(nn.Module):
    """Attention and feed-forward, each followed by dropout, residual sum and LayerNorm (He and Xu 2020, section 5).

    The lecture of Grabovoy (slides on B_L) leaves out the residual round the attention, and all biases and dropout;
    BERT's code, and this, has them.
    """

    config: ModelConfig

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        mask: Bool[Array, "B T"],
        dropout_keys: Key[Array, " B"] | None,
        read: Int[Array, "B R"] | None = None,
        return_probabilities: bool = False,
    ) -> tuple[Float[Array, "B R D"], Float[Array, "B H R T"] | None]:
        """The block's output at the positions `read`, or at all T of them, and its attention if asked for."""
        config = self.config
        keys = [None] * 3 if dropout_keys is None else split(dropout_keys, 3)
        queries = x if read is None else jnp.take_along_axis(x, read[:, :, None], axis=1)
        attended, probabilities = SelfAttention(config, name="attention")(
            queries, x, admitted(config, mask, read), keys[0], return_probabilities
        )
        x = LayerNorm(config, name="attention_norm")(queries + dropout(attended, config.dropout, keys[1]))
        inner = activation(config)(Linear(config, (config.inner_size,), name="feedforward_in")(x))
        output = Linear(config, (config.hidden_size,), name="feedforward_out")(inner)
        return LayerNorm(config, name="feedforward_norm")(x + dropout(output, config.dropout, keys[2])), probabilities


class Encoder(nn.Module):
    """`num_layers` blocks, their parameters stacked along a leading layer axis; all but the last under one scan.

    The last block is computed only where something is read: in pretraining, one token in six.
    """

    config: ModelConfig
    remat: Remat = "none"
    unroll: int = 1
    """Blocks in one turn of the loop. A larger number takes longer to compile and, on a CPU, makes each step faster."""
    frozen_layers: int | None = None
    """No gradient goes back into so many blocks, from the first on, nor beyond them; None: into all."""

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        mask: Bool[Array, "B T"],
        dropout_keys: Key[Array, " B"] | None,
        read: Int[Array, "B R"] | None = None,
        return_layers: bool = False,
        return_attention: bool = False,
    ) -> tuple[Float[Array, "B R D"], Float[Array, "L B T D"] | None, Float[Array, "L B H T T"] | None]:
        """The output at the positions `read` (all T where None); if asked for, every block's output and attention."""
        count = self.config.num_layers
        block = Block(self.config, parent=None)
        keys = None if dropout_keys is None else split(dropout_keys, count)
        layers = (self.param("layers", _stacked(block, count), x, mask), keys)

        def run(layer, x, read=None):
            params, keys = layer
            x, probabilities = block.apply({"params": params}, x, mask, keys, read, return_attention)
            return split_by_rows(x), probabilities

        run = _rematerialised(run, self.remat)

        def turn(x, layer):
            x, probabilities = run(layer, x)
            return x, (x if return_layers else None, probabilities)

        def scan(x, begin, end):
            some = jax.tree.map(lambda leaf: leaf[begin:end], layers)
            return jax.lax.scan(turn, x, some, unroll=min(self.unroll, max(end - begin, 1)))

        x = split_by_rows(x)
        if return_layers or return_attention:
            x, (outputs, attention) = scan(x, 0, count)
            return x, outputs, attention
        frozen = min(self.frozen_layers or 0, count - 1)
        if frozen:
            x, _ = scan(x, 0, frozen)
        if self.frozen_layers is not None:
            x = jax.lax.stop_gradient(x)
        x, _ = scan(x, frozen, count - 1)
        x, _ = run(jax.tree.map(lambda leaf: leaf[-1], layers), x, read)
        return (jax.lax.stop_gradient(x) if self.frozen_layers == count else x), None, None


def _stacked(block: Block, count: int) -> Callable[..., Any]:
    """An initialiser of the parameters of `count` blocks, each from a key of its own."""

    def init(key, x, mask):
        return jax.vmap(lambda key: block.init(key, x, mask, None)["params"])(jax.random.split(key, count))

    return init


def _rematerialised(run: Callable, remat: Remat) -> Callable:
    if remat == "none":
        return run
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable if remat == "dots" else None
    return jax.checkpoint(run, prevent_cse=False, policy=policy)
