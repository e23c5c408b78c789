"""Code that the attention kernels share: blocks of tokens, and which blocks share a sequence."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from bert_jax.model.kernels.platform import product_precision

LEAST = float(np.finfo(np.float32).min)
"""The score of a key that isn't admitted."""
LANES = 128
"""Width of a TPU's vector registers: the last axis of every block is a multiple of it."""


def block_product(first, second, contracted: tuple[int, int]):
    """A product of two matrices over these axes, summed in float32."""
    axes = ((contracted[0],), (contracted[1],)), ((), ())
    return jax.lax.dot_general(
        first, second, axes, precision=product_precision(first.dtype), preferred_element_type=jnp.float32
    )


class Bounds(NamedTuple):
    """The least and the greatest sequence and position in each block of some rows. Padding belongs to no sequence."""

    first: Int[Array, "B Q"]
    last: Int[Array, "B Q"]
    least: Int[Array, "B Q"]
    most: Int[Array, "B Q"]

    @classmethod
    def of(cls, places: Int[Array, "B 2 T"], tokens: int) -> "Bounds":
        """The bounds of blocks of `tokens` tokens."""
        blocks = places.reshape(*places.shape[:2], -1, tokens)
        sequence, position = blocks[:, 0], blocks[:, 1]
        nothing = np.iinfo(np.int32).max  # above the last sequence, so that blocks of padding share no sequence
        first = jnp.where(sequence > 0, sequence, nothing).min(axis=2)
        return cls(first, sequence.max(axis=2), position.min(axis=2), position.max(axis=2))


class Admission(NamedTuple):
    """Which keys a query attends to: the part of an `AttentionPattern` that is fixed when a kernel is compiled."""

    sequences: int
    """How many sequences a row may hold."""
    causal: bool
    window: int | None

    def admits(self, queries: tuple[Array, Array], keys: tuple[Array, Array]) -> Array:
        """Whether these queries attend to these keys, both given as (sequence, position)."""
        admitted = queries[0] == jnp.where(keys[0] > 0, keys[0], -1)
        if self.causal:
            admitted &= keys[1] <= queries[1]
        if self.window is not None:
            admitted &= jnp.abs(keys[1] - queries[1]) <= self.window
        return admitted

    def shared(self, queries: Bounds, keys: Bounds) -> Bool[Array, "B Q S"]:
        """Whether a query of one block may attend to a key of the other, by the bounds of both blocks."""
        queries, keys = Bounds(*(each[:, :, None] for each in queries)), Bounds(*(each[:, None] for each in keys))
        shared = (queries.first <= keys.last) & (keys.first <= queries.last)
        if self.causal:
            shared &= keys.least <= queries.most
        if self.window is not None:
            shared &= keys.least - queries.most <= self.window
            shared &= queries.least - keys.most <= self.window
        return shared


class TpuKernel(NamedTuple):
    """The static settings of a TPU kernel."""

    heads: int
    head_size: int
    rate: float
    """Rate of dropout; 0 for none."""
    admission: Admission

    @property
    def together(self) -> int:
        """Number of heads of a program: as many as fill the lanes."""
        return max(1, LANES // self.head_size)

    @property
    def lanes(self) -> list[slice]:
        """The lanes of each head of a program."""
        return [slice(at * self.head_size, (at + 1) * self.head_size) for at in range(self.together)]


def block_spans(shared: Bool[Array, "B Q S"]) -> tuple[Int[Array, "B Q"], Int[Array, "B Q"]]:
    """For each block, its span: the number of the first block that it is paired with in `shared`, and the number after
    the last one; the two are equal if there is none. The span contains all blocks of these pairs, in whatever order a
    row has its sequences."""
    begin = jnp.argmax(shared, axis=2)
    return begin, jnp.where(shared.any(axis=2), shared.shape[2] - jnp.argmax(shared[:, :, ::-1], axis=2), begin)
