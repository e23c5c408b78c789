"""Everything that one pretraining run is."""

from typing import Annotated

from pydantic import Field, model_validator

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import (
    CheckpointConfig,
    EvaluationConfig,
    ExecutionConfig,
    HostsConfig,
    InputConfig,
    LoggingConfig,
    MeshConfig,
    PreparationConfig,
)
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.config.phase import Phase
from bert_jax.config.settings import Settings
from bert_jax.config.vocabulary import VocabularyConfig


class RunConfig(Settings):
    """A run: what makes it what it is, then how it is carried out.

    Going on with a run refuses a change of the first kind (`IDENTITY`) and takes a change of the second.
    """

    model: ModelConfig = ModelConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    data: DataConfig = DataConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    phases: Annotated[tuple[Phase, ...], Field(min_length=1)] = (
        Phase(steps=900_000, length=128, batch_size=256),
        Phase(steps=100_000, length=512, batch_size=256),
    )
    """Stretches of training, one after the other. The defaults are the published run's."""
    init: str | None = None
    """A run, one of its checkpoints or a Hugging Face directory, whose parameters this run starts from; None starts at
    random. Its vocabulary comes with it, unless `vocabulary.file` names one that begins with the same pieces: each row
    that this adds is the mean of the rows of the pieces that it replaces."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of everything random: initial parameters, instances, order, masks, dropout."""

    mesh: MeshConfig = MeshConfig()
    hosts: HostsConfig = HostsConfig()
    execution: ExecutionConfig = ExecutionConfig()
    input: InputConfig = InputConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoints: CheckpointConfig = CheckpointConfig()
    logging: LoggingConfig = LoggingConfig()
    preparation: PreparationConfig = PreparationConfig()
    profile_steps: Annotated[str, Field(pattern=r"^[1-9]\d*:[1-9]\d*$")] | None = None
    """A:B writes a trace of steps A to B, both included, to the run's profile/, for TensorBoard or Perfetto."""

    @model_validator(mode="after")
    def _phases_fit(self) -> "RunConfig":
        for number, phase in enumerate(self.phases):
            if phase.length > self.model.max_positions:
                raise ValueError(
                    f"phases.{number}.length={phase.length} is more than model.max_positions="
                    f"{self.model.max_positions}; lower the first or raise the second"
                )
            if phase.batch_size % self.execution.accumulation:
                raise ValueError(
                    f"phases.{number}.batch_size={phase.batch_size} is not a multiple of execution.accumulation="
                    f"{self.execution.accumulation}; change one of them"
                )
            if phase.steps * phase.batch_size > 2**32:
                raise ValueError(
                    f"phases.{number} takes {phase.steps * phase.batch_size:,} sequences and random keys number them "
                    "up to 2^32; split the phase in two"
                )
        return self

    @model_validator(mode="after")
    def _pairs_have_segments(self) -> "RunConfig":
        if self.objective.pair != "none" and self.model.num_segments < 2:
            raise ValueError(
                f"objective.pair={self.objective.pair} asks about two segments and model.num_segments="
                f"{self.model.num_segments}; raise it, or set objective.pair=none"
            )
        return self

    @model_validator(mode="after")
    def _prediction_is_of_what_the_model_does_not_see(self) -> "RunConfig":
        if self.model.causal != (self.objective.predict == "next"):
            raise ValueError(
                f"objective.predict={self.objective.predict} with model.causal={self.model.causal}: next tokens are "
                "predicted by a causal model, masked ones by one that sees both sides; change one of the two"
            )
        return self

    @model_validator(mode="after")
    def _profiled_steps_are_the_runs(self) -> "RunConfig":
        if self.profile_steps and not (self.profiled and self.profiled[-1] <= self.steps):
            raise ValueError(
                f"profile_steps={self.profile_steps} are none of the run's {self.steps:,} steps; give FIRST:LAST"
            )
        return self

    @property
    def profiled(self) -> range:
        """The steps of `profile_steps`, the run's first being 1; empty where None."""
        first, _, last = (self.profile_steps or "1:0").partition(":")
        return range(int(first), int(last) + 1)

    @property
    def steps(self) -> int:
        """Steps of all phases together."""
        return sum(phase.steps for phase in self.phases)


IDENTITY = ("model", "vocabulary", "data", "objective", "optimizer", "phases", "init", "seed")
"""The fields that make a run what it is; all others are settings of operation."""
