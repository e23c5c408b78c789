"""What a TPU's attention kernel is compiled for, and what its programs have in common."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

LANES = 128
"""Width of a TPU's vector registers: the last axis of every block is a multiple of it."""
LEAST = float(np.finfo(np.float32).min)
"""The score of a key that isn't admitted."""


class Kernel(NamedTuple):
    """What a kernel is compiled for."""

    heads: int
    head_size: int
    rate: float
    """Of dropout; 0 for none."""
    sequences: int
    """How many sequences a row may hold."""
    causal: bool
    window: int | None

    @property
    def together(self) -> int:
        """Heads of a program: as many as fill the lanes."""
        return max(1, LANES // self.head_size)

    @property
    def lanes(self) -> list[slice]:
        """The lanes of each head of a program."""
        return [slice(at * self.head_size, (at + 1) * self.head_size) for at in range(self.together)]


def product(first, second, contracted: tuple[int, int]):
    """A product of two matrices over these axes, summed in float32."""
    axes = ((contracted[0],), (contracted[1],)), ((), ())
    return jax.lax.dot_general(first, second, axes, preferred_element_type=jnp.float32)
