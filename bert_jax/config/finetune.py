"""Everything that one fine-tuning run is."""

from typing import Annotated

from pydantic import Field, model_validator

from bert_jax.config.model import Rate
from bert_jax.config.operation import CheckpointConfig, ExecutionConfig, LoggingConfig, MeshConfig
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.config.settings import Settings
from bert_jax.config.task import TaskConfig


class FinetuneConfig(Settings):
    """A task, the model that is to learn it, and how. The defaults are those of the original's run_classifier.py."""

    task: TaskConfig
    init: str | None = None
    """The run, checkpoint or Hugging Face directory whose encoder and vocabulary are taken."""
    dropout: Rate = 0.1
    """Dropout rate wherever the model has one, and on the vectors that the task's head reads; whatever it was in
    pretraining."""
    optimizer: OptimizerConfig = OptimizerConfig(peak_learning_rate=2e-5, warmup=0.1)
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of everything random: the head's initial parameters, order, dropout."""

    mesh: MeshConfig = MeshConfig()
    execution: ExecutionConfig = ExecutionConfig()
    checkpoints: CheckpointConfig = CheckpointConfig()
    logging: LoggingConfig = LoggingConfig()

    @model_validator(mode="after")
    def _batches_divide(self) -> "FinetuneConfig":
        if self.task.batch_size % self.execution.accumulation:
            raise ValueError(
                f"task.batch_size={self.task.batch_size} is not a multiple of execution.accumulation="
                f"{self.execution.accumulation}; change one of them"
            )
        return self
