"""Settings that pretraining and fine-tuning share: the optimizer, the phases, and the training as a whole."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bert_jax.config.language import Languages
from bert_jax.config.model import ModelConfig, RotaryBase
from bert_jax.config.objective import Units
from bert_jax.config.operation import (
    CheckpointConfig,
    EvaluationConfig,
    ExecutionConfig,
    HostsConfig,
    LoggingConfig,
    MeshConfig,
)
from bert_jax.config.settings import Settings

Length = Annotated[int, Field(ge=8, le=1 << 24)]
BatchSize = Annotated[int, Field(gt=0, le=1 << 24)]
Positive = Annotated[float, Field(gt=0.0)]
Decay = Annotated[float, Field(ge=0.0, lt=1.0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
_LOG_EVERY, _LINES = 100, 20
"""Default number of steps between lines of the log; number of lines that shorter runs get instead."""


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

    - linear: on a line. (The original's line falls from step 0 on, so its rate is lower, by at most the share `warmup`
      of the peak.)
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
    6.6 times as large, and more fine-tunings of small sets fail (Zhang et al. 2021, arXiv:2006.05987)."""
    clip_norm: Positive = 1.0
    """Maximum global norm of the gradients; larger ones are scaled down to it."""

    def _conflicts(self) -> Iterator[str]:
        if self.schedule == "warmup_stable_decay" and self.warmup + self.decay_share > 1.0:
            yield (
                f"{self._current('warmup')} and {self._current('decay_share')} add up to more than 1, the whole run; "
                "lower one of them"
            )


TrainedPart = Literal["all", "head", "words", "blocks"]
"""Which parameters a phase trains."""


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
    trains: TrainedPart = "all"
    """Parameters that this phase trains; the others are frozen.

    - all: every parameter.
    - head: the heads alone.
    - words: the heads, and the tables over the vocabulary.
    - blocks: all but the tables over the vocabulary."""
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


class OperationConfig(Settings):
    """How a training is carried out. These settings may change whenever a run is continued."""

    PREFIX: ClassVar[str] = "--"
    mesh: MeshConfig = MeshConfig()
    hosts: HostsConfig = HostsConfig()
    execution: ExecutionConfig = ExecutionConfig()
    logging: LoggingConfig = LoggingConfig()
    profile_steps: Annotated[str, Field(pattern=r"^[1-9]\d*:[1-9]\d*$", examples=["100:110"])] | None = None
    """A:B writes a trace of steps A to B, both included, to the run's profile/, for TensorBoard or Perfetto."""

    @property
    def batch_sizes(self) -> dict[str, int]:
        """The settings, by name, that accumulation must divide."""
        return {}

    def _conflicts(self) -> Iterator[str]:
        for name, size in self.batch_sizes.items():
            if size % self.execution.accumulation:
                yield (
                    f"{self._flag(name, size)} is not a multiple of {self._current('execution.accumulation')}; change "
                    "one of them"
                )

    @property
    def profiled(self) -> range:
        """The steps of `profile_steps`, counted from 1; empty if None."""
        first, _, last = (self.profile_steps or "1:0").partition(":")
        return range(int(first), int(last) + 1)


class TrainingConfig(OperationConfig):
    """The settings of one training, with every phase planned: the input of the training loop.

    A continued run may change all settings except those in `IDENTITY` and in `compared_from_start`.
    """

    IDENTITY: ClassVar[tuple[str, ...]] = ("model", "optimizer", "phases", "init", "seed")
    TRAINED: ClassVar[str]
    """How the model of such a run was trained: "pretrained" or "fine-tuned"."""
    BASELINE: ClassVar[str]
    """The prediction without a model that results are compared with, in words."""

    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    phases: Annotated[tuple[Phase, ...], Field(min_length=1)]
    """Phases of training, one after the other."""
    init: str | None = None
    """A run, a checkpoint or a Hugging Face directory whose parameters this training starts from."""
    seed: Seed = 0
    """Seed of everything random: initial parameters, instances, order, masks, dropout."""
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoints: CheckpointConfig = CheckpointConfig()

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of the phases' sequences, each once, in the order of the phases."""
        return tuple(dict.fromkeys(phase.length for phase in self.phases))

    @property
    def batch_sizes(self) -> dict[str, int]:
        """The settings, by name, that accumulation must divide."""
        return {f"phases.{number}.batch_size": phase.batch_size for number, phase in enumerate(self.phases)}

    def ids_shape(self, phase: int) -> tuple[int, ...]:
        """The shape [B, T] of the token ids in a step of phase number `phase`."""
        return self.phases[phase].batch_size, self.phases[phase].length

    def _conflicts(self) -> Iterator[str]:
        yield from super()._conflicts()
        for number, phase in enumerate(self.phases):
            if self.longest(number) > self.model.max_positions:
                yield (
                    f"{self._flag(f'phases.{number}.length', phase.length)} is more than "
                    f"{self._current('model.max_positions')}; lower the first or raise the second"
                )
            if phase.steps * phase.batch_size > 2**32:
                yield (
                    f"{self._flag(f'phases.{number}.batch_size', phase.batch_size)} in "
                    f"{self._flag(f'phases.{number}.steps', phase.steps)} makes {phase.steps * phase.batch_size:,} "
                    f"sequences, and a phase may have {2**32:,}; choose a smaller batch or fewer steps, or split "
                    "the phase in two"
                )
        if self.profile_steps and not (self.profiled and self.profiled[-1] <= self.steps):
            yield f"{self._current('profile_steps')} are none of the run's {self.steps:,} steps; give FIRST:LAST"

    @property
    def compared_from_start(self) -> tuple[str, ...]:
        """Settings, by dotted name, that a continued run may not change either, as it compares what is measured at the
        end with what was measured before the first step."""
        return ()

    @property
    def steps(self) -> int:
        """Steps of all phases together."""
        return sum(phase.steps for phase in self.phases)

    def steps_of(self, phase: int) -> range:
        """The steps of the run, counted from 0, that belong to phase number `phase`."""
        first = sum(before.steps for before in self.phases[:phase])
        return range(first, first + self.phases[phase].steps)

    def phase_of(self, step: int) -> int:
        """Number of the phase, from 0, that takes step number `step`, from 1. Step 0 is in the first phase, and steps
        after the end are in the last phase."""
        ends = itertools.accumulate(phase.steps for phase in self.phases)
        return next((phase for phase, end in enumerate(ends) if step <= end), len(self.phases) - 1)

    @property
    def rows(self) -> list[tuple[int, int]]:
        """For each phase: the number of tokens in a row, and the largest number of sequences in a row."""
        return [(phase.length, 1) for phase in self.phases]

    def longest(self, phase: int) -> int:
        """Most tokens of a sequence of phase number `phase`."""
        return self.phases[phase].length

    def sequences(self, phase: int) -> int:
        """Sequences in a step of phase number `phase`. In pretraining these are its rows, which may be packed."""
        return self.phases[phase].batch_size

    def batch_in_words(self, phase: int) -> str:
        """The batch of a step of phase number `phase`: "256 sequences of up to 128 tokens"."""
        raise NotImplementedError

    def slots(self, length: int) -> int:
        """Prediction slots P of a row of `length` tokens; 0 if no tokens are predicted."""
        return 0

    @property
    def log_every(self) -> int:
        """Steps between lines of metrics.jsonl: `logging.every`, or a default for the number of steps."""
        return self.logging.every or min(max(self.steps // _LINES, 1), _LOG_EVERY)
