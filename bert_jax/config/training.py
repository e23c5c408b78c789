"""Settings that pretraining and fine-tuning share."""

import itertools
from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import (
    CheckpointConfig,
    EvaluationConfig,
    ExecutionConfig,
    HostsConfig,
    LoggingConfig,
    MeshConfig,
)
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.config.phase import Phase
from bert_jax.config.settings import Settings

Seed = Annotated[int, Field(ge=0, lt=2**32)]
_LOG_EVERY, _LINES = 100, 20
"""Default number of steps between lines of the log; number of lines that shorter runs get instead."""


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

    A continued run may change all settings except those in `IDENTITY`.
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
    def steps(self) -> int:
        """Steps of all phases together."""
        return sum(phase.steps for phase in self.phases)

    def steps_of(self, phase: int) -> range:
        """The steps of the run, counted from 0, that belong to phase number `phase`."""
        first = sum(before.steps for before in self.phases[:phase])
        return range(first, first + self.phases[phase].steps)

    def phase_of(self, step: int) -> int:
        """Number of the phase, from 0, that takes step number `step`, from 1.

        Step 0 is in the first phase, and steps after the end are in the last phase.
        """
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
