"""The stack of transformer blocks."""

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key, PyTree

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import AttentionForm, ExecutionConfig, Remat
from bert_jax.model.attention import INTERMEDIATES, SelfAttention, at_places
from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.dropout import head_keys, split, token_dropout
from bert_jax.model.kernels.elementwise import row_major
from bert_jax.model.linear import PRODUCT, LayerNorm, Linear, activation
from bert_jax.model.placement import split_by_rows
from bert_jax.model.positions import SCHEMES

UNTRAINED = ExecutionConfig(unroll=1)
"""Execution settings outside of training: a loop over blocks, which compiles fast."""
DECODER_BLOCKS = 2
"""Number of times that a mask decoder applies the last block."""


def blocks_at_once(execution: ExecutionConfig, blocks: int) -> int:
    """Blocks in one iteration of a loop over `blocks` blocks.

    Without `execution.unroll`, it is 1 with remat, where the loop bounds the memory, and otherwise all blocks. More
    blocks take longer to compile but make a step faster, because a loop copies what the backward pass needs into stacks
    and out of them.
    """
    return min(execution.unroll or (1 if execution.remat != "none" else blocks), blocks)


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, applied to each token; the activation is gated if `config`
    says so."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        config, activated = self.config, activation(self.config)
        if config.feedforward == "gated":
            both = Linear(config, (2, config.inner_size), bias=config.linear_biases, name="feedforward_gated")(x)
            inner, gate = (jnp.squeeze(half, -2) for half in jnp.split(both, 2, axis=-2))
            inner = activated(inner) * gate
        else:
            inner = activated(Linear(config, (config.inner_size,), bias=config.linear_biases, name="feedforward_in")(x))
        output = Linear(config, (config.hidden_size,), bias=config.linear_biases, into_sum=True, name="feedforward_out")
        return output(inner)


class BlockKeys(NamedTuple):
    """The keys of a block's three uses of dropout; with an axis in front, those of all blocks. None: no dropout."""

    probabilities: Key[Array, "*L B N H"] | None = None
    """Of attention's probabilities, for each head."""
    attended: Key[Array, "*L B N"] | None = None
    """Of attention's output."""
    output: Key[Array, "*L B N"] | None = None
    """Of the feed-forward's output."""

    @classmethod
    def of_blocks(cls, config: ModelConfig, keys: Key[Array, "B N"] | None) -> "BlockKeys":
        """The keys of all blocks, from those of the sequences. They are split for all blocks at once, because each
        split is a loop of its own to compile and to run."""
        if keys is None:
            return cls()
        of_attention, *of_tokens = split(split(keys, config.num_layers), 3)
        return cls(head_keys(of_attention, config.num_heads), *of_tokens)


class Block(nn.Module):
    """Attention and feed-forward, each with dropout, residual sum and normalisation.

    The norm follows the sum, as in BERT: norm(x + layer(x)) (Vaswani et al. 2017); with model.norm=pre the norm
    precedes the layer: x + layer(norm(x)) (Xiong et al. 2020), and one more norm follows the last block.
    """

    config: ModelConfig
    attention: AttentionForm = "auto"
    local: bool = False
    """Whether the block's attention is local."""
    first: bool = False
    """Whether this is the first block of a model whose first block has no norm before its attention."""

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        pattern: AttentionPattern,
        dropout_keys: BlockKeys,
        places: Int[Array, "B R"] | None = None,
        return_probabilities: bool = False,
        queries: Float[Array, "B R D"] | None = None,
    ) -> tuple[Float[Array, "B R D"], Float[Array, "B H R T"] | None]:
        """The block's output at `places` of each row (None: at all T), and its attention if requested. `queries` stand
        in place of the vectors of `x` at `places`; keys and values are always those of `x`."""
        config = self.config
        before = config.norm == "pre"
        attention_norm = LayerNorm(config, name="attention_norm")
        attention = SelfAttention(config, self.attention, self.local, name="attention")
        inputs = attention_norm(x) if before and not self.first else x
        # With model.norm=post, queries and residual stream have the same vectors. They are gathered once: XLA merges
        # the gradients of two gathers into one scatter, which adds to each place twice, on GPUs in any order.
        here = at_places(x, places) if queries is None else queries
        at_queries = here if inputs is x else at_places(inputs, places)
        attended, probabilities = attention(
            inputs, at_queries, pattern, dropout_keys.probabilities, places, return_probabilities
        )
        at_them = pattern.of_queries(places)
        dropout_places = at_them.queries.sequence, at_them.query_positions

        def summed(stream: Array, output: Array, keys: Key[Array, "B N"] | None, norm: LayerNorm) -> Array:
            total = row_major(stream + token_dropout(output, config.dropout, keys, *dropout_places))
            return total if before else norm(total)

        x = summed(here, attended, dropout_keys.attended, attention_norm)
        feedforward_norm = LayerNorm(config, name="feedforward_norm")
        feedforward = FeedForward(config, name="feedforward")
        nn.share_scope(self, feedforward)  # shares the block's scope, so that its parameters lie beside the attention's
        output = feedforward(feedforward_norm(x) if before else x)
        return summed(x, output, dropout_keys.output, feedforward_norm), probabilities


class Encoder(nn.Module):
    """`num_layers` blocks, their parameters stacked along a leading layer axis. Blocks that share their parameters have
    a stack of one. A scan computes all blocks but the last if it has several iterations (`blocks_at_once`); otherwise
    each block is computed by itself. Where blocks of local and of global attention alternate, one iteration of the scan
    computes a period of them.

    The last block is computed only at the places whose vectors are used (in pretraining, one token in six), unless the
    output or attention of all blocks is requested; then the scan computes it, too.
    """

    config: ModelConfig
    execution: ExecutionConfig = UNTRAINED
    frozen_layers: int | None = None
    """Number of blocks, from the first, that get no gradient; the encoder's input gets none either. None: all get
    one."""

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        pattern: AttentionPattern,
        dropout_keys: Key[Array, "B N"] | None,
        places: Int[Array, "B R"] | None = None,
        return_layers: bool = False,
        return_attention: bool = False,
        decoded: tuple[Int[Array, "B P"], Float[Array, "B P D"]] | None = None,
    ) -> tuple[Float[Array, "B Q D"], Float[Array, "L B T D"] | None, Float[Array, "L B H T T"] | None]:
        """The output at `places` of each row (None: at all T); on request, every block's output and attention.

        `decoded`: places, and the vectors of their positions. The mask decoder's output at these places then follows
        the output at `places` (Q = R + P), and no blocks' output or attention can be requested. The mask decoder
        applies the last block twice, both times with keys and values from that block's input. The first time, the
        queries are this input plus the vectors of positions; the second time, they are the first output (He et al.
        2021, section 3.2, as in the authors' code).

        If the collection INTERMEDIATES is mutable, the last block is computed at all tokens, and keeps `projected`."""
        config, count, keeps = self.config, self.config.num_layers, return_layers or return_attention
        if distances := SCHEMES[config.positions].distances:
            of_rows = distances(config, name="distances")(pattern.keys.sequence.shape[1])
            pattern = pattern._replace(
                distances=of_rows if self.frozen_layers is None else jax.lax.stop_gradient(of_rows)
            )
        blocks = _Blocks(config, self.execution, pattern, return_layers, return_attention)
        keys = BlockKeys.of_blocks(config, dropout_keys)
        frozen = min(self.frozen_layers or 0, count - 1)
        stretches = _stretches(config, {0, frozen, *range(count - blocks.alone, count)})
        stacks = _split_stack((self._parameters(x, pattern), keys), [stretch.stop for stretch in stretches[:-1]])
        x = split_by_rows(x)
        collected: list[PyTree] = []
        for stretch, stack in zip(stretches, stacks, strict=True):
            if stretch.start == frozen and self.frozen_layers is not None:
                x, collected = jax.lax.stop_gradient((x, collected))
            if len(stretch) > 1 or keeps:
                x, outputs = blocks.stretch(stretch, stack, x)
                collected.append(outputs)
            else:
                layer = jax.tree.map(lambda leaf: leaf[0], stack)
                is_last, inputs = stretch.stop == count, x
                keeps_projected = is_last and self.is_mutable_collection(INTERMEDIATES)
                at = places if is_last and not keeps_projected else None
                x, _, projected = blocks.block(stretch.start, layer, inputs, at, keeps_projected=keeps_projected)
                if keeps_projected:
                    self.sow(INTERMEDIATES, "projected", projected)
                    x = at_places(x, places)
                if decoded and is_last:
                    x = jnp.concatenate([x, blocks.decoded(layer, inputs, *decoded)], axis=1)
        if config.norm == "pre":
            x = LayerNorm(config, name="norm")(x)
        if self.frozen_layers == count:
            x, collected = jax.lax.stop_gradient((x, collected))
        if not keeps:
            return x, None, None
        outputs, attention = jax.tree.map(lambda *each: jnp.concatenate(each), *collected)
        if return_layers and config.norm == "pre":
            outputs = outputs.at[-1].set(x)  # the last block's output includes the norm after it
        return at_places(x, places), outputs, attention

    def _parameters(self, x: Float[Array, "B T D"], pattern: AttentionPattern) -> dict[str, PyTree]:
        """The parameters of all blocks, each array with a layer axis of `num_layers` rows in front."""
        config = self.config
        # Flax' `param` would compute the shapes of all blocks in every trace; `Block.apply` checks those of each block.
        params: dict[str, PyTree] | None = self.get_variable("params", "layers")
        if params is None:
            params = self.param("layers", _stacked(config), x, pattern)
        if (layers := max(leaf.shape[0] for leaf in jax.tree.leaves(params))) != config.stored_layers:
            raise ValueError(f"the parameters have {layers} layers, and the model has {config.stored_layers}")
        if config.shared_layers:
            return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (config.num_layers, *leaf.shape[1:])), params)
        if config.begins_without_norm and config.num_layers > 1:  # a row for the first block, which doesn't read it
            norm = jax.tree.map(lambda leaf: jnp.pad(leaf, [(1, 0), (0, 0)]), params["attention_norm"])
            return {**params, "attention_norm": norm}
        return params


class _Blocks(NamedTuple):
    """Computes blocks one after the other."""

    config: ModelConfig
    execution: ExecutionConfig
    pattern: AttentionPattern
    return_layers: bool
    return_attention: bool

    @property
    def looped(self) -> bool:
        """Whether the blocks before the last take several iterations of a loop. The last one is computed by itself."""
        others = self.config.num_layers - 1
        return blocks_at_once(self.execution, self.config.num_layers) < others

    @property
    def alone(self) -> int:
        """Number of blocks, counted from the last, that are computed outside of a loop: none if the outputs of all
        blocks are kept, because a loop stacks them; all if a loop would have one iteration; otherwise one, since the
        last block's output may be needed at some places only."""
        if self.return_layers or self.return_attention:
            return 0
        return 1 if self.looped else self.config.num_layers

    def block(
        self,
        number: int,
        layer: PyTree,
        x: Float[Array, "B T D"],
        places: Int[Array, "B R"] | None = None,
        queries: Float[Array, "B R D"] | None = None,
        keeps_projected: bool = False,
    ) -> tuple[Float[Array, "B R D"], Float[Array, "B H T T"] | None, tuple[Float[Array, "B T H K"], ...]]:
        """Computes block `number`, or another block of the same kind, with the parameters and dropout keys in `layer`.
        Returns the block's output and, if requested, its attention and its queries, keys and values."""
        block = Block(
            self.config,
            self.execution.attention,
            not self.config.is_global(number),
            number == 0 and self.config.begins_without_norm,
            parent=None,
        )

        def run(layer, x, places, queries):
            params, keys = layer
            mutable = [INTERMEDIATES] if keeps_projected else []
            (x, seen), kept = block.apply(
                {"params": params}, x, self.pattern, keys, places, self.return_attention, queries, mutable=mutable
            )
            return split_by_rows(x), seen, kept[INTERMEDIATES]["attention"]["projected"][0] if kept else ()

        return rematerialised(run, self.execution.remat, self.looped)(layer, x, places, queries)

    def decoded(
        self, layer: PyTree, x: Float[Array, "B T D"], places: Int[Array, "B P"], positions: Float[Array, "B P D"]
    ) -> Float[Array, "B P D"]:
        """The mask decoder's output at `places`: the last block applied twice (`Encoder`)."""
        params, keys = layer
        queries = at_places(x, places) + positions.astype(x.dtype)
        each = jax.tree.map(lambda key: split(key, DECODER_BLOCKS), keys)
        for number in range(DECODER_BLOCKS):
            own = jax.tree.map(operator.itemgetter(number), each)
            queries, *_ = self.block(self.config.num_layers - 1, (params, own), x, places, queries)
        return queries

    def stretch(self, stretch: range, stack: PyTree, x: Float[Array, "B T D"]) -> tuple[Float[Array, "B T D"], PyTree]:
        """Computes a stretch of blocks in a loop over `stack`, which holds their parameters and dropout keys. Returns
        the output of the last block and, if requested, the stacked outputs and attention of all.

        If local and global blocks alternate, an iteration computes one period of them.
        """
        period = min(self.config.global_every, len(stretch))

        def turn(x, group):
            collected = []
            for place in range(period):
                layer = jax.tree.map(operator.itemgetter(place), group) if period > 1 else group
                x, probabilities, _ = self.block(stretch.start + place, layer, x)
                collected.append((x if self.return_layers else None, probabilities))
            return x, jax.tree.map(lambda *each: jnp.stack(each), *collected) if period > 1 else collected[0]

        turns = len(stretch) // period
        turns_at_once = -(-blocks_at_once(self.execution, self.config.num_layers) // period)
        if period > 1:
            stack = jax.tree.map(lambda leaf: leaf.reshape(turns, period, *leaf.shape[1:]), stack)
        x, collected = jax.lax.scan(turn, x, stack, unroll=min(turns_at_once, turns))
        if period > 1:
            collected = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), collected)
        return x, collected


def _stretches(config: ModelConfig, begins: set[int]) -> list[range]:
    """Divides the blocks into stretches, each of which is one loop or a single block. `begins`: blocks at which a
    stretch has to begin. The blocks of a stretch are of one kind, or repeat in groups of `global_every`."""
    if config.begins_without_norm:
        begins = begins | {0, 1} - {config.num_layers}  # the first block is unlike all others
    for begin, end in itertools.pairwise([*sorted(begins), config.num_layers]):
        whole = (end - begin) // config.global_every * config.global_every
        begins |= set(range(begin + whole, end))
    return [range(*ends) for ends in itertools.pairwise([*sorted(begins), config.num_layers])]


def _split_stack(layers: PyTree, places: Sequence[int]) -> list[PyTree]:
    """The stack of blocks `layers`, cut before each of `places`. The gradient of a split joins the parts once; the
    gradient of slices would add up a whole stack for each part."""
    leaves, structure = jax.tree.flatten(layers)
    parts = zip(*(jnp.split(leaf, list(places)) for leaf in leaves), strict=True)
    return [jax.tree.unflatten(structure, each) for each in parts]


def _stacked(config: ModelConfig) -> Callable[..., PyTree]:
    """Initialiser of the stacked parameters of all blocks that have their own; each block has its own key.

    If the first block has no norm before its attention, the array of these norms has one row less.
    A model of one block has no such array, because checkpoints can't hold empty arrays.
    """
    block = Block(config, attention="exact", parent=None)  # a kernel can't be mapped over blocks

    def init(key, x, pattern):
        params = jax.vmap(lambda key: block.init(key, x, pattern, BlockKeys())["params"])(
            jax.random.split(key, config.stored_layers)
        )
        if config.begins_without_norm:
            norms = params.pop("attention_norm")
            if config.num_layers > 1:
                params["attention_norm"] = jax.tree.map(lambda leaf: leaf[1:], norms)
        return params

    return init


def rematerialised(run: Callable, remat: Remat, looped: bool) -> Callable:
    """`run` with the recomputation that `remat` names. Outside of loops, XLA must not merge the recomputation with the
    first computation, whose results would then stay in memory."""
    if remat == "none":
        return run
    policy = jax.checkpoint_policies.save_only_these_names(PRODUCT) if remat == "dots" else None
    return jax.checkpoint(run, prevent_cse=not looped, policy=policy)
