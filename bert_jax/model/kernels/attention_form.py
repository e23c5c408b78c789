"""The interface of attention's implementations (forms), and what decides which of them can be used."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array

from bert_jax.config.model import ModelConfig
from bert_jax.model.kernels.platform import compute_dtype, platform
from bert_jax.model.positions import SCHEMES


class AttentionCase(NamedTuple):
    """One use of attention in a model: everything that decides which forms can compute it."""

    platform: str
    """Kind of the devices: `cpu`, `gpu` or `tpu`."""
    dtype: jnp.dtype
    """Type of queries, keys and values."""
    heads: int
    """Number of heads on each device."""
    head_size: int
    length: int
    """Tokens of a row, including padding; all are keys."""
    dropout: float
    """The rate at which probabilities are dropped; 0 outside training."""
    sequences: int
    """How many sequences a row may hold."""
    causal: bool
    """Whether a query attends only to positions up to its own."""
    window: int | None
    """Largest distance between a query and a key that it attends to; None means no limit."""
    some_queries: bool = False
    """Whether only some tokens of a row are queries."""
    has_score_terms: bool = False
    """Whether terms of distances and segments are added to the scores."""

    @classmethod
    def of(cls, config: ModelConfig, length: int, *, local: bool, **fields: Any) -> "AttentionCase":
        """Attention in a layer of `config`, `local` or global, on the mesh in force. `fields`: the other fields."""
        return cls(
            platform=platform(),
            dtype=compute_dtype(config),
            heads=config.num_heads // head_shards(),
            head_size=config.head_size,
            length=length,
            causal=config.causal,
            window=config.local_window if local else None,
            has_score_terms=SCHEMES[config.positions].score_terms is not None,
            **fields,
        )


class Form(NamedTuple):
    """A way to compute attention. All forms have the same result up to rounding and the order of sums."""

    name: str
    obstacle: Callable[[AttentionCase], str | None]
    """Why this form can't be used for a case; None if it can."""
    attend: Callable[..., Array]
    """(query, key, value, pattern, rate, dropout_keys) -> context: see `exact_attention`."""
    whole_arrays: bool = False
    """Whether the form is faster with queries, keys and values as three separate arrays than as slices of one."""
    probabilities: Callable[[int, int | None], tuple[int, int]] = lambda length, window: (0, 0)
    """(length, window) -> number of probabilities in memory for each query and head: those kept for the backward pass,
    and those held while a row is computed. Both are 0 for kernels, whose probabilities never leave the chip."""


def head_shards() -> int:
    """Number of parts into which the mesh in force splits a layer's heads."""
    mesh = jax.sharding.get_abstract_mesh()
    return 1 if mesh.empty else mesh.shape["tensor"]


def on_every_device(kernel: Callable[..., Array], arguments: tuple[P, ...], result: P) -> Callable[..., Array]:
    """`kernel` applied on each device of the mesh in force to the device's part of the arrays: XLA can't split a kernel
    by itself."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return kernel
    return jax.shard_map(kernel, mesh=mesh, in_specs=arguments, out_specs=result, check_vma=False)
