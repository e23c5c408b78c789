"""Settings of a fine-tuning run."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import Field

from bert_jax.config.model import ComputeType, ModelConfig, Rate
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import GIVEN, Requirement, Settings
from bert_jax.config.task import TaskConfig
from bert_jax.config.training import OperationConfig, OptimizerConfig, Phase, Seed, TrainingConfig


class TransferConfig(Settings):
    """The parameters taken from the pretrained model, and those that are trained."""

    from_random: bool = False
    """Start from random parameters and take only shape and vocabulary from `init`, as a baseline for the score of the
    pretrained model."""
    layers_frozen: Annotated[int, Field(ge=0)] | None = None
    """Number of layers, from the first, that are frozen with the embeddings. 0: the embeddings alone. None: nothing."""
    probe: bool = False
    """Train only the task's head: a linear model on the vectors of the frozen encoder, without dropout. Needs a larger
    learning rate, about 1e-2."""


class TaskRunConfig(TransferConfig, TrainingConfig):
    """The settings of a fine-tuning run, as in its config.json: those of a FinetuneConfig, with the model's settings
    and a hash of the rows."""

    IDENTITY: ClassVar[tuple[str, ...]] = (*TrainingConfig.IDENTITY, *TransferConfig.model_fields, "task", "rows_hash")

    TRAINED: ClassVar[str] = "fine-tuned"
    BASELINE: ClassVar[str] = "most frequent answer"
    data: ClassVar[None] = None
    """None: a fine-tuned run learns from the rows of its task. Only a pretraining's settings have `data`."""
    objective: ClassVar[None] = None
    """None: the objective follows from the task. Only the settings of a pretraining have `objective`."""

    task: TaskConfig
    """The task, with its labels filled in."""
    rows_hash: str
    """Hash of the encoded training and dev rows."""

    @property
    def batch_sizes(self) -> dict[str, int]:
        """The settings, by name, that accumulation must divide. (phases.0.batch_size, the rows of a step, is rounded up
        to a multiple.)"""
        return {"task.batch_size": self.task.batch_size}

    @property
    def rows(self) -> list[tuple[int, int]]:
        """For the one phase: the number of tokens in a row, and the largest number of sequences in a row. Sequences are
        spread evenly."""
        return [(phase.length, -(-self.sequences(0) // phase.batch_size)) for phase in self.phases]

    def sequences(self, phase: int) -> int:
        """Sequences in a step. For vectors, the number of texts if all groups have all of their negatives."""
        return self.task.batch_size * self.task.sequences_an_example

    def longest(self, phase: int) -> int:
        """Most tokens of a sequence. Rows may be longer, since several sequences share one."""
        return min(self.task.max_length, self.phases[phase].length)

    def batch_in_words(self, phase: int) -> str:
        """The rows of the task in a step and the length that texts are cut to; for vectors also their loss."""
        task = self.task
        rows = "rows" if not task.makes_vectors else "pairs with scores" if task.scored else "pairs"
        batch = f"{task.batch_size:,} {rows}, whose texts are cut to {task.max_length} tokens"
        return batch + f"; temperature {task.temperature:g}, pooling {task.pooling}" * task.makes_vectors

    def set(self, values: Mapping[str, object]) -> Self:
        """A validated copy with other values, by dotted name. The rows of a step change in proportion to
        task.batch_size, unless `values` sets them."""
        size, rows = values.get("task.batch_size"), "phases.0.batch_size"
        if isinstance(size, int) and size > 0 and rows not in values:
            values = {rows: -(-self.phases[0].batch_size * size // self.task.batch_size), **values}
        return super().set(values)


AnyRunConfig = RunConfig | TaskRunConfig
"""The settings of a run, as in its config.json: a pretraining's or a fine-tuning's."""


class FinetuneConfig(TransferConfig, OperationConfig):
    """A task, the model to fine-tune, and how. The defaults are those of the original's run_classifier.py, with bias
    correction added."""

    REQUIREMENTS: ClassVar[tuple[Requirement, ...]] = (
        Requirement("layers_frozen", GIVEN, "probe", False, "a probe trains the head alone"),
        Requirement("task.kind", "vectors", "probe", False, "the kind has no head to train alone"),
    )
    task: TaskConfig
    init: str | None = None
    """The pretrained model, whose encoder and vocabulary are used: a run, a checkpoint, a Hugging Face directory, or
    the name of a model on the Hugging Face hub."""
    dropout: Rate = 0.1
    """Dropout rate of the whole model and on the input of the task's head, instead of the rates of pretraining."""
    compute_dtype: ComputeType | None = None
    """Type of the matrix products, as model.compute_dtype. None: that of the pretrained run, or auto if the model was
    imported."""
    optimizer: OptimizerConfig = OptimizerConfig(peak_learning_rate=5e-5, warmup=0.1, bias_correction=True)
    seed: Seed = 0
    """Seed of everything random: the head's initial parameters, order, dropout."""
    evaluations: Annotated[float, Field(gt=0.0)] = 1.0
    """Evaluations of the dev rows per epoch, each with a checkpoint; 0.5 evaluates after every second epoch."""

    @property
    def batch_sizes(self) -> dict[str, int]:
        """The settings, by name, that accumulation must divide."""
        return {"task.batch_size": self.task.batch_size}

    def run_config(self, model: ModelConfig, task: TaskConfig, rows_hash: str, phase: Phase) -> TaskRunConfig:
        """The settings of a run of one phase, for this model, task and hash of rows. Raises SettingsError."""
        every = max(1, round(phase.steps / task.epochs / self.evaluations))
        if not task.name:
            task = task.replace(name=task.rows_name)
        dropout = 0.0 if self.probe else self.dropout
        dtype = self.compute_dtype or model.compute_dtype
        transferable = (*OperationConfig.model_fields, *TransferConfig.model_fields, "init", "optimizer", "seed")
        return TaskRunConfig(
            **{name: getattr(self, name) for name in transferable},
            model=model.encoder.replace(dropout=dropout, attention_dropout=dropout, compute_dtype=dtype),
            task=task,
            rows_hash=rows_hash,
            phases=(phase,),
            evaluation=EvaluationConfig(every=every),
            checkpoints=CheckpointConfig(every=every),
        )
