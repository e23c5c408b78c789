"""One stretch of training at one length."""

from typing import Annotated

from pydantic import Field

from bert_jax.config.settings import Settings


class Phase(Settings):
    """So many steps on sequences of one length, in batches of one size."""

    steps: Annotated[int, Field(gt=0)]
    """Optimizer steps."""
    length: Annotated[int, Field(ge=8)]
    """Tokens a sequence, special ones included (T)."""
    batch_size: Annotated[int, Field(gt=0)]
    """Sequences a step, over all devices (B)."""
