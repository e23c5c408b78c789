"""How parameters move."""

from typing import Annotated

from pydantic import Field

from bert_jax.config.settings import Settings

Positive = Annotated[float, Field(gt=0.0)]
Decay = Annotated[float, Field(ge=0.0, lt=1.0)]


class OptimizerConfig(Settings):
    """BERT's AdamW under a linear schedule (the original's optimization.py)."""

    peak_learning_rate: Positive = 1e-4
    """Learning rate at the end of the warm-up."""
    warmup: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.01
    """Share of all steps over which the rate rises from 0; afterwards it falls linearly to 0."""
    beta1: Decay = 0.9
    """Decay of the gradients' running mean."""
    beta2: Decay = 0.999
    """Decay of the squared gradients' running mean."""
    epsilon: Positive = 1e-6
    """Added to the root of the second moment."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.01
    """Decoupled decay of every weight matrix and table; biases and LayerNorm are exempt."""
    bias_correction: bool = False
    """Adam's correction of the moments in the first steps; BERT has none."""
    clip_norm: Positive = 1.0
    """Gradients are scaled down to this global norm."""
