"""A phase: a stretch of training on sequences of one length."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from bert_jax.config.model import RotaryBase
from bert_jax.config.settings import Settings
from bert_jax.config.units import Units


class Phase(Settings):
    """A number of steps on sequences of one length, in batches of one size."""

    steps: Annotated[int, Field(gt=0, lt=2**31)]
    """Optimizer steps."""
    length: Annotated[int, Field(ge=8, le=1 << 24)]
    """Tokens a sequence, special ones included (T)."""
    batch_size: Annotated[int, Field(gt=0, le=1 << 24)]
    """Sequences a step, over all devices (B); with data.packed rows, most of which hold several."""
    units: Units | None = None
    """What masking takes together in this phase. None: objective.units."""
    rotary_base: RotaryBase | None = None
    """Base of the rotary positions of global attention in this phase, for a shorter context before the one that
    model.rotary_base is made for. None: model.rotary_base."""

    def batch(self, packed: bool = False) -> str:
        """What a step takes, in words; `packed`: whether a row holds several sequences."""
        held = "rows, packed with sequences," if packed else "sequences"
        return f"{self.batch_size:,} {held} of up to {self.length:,} tokens"


def same_until(step: int, first: Sequence[Phase], second: Sequence[Phase]) -> bool:
    """Whether both plans have the same first `step` steps."""
    for one, other in zip(first, second):
        if step <= 0:
            break
        if one.replace(steps=1) != other.replace(steps=1):
            return False
        if one.steps != other.steps and min(one.steps, other.steps) < step:
            return False
        step -= one.steps
    else:
        return step <= 0
    return True
