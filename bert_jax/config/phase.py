"""A phase: a stretch of training on sequences of one length."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from bert_jax.config.language import Languages
from bert_jax.config.model import RotaryBase
from bert_jax.config.objective import Units
from bert_jax.config.settings import Settings

Length = Annotated[int, Field(ge=8, le=1 << 24)]
BatchSize = Annotated[int, Field(gt=0, le=1 << 24)]


class Phase(Settings):
    """Training for a number of steps on sequences of one length, in batches of one size."""

    steps: Annotated[int, Field(gt=0, lt=2**31)]
    """Optimizer steps."""
    length: Length
    """Tokens of a row, special ones included (T)."""
    batch_size: BatchSize
    """Rows per step, over all devices (B): a sequence each, or several with data.packed and in fine-tuning."""
    units: Units | None = None
    """Unit of masking in this phase. None: objective.units."""
    rotary_base: RotaryBase | None = None
    """Base of the rotary positions of global attention in this phase, for phases with shorter rows than those
    that model.rotary_base is meant for. None: model.rotary_base."""
    smoothing: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """data.smoothing in this phase, for shares that are annealed from phase to phase. None: data.smoothing."""
    languages: Languages | None = None
    """Languages whose sources this phase draws from, so that others can join in a later phase. None: all."""

    def batch(self, packed: bool) -> str:
        """The rows of a step and their length, in words. `packed`: whether a row holds several sequences."""
        held = "rows, packed with sequences," if packed else "sequences"
        return f"{self.batch_size:,} {held} of up to {self.length:,} tokens"


def same_until(step: int, first: Sequence[Phase], second: Sequence[Phase]) -> bool:
    """Whether the first `step` steps of two plans are the same."""
    return _first_steps(step, first) == _first_steps(step, second)


def _first_steps(count: int, phases: Sequence[Phase]) -> list[Phase]:
    begun = []
    for phase in phases:
        if count > 0:
            begun.append(phase.replace(steps=min(count, phase.steps)))
        count -= phase.steps
    return begun
