"""What a TPU's attention kernel is compiled for, and what its programs have in common."""

from typing import NamedTuple

from bert_jax.model.attention_blocks import Admission

LANES = 128
"""Width of a TPU's vector registers: the last axis of every block is a multiple of it."""


class Kernel(NamedTuple):
    """What a kernel is compiled for."""

    heads: int
    head_size: int
    rate: float
    """Of dropout; 0 for none."""
    admission: Admission

    @property
    def together(self) -> int:
        """Heads of a program: as many as fill the lanes."""
        return max(1, LANES // self.head_size)

    @property
    def lanes(self) -> list[slice]:
        """The lanes of each head of a program."""
        return [slice(at * self.head_size, (at + 1) * self.head_size) for at in range(self.together)]
