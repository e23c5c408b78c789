"""Multi-head self-attention: the one function that attends, in all its forms."""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.model import cudnn_attention
from bert_jax.model.attention_pattern import AttentionPattern, Places
from bert_jax.model.dropout import dropout, of_tokens, split
from bert_jax.model.linear import Linear, compute_dtype, initial_weights, project
from bert_jax.model.long_rows import band, in_bands, in_strips, is_in_strips
from bert_jax.model.placement import BATCH_AXES, platform
from bert_jax.model.products import heads_first, inner_products, weighted_sums
from bert_jax.model.rotary import rotated
from bert_jax.system.errors import UsageError

AttentionForm = Literal["auto", "exact", "tpu", "cudnn", "interpreted"]
"""How attention is computed. All forms have the same result up to rounding and the order of sums.

`exact`: by einsum and softmax. `tpu`: by a kernel for TPUs; long rows by JAX's splash attention, which drops nothing.
`cudnn`: by cuDNN's kernel for NVIDIA GPUs, which drops nothing. `interpreted`, for tests: by the TPU kernels'
operations, on any backend. `auto`: by a TPU kernel where that can be had, else exactly."""


class SelfAttention(nn.Module):
    """softmax(Q K^T / sqrt(K)) V, heads side by side, then a projection (He and Xu 2020, section 5.2).

    Grabovoy's lecture (slide on B_L) has neither the scale 1 / sqrt(K) nor any bias; BERT's code, and this, has both.
    """

    config: ModelConfig
    form: AttentionForm = "auto"
    local: bool = False
    """Whether queries attend to the `local_window` alone."""

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B S D"],
        pattern: AttentionPattern,
        dropout_keys: Key[Array, "B N"] | None,
        wanted: Int[Array, "B R"] | None = None,
        return_probabilities: bool = False,
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B H T S"] | None]:
        """The output at the places `wanted` of each row (T = R), or at all of them (T = S).

        The probabilities, if asked for, are those before dropout.
        """
        config, dtype = self.config, compute_dtype(self.config)
        shape = (3, config.num_heads, config.head_size)
        kernel = self.param("kernel", initial_weights(config), (config.hidden_size, *shape))
        bias = self.param("bias", nn.initializers.zeros_init(), shape) if config.biases else None
        rate = 0.0 if dropout_keys is None else config.attention_dropout
        if self.local:
            pattern = pattern._replace(window=config.local_window)
        hindered = obstacle(self.form, config, x.shape[1], dropout=rate, sequences=pattern.sequences, local=self.local)
        # Most kernels are for all queries of a row; the probabilities of a few take little memory.
        by_kernel = not hindered and (wanted is None or _takes_some(self.form, x.shape[1], pattern))
        # Heads that are split over devices have to be the slowest of the features' axes; else the stored order is best.
        slowest = int(_shares_of_heads() > 1)
        if by_kernel and wanted is None:
            # Three products: the kernel reads whole arrays, and parts of one would be copied.
            biases = [None] * 3 if bias is None else bias
            query, key, value = (project(x, kernel[:, part], biases[part], dtype) for part in range(3))
        elif wanted is None:  # one product instead of two
            query, key, value = _parted(project(x, kernel, bias, dtype, slowest=slowest), 2 + slowest)
        else:
            of_query, of_others = (None, None) if bias is None else (bias[0], bias[1:])
            query = project(taken(x, wanted), kernel[:, 0], of_query, dtype)
            key, value = _parted(project(x, kernel[:, 1:], of_others, dtype, slowest=slowest), 2 + slowest)
        if config.positions == "rotary":
            base = config.local_rotary_base if self.local else config.rotary_base
            key = rotated(key, pattern.query_positions, base)
            query = rotated(query, pattern.of_queries(wanted).query_positions, base)
        pattern = pattern.of_queries(wanted)
        form = functools.partial(attend_by_kernel, self.form) if by_kernel else attend
        context = form(query, key, value, pattern, rate, dropout_keys)
        output = Linear(config, (config.hidden_size,), 2, config.biases, into_sum=True, name="output")(context)
        return output, attention_probabilities(query, key, pattern) if return_probabilities else None


def attend(
    query: Float[Array, "B T H K"],
    key: Float[Array, "B S H K"],
    value: Float[Array, "B S H K"],
    pattern: AttentionPattern,
    rate: float,
    dropout_keys: Key[Array, "B N"] | None,
) -> Float[Array, "B T H K"]:
    """The mean of `value` under each query's softmax over the keys that `pattern` admits, after dropout at `rate`.

    `dropout_keys`: one a sequence; None means no dropout. This is the exact form, with which any other has to agree.
    Long rows are computed in parts, so that memory grows with their length and not with its square.
    """
    if pattern.rows is None and (block := band(query.shape[1], pattern.window)):
        return in_bands(attend, query, key, value, pattern, rate, dropout_keys, block)
    if is_in_strips(query.shape[1], key.shape[1]):
        return in_strips(attend, query, key, value, pattern, rate, dropout_keys)
    probabilities = attention_probabilities(query, key, pattern)
    if dropout_keys is not None:
        probabilities = _dropout(probabilities, rate, head_keys(dropout_keys, query.shape[2]), pattern)
    return weighted_sums(probabilities.astype(value.dtype), heads_first(value), value.dtype).swapaxes(1, 2)


def _dropout(
    probabilities: Float[Array, "B H T S"], rate: float, keys: Key[Array, "B N H"], pattern: AttentionPattern
) -> Float[Array, "B H T S"]:
    """A probability's mask depends on the query's sequence, the head, and the positions of query and key."""
    rows = pattern.query_positions
    rows = None if rows is None else rows[:, None]
    if pattern.sequences == 1:
        return dropout(probabilities, rate, keys[:, 0], rows)
    of_queries = of_tokens(keys, pattern.queries.sequence).swapaxes(1, 2)
    return dropout(probabilities, rate, of_queries, rows, pattern.keys.position[:, None, None])


def attend_by_kernel(
    form: AttentionForm,
    query: Float[Array, "B T H K"],
    key: Float[Array, "B S H K"],
    value: Float[Array, "B S H K"],
    pattern: AttentionPattern,
    rate: float,
    dropout_keys: Key[Array, "B N"] | None,
) -> Float[Array, "B T H K"]:
    """The same as `attend`, by a kernel, on every device for its own rows and heads.

    For all queries of each row (T = S) or, where `_takes_some`, for some.
    """
    batch, length, heads, size = key.shape
    if form == "cudnn":
        return _attend_by_cudnn(query, key, value, pattern)
    if is_in_strips(length, length):
        return _attend_by_splash(query, key, value, pattern, interpreted=form == "interpreted")
    from bert_jax.model import tpu_attention  # imports Pallas, which takes a second

    if dropout_keys is None:
        rate, keys = 0.0, jnp.zeros((batch, pattern.sequences, heads, 2), jnp.uint32)
    else:
        keys = jax.random.key_data(head_keys(dropout_keys, heads))
    kernel = tpu_attention.Kernel(
        heads=heads // _shares_of_heads(),
        head_size=size,
        rate=rate,
        sequences=pattern.sequences,
        causal=pattern.causal,
        window=pattern.window,
        interpreted=form == "interpreted",
    )
    features, rows = P(BATCH_AXES, None, "tensor"), P(BATCH_AXES)
    attend_here = _on_every_device(
        functools.partial(tpu_attention.attend, kernel),
        (features, features, features, rows, P(BATCH_AXES, None, "tensor")),
        features,
    )
    places = jnp.stack([pattern.keys.sequence, pattern.keys.position], axis=1)
    flat = (each.reshape(batch, length, -1) for each in (query, key, value))
    return attend_here(*flat, places, keys).reshape(query.shape)


def _attend_by_cudnn(
    query: Float[Array, "B T H K"],
    key: Float[Array, "B T H K"],
    value: Float[Array, "B T H K"],
    pattern: AttentionPattern,
) -> Float[Array, "B T H K"]:
    """The same as `attend` without dropout, where a row holds one sequence."""
    heads = P(BATCH_AXES, None, "tensor", None)
    attend_here = _on_every_device(
        functools.partial(cudnn_attention.attend, causal=pattern.causal, window=pattern.window),
        (heads, heads, heads, P(BATCH_AXES)),
        heads,
    )
    return attend_here(query, key, value, jnp.sum(pattern.keys.sequence > 0, axis=1, dtype=jnp.int32))


def _takes_some(form: AttentionForm, length: int, pattern: AttentionPattern) -> bool:
    """Whether the kernel takes some queries of rows of `length` tokens alone: splash attention does, where all queries
    of a sequence attend to the same keys."""
    return form != "cudnn" and is_in_strips(length, length) and not pattern.causal and pattern.window is None


def _attend_by_splash(
    query: Float[Array, "B T H K"],
    key: Float[Array, "B S H K"],
    value: Float[Array, "B S H K"],
    pattern: AttentionPattern,
    interpreted: bool,
) -> Float[Array, "B T H K"]:
    """The same as `attend` without dropout, for long rows."""
    from bert_jax.model import splash_attention

    def attend_here(query: Array, key: Array, value: Array, queries: Places, keys: Places) -> Array:
        pattern_here = pattern._replace(queries=queries, keys=keys)
        return splash_attention.attend(query, key, value, pattern_here, interpreted)

    heads, rows = P(BATCH_AXES, None, "tensor", None), P(BATCH_AXES)
    on_every_device = _on_every_device(attend_here, (heads, heads, heads, rows, rows), heads)
    return on_every_device(query, key, value, pattern.queries, pattern.keys)


def _on_every_device(kernel: Callable[..., Array], arguments: tuple[P, ...], result: P) -> Callable[..., Array]:
    """`kernel` for the part that each device of the mesh in force has: XLA can't split a kernel by itself."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return kernel
    return jax.shard_map(kernel, mesh=mesh, in_specs=arguments, out_specs=result, check_vma=False)


def obstacle(
    form: AttentionForm, config: ModelConfig, length: int, *, dropout: float, sequences: int, local: bool
) -> str | None:
    """Why no kernel is used for rows of `length` tokens on the mesh in force; None where one is.

    `dropout`: the rate at which probabilities are dropped; 0 outside training. `sequences`: how many a row may hold.
    `local`: whether queries attend to the model's `local_window` alone.
    """
    if form == "exact":
        return "the exact form is asked for"
    if form == "cudnn":
        dtype, window = compute_dtype(config), config.local_window if local else None
        return cudnn_attention.obstacle(platform(), dtype, config.head_size, dropout, sequences, config.causal, window)
    if form != "interpreted" and platform() != "tpu":
        return f"this is a {platform().upper()}, and the kernel is for TPUs"
    from bert_jax.model import splash_attention, tpu_attention

    if is_in_strips(length, length):
        return splash_attention.obstacle(config.head_size, length, dropout)
    return tpu_attention.obstacle(config.num_heads // _shares_of_heads(), config.head_size, length)


def check_attention(
    execution: ExecutionConfig, config: ModelConfig, rows: Iterable[tuple[int, int]], mesh: Mesh
) -> None:
    """Raises UsageError where `execution.attention` names a kernel that can't be used for training on `rows`, each
    given as (tokens, sequences that it may hold)."""
    form = execution.attention
    if form in ("auto", "exact"):
        return
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        for length, sequences in rows:
            dropout = config.attention_dropout
            if why := obstacle(form, config, length, dropout=dropout, sequences=sequences, local=False):
                raise UsageError(f"execution.attention={form} can't be had: {why}; leave it at auto, or ask for exact")


def _shares_of_heads() -> int:
    """Devices of the mesh in force over which a layer's heads are split."""
    mesh = jax.sharding.get_abstract_mesh()
    return 1 if mesh.empty else mesh.shape["tensor"]


def head_keys(dropout_keys: Key[Array, "B N"], heads: int) -> Key[Array, "B N H"]:
    """The key of each head's dropout in each sequence: which of its probabilities are kept depends on it and their
    positions."""
    return jnp.moveaxis(split(dropout_keys, heads), 0, -1)


def attention_probabilities(
    query: Float[Array, "B T H K"], key: Float[Array, "B S H K"], pattern: AttentionPattern
) -> Float[Array, "B H T S"]:
    """Each query's softmax over the keys that `pattern` admits, in float32."""
    scores = inner_products(heads_first(query), heads_first(key), jnp.float32)
    return softmax_where(scores / math.sqrt(query.shape[-1]), pattern.admitted())


def softmax_where(scores: Float[Array, "B H T S"], admitted: Bool[Array, "B #T S"]) -> Float[Array, "B H T S"]:
    """The softmax over the keys that are admitted."""
    return jax.nn.softmax(jnp.where(admitted[:, None], scores, jnp.finfo(jnp.float32).min), axis=-1)


def taken(x: Float[Array, "B S D"], wanted: Int[Array, "B R"] | None) -> Float[Array, "B T D"]:
    """The vectors at the places `wanted` of each row; all where None."""
    return x if wanted is None else jnp.take_along_axis(x, wanted[:, :, None], axis=1)


def _parted(x: Float[Array, "B T _ _ K"], axis: int) -> list[Float[Array, "B T H K"]]:
    """The parts of `x` along `axis`. By split, whose gradient joins them once; that of indexing adds up wholes."""
    return [jnp.squeeze(part, axis) for part in jnp.split(x, x.shape[axis], axis)]
