"""Settings of operation: they change how a run is carried out, never what it computes."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bert_jax.config.settings import Settings

Every = Annotated[int, Field(gt=0)]


class MeshConfig(Settings):
    """How devices share the work; -1 stands for all that are left. The sizes multiply to the number of devices."""

    data: Annotated[int, Field(ge=-1)] = -1
    """Devices (groups of them) that each hold all parameters and take a part of the batch."""
    fsdp: Annotated[int, Field(ge=-1)] = 1
    """Devices that share one copy of the parameters and optimizer state, and also split the batch."""
    tensor: Annotated[int, Field(ge=-1)] = 1
    """Devices that share the heads, the inner features and the vocabulary of one part of the batch: for models or
    lengths of which not even one sequence fits. They talk to each other in every block, so keep them in one machine."""


class HostsConfig(Settings):
    """The processes of a run on several machines. On Cloud TPU and under Slurm they are found without these."""

    coordinator: Annotated[str, Field(pattern=r"^[^:\s]+:\d+$", examples=["10.0.0.1:8476"])] | None = None
    """HOST:PORT of the first process, which all others can reach."""
    count: Annotated[int, Field(gt=0)] | None = None
    """How many processes there are."""
    index: Annotated[int, Field(ge=0)] | None = None
    """Which one this is; the first, 0, writes logs and results."""
    wait_seconds: Annotated[int, Field(gt=0)] = 300
    """How long to wait for the others at the start."""

    @model_validator(mode="after")
    def _belong_together(self) -> "HostsConfig":
        given = [self.coordinator is not None, self.count is not None, self.index is not None]
        if any(given) and not all(given):
            raise ValueError(
                f"hosts.coordinator={self.coordinator}, hosts.count={self.count} and hosts.index={self.index} go "
                "together; give all three or none"
            )
        if all(given) and self.index >= self.count:
            raise ValueError(f"hosts.index={self.index} is none of hosts.count={self.count} processes, counted from 0")
        return self


class ExecutionConfig(Settings):
    """How a step is carried out."""

    accumulation: Annotated[int, Field(gt=0)] = 1
    """Microbatches a step: less memory, the same result."""
    remat: Literal["none", "full", "dots"] = "none"
    """What the backward pass computes again to save memory: nothing, whole blocks, or all but matrix products."""
    unroll: Annotated[int, Field(gt=0)] = 1
    """Blocks compiled into one turn of the loop over layers. A larger number takes longer to compile and, on a CPU,
    makes each step faster."""
    max_skipped_steps: Annotated[int, Field(gt=0)] = 20
    """Stop after this many steps in a row whose gradients were not finite (each is skipped)."""
    stuck_after_minutes: Annotated[float, Field(ge=0)] | None = 30
    """End the run (exit code 124, upon which the launchers start it again) if it makes no progress for so many minutes:
    no step, no batch of an evaluation, no compilation, no write that ends. What every thread was at is written to
    stuck-STEP.txt in the run. 0 or None: never."""


class InputConfig(Settings):
    """How the prepared data is read."""

    damaged_records: Literal["stop", "skip"] = "stop"
    """What a record does that a disk has damaged: it stops the run with its name, or it is left out, said and counted,
    and its batch trains on the others, which changes nothing else."""


class EvaluationConfig(Settings):
    """Evaluation on held-out documents during training."""

    every: Every = 1000
    """Steps between evaluations; the last step is always evaluated."""
    max_sequences: Every = 4096
    """Held-out sequences used, always the same ones with the same masks."""


class CheckpointConfig(Settings):
    """When checkpoints are written and which are kept."""

    every: Every = 1000
    """Steps between checkpoints; the last step always writes one."""
    keep: Annotated[int, Field(ge=2)] = 2
    """Newest checkpoints kept, besides the one with the lowest held-out loss."""
    keep_every: Every | None = None
    """Steps between checkpoints that are kept for good: one is written after each multiple and never deleted.
    None: none is."""
    every_minutes: Annotated[float, Field(gt=0)] | None = None
    """Minutes after which a checkpoint is due, whatever the step. None: steps alone count."""


class LoggingConfig(Settings):
    """What is written down while training."""

    every: Every | None = None
    """Steps between lines of metrics.jsonl; a line sums up all steps since the last. None: 100, or in runs of fewer
    than 2,000 steps a twentieth of them."""
    tensorboard: bool = True
    """Also write TensorBoard events."""
    wandb: str | None = None
    """Also track the run in this project of Weights & Biases; offline where WANDB_MODE=offline."""
    mlflow: str | None = None
    """Also track the run in MLflow: the server's URI, or a folder."""


class PreparationConfig(Settings):
    """How the data is prepared."""

    processes: Annotated[int, Field(gt=0)] | None = None
    """Worker processes; one a CPU core where None. The records are the same whatever the number."""
