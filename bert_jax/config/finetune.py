"""Everything that one fine-tuning run is."""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from bert_jax.config.model import ModelConfig, Rate
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.config.phase import Phase
from bert_jax.config.settings import Settings
from bert_jax.config.task import TaskConfig
from bert_jax.config.training import OperationConfig, Seed, TrainingConfig


class TransferConfig(Settings):
    """What is taken from the model that a task begins with, and what of it is trained."""

    from_random: bool = False
    """Start from random parameters all the same, and take only the shape and vocabulary of `init`: what a score is to
    be compared with."""
    layers_frozen: Annotated[int, Field(ge=0)] | None = None
    """Embeddings and so many layers, from the first on, stay as they are; 0 the embeddings alone, None nothing."""
    probe: bool = False
    """Train the task's head alone: a linear model on vectors that stay as they are, without dropout. Wants a larger
    learning rate, some 1e-2."""


class TaskRunConfig(TransferConfig, TrainingConfig):
    """A fine-tuning run as it is planned once model and rows are known: what its config.json holds."""

    IDENTITY: ClassVar[tuple[str, ...]] = (*TrainingConfig.IDENTITY, *TransferConfig.model_fields, "task", "rows")

    task: TaskConfig
    """With labels and padded lengths set."""
    rows: str
    """Hash of the encoded training rows and of the dev rows."""


class FinetuneConfig(TransferConfig, OperationConfig):
    """A task, the model that is to learn it, and how. The defaults are those of the original's run_classifier.py."""

    task: TaskConfig
    init: str | None = None
    """The run, checkpoint or Hugging Face directory, or the model of the Hugging Face hub by its name, whose encoder
    and vocabulary are taken."""
    dropout: Rate = 0.1
    """Dropout rate wherever the model has one, and on the vectors that the task's head reads; whatever it was in
    pretraining."""
    optimizer: OptimizerConfig = OptimizerConfig(peak_learning_rate=2e-5, warmup=0.1)
    seed: Seed = 0
    """Seed of everything random: the head's initial parameters, order, dropout."""
    evaluations: Annotated[float, Field(gt=0.0)] = 1.0
    """Times an epoch that the dev rows are measured and a checkpoint is written; below 1, once in several epochs."""

    @model_validator(mode="after")
    def _something_is_trained_once(self) -> "FinetuneConfig":
        if self.probe and self.layers_frozen is not None:
            raise ValueError(
                f"probe trains the head alone, and layers_frozen={self.layers_frozen} says what else stays as it is; "
                "leave out one"
            )
        return self

    @model_validator(mode="after")
    def _batches_divide(self) -> "FinetuneConfig":
        if self.task.batch_size % self.execution.accumulation:
            raise ValueError(
                f"task.batch_size={self.task.batch_size} is not a multiple of execution.accumulation="
                f"{self.execution.accumulation}; change one of them"
            )
        return self

    def planned(self, model: ModelConfig, task: TaskConfig, rows: str, steps: int) -> TaskRunConfig:
        """The run of `steps` steps on a model and rows that are known by now. Raises SettingsError."""
        every = max(1, round(steps / task.epochs / self.evaluations))
        dropout = 0.0 if self.probe else self.dropout
        given = (*OperationConfig.model_fields, *TransferConfig.model_fields, "init", "optimizer", "seed")
        return TaskRunConfig(
            **{name: getattr(self, name) for name in given},
            model=model.replace(dropout=dropout, attention_dropout=dropout),
            task=task,
            rows=rows,
            phases=(Phase(steps=steps, length=task.max_length, batch_size=task.batch_size),),
            evaluation=EvaluationConfig(every=every),
            checkpoints=CheckpointConfig(every=every),
        )
