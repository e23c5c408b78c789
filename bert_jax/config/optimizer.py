"""Settings of the optimizer."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bert_jax.config.settings import Settings

Positive = Annotated[float, Field(gt=0.0)]
Decay = Annotated[float, Field(ge=0.0, lt=1.0)]


class OptimizerConfig(Settings):
    """The optimizer and its learning rate. The defaults are those of BERT (the original's optimization.py)."""

    PREFIX: ClassVar[str] = "--optimizer."
    name: Literal["adamw", "lamb", "muon"] = "adamw"
    """How parameters move.

    - adamw: Adam with decoupled weight decay.
    - lamb: for batches of thousands (You et al. 2020): Adam's step, with each matrix's update scaled to that matrix's
      norm times the learning rate.
    - muon: each matrix of a block moves by the orthogonalized mean of its gradients, scaled to the size of Adam's steps
      (Jordan et al. 2024); all other parameters move by Adam."""
    peak_learning_rate: Positive = 1e-4
    """Learning rate (LR) at the last step of the warm-up; without a warm-up, at the first step."""
    warmup: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.01
    """Share of all steps over which the rate rises linearly to the peak. The first of n steps has 1/n of the peak; in
    the original it has 0. `schedule` determines the rate afterwards."""
    schedule: Literal["linear", "polynomial", "cosine", "warmup_stable_decay"] = "linear"
    """How the learning rate falls from the peak, at the end of the warm-up, to 0, at the end of the run.

    - linear: on a line. (The original's line begins at step 0, so its rate is lower by the share `warmup` of the peak
      or less.)
    - polynomial: the share of steps left, to the power `power`.
    - cosine: half a wave.
    - warmup_stable_decay: constant at the peak, then linear over `decay_share`."""
    power: Positive = 0.5
    """Exponent of the polynomial schedule. 1 is linear; less keeps the rate high for longer. Others ignore it."""
    decay_share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    """Share of all steps, at the end, over which warmup_stable_decay falls to 0. Other schedules ignore it."""
    beta1: Decay = 0.9
    """Decay of the running mean of the gradients."""
    beta2: Decay = 0.999
    """Decay of the running mean of the squared gradients."""
    epsilon: Positive = 1e-6
    """Added to the root of the second moment."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.01
    """Decoupled decay of every weight matrix and table; biases and LayerNorm are exempt."""
    bias_correction: bool = False
    """Adam's bias correction of the moments. BERT has none. LAMB has it as published (algorithm 2) and in the code that
    its paper names, but not in the code of ALBERT. Fine-tuning has it by default: without it the first steps are up to
    six times as large, and more fine-tunings of small sets fail (Zhang et al. 2021, arXiv:2006.05987)."""
    clip_norm: Positive = 1.0
    """Gradients are scaled down to this global norm."""

    def _conflicts(self) -> Iterator[str]:
        if self.schedule == "warmup_stable_decay" and self.warmup + self.decay_share > 1.0:
            yield (
                f"{self._current('warmup')} and {self._current('decay_share')} add up to more than 1, the whole run; "
                "lower one of them"
            )
