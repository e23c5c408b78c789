"""Settings of how a run is carried out; they don't change its result."""

import itertools
import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bert_jax.config.settings import GIVEN, Requirement, Settings

PositiveInt = Annotated[int, Field(gt=0)]

Remat = Literal["none", "full", "dots"]
"""What the backward pass recomputes: nothing, whole blocks, or all but matrix products."""
AttentionForm = Literal["auto", "exact", "tpu", "gpu"]
"""How attention is computed."""


class MeshConfig(Settings):
    """Sizes of the device mesh. Their product is the number of devices; -1 stands for all devices that are left."""

    PREFIX: ClassVar[str] = "--mesh."
    data: Annotated[int, Field(ge=-1)] = -1
    """Data parallelism: number of groups of devices. Each group has all parameters and a part of the batch."""
    fsdp: Annotated[int, Field(ge=-1)] = 1
    """Number of devices that share one copy of the parameters and optimizer state, and split the batch."""
    tensor: Annotated[int, Field(ge=-1)] = 1
    """Tensor parallelism: number of devices that share heads, inner features and vocabulary, for when one sequence
    doesn't fit on one device. They communicate in every block, so keep them in one machine."""


class HostsConfig(Settings):
    """The processes of a run on several machines. Cloud TPU and Slurm need none of these settings."""

    PREFIX: ClassVar[str] = "--hosts."
    coordinator: Annotated[str, Field(pattern=r"^[^:\s]+:\d+$", examples=["10.0.0.1:8476"])] | None = None
    """HOST:PORT of the first process, reachable from all others."""
    count: Annotated[int, Field(gt=0)] | None = None
    """Number of processes."""
    index: Annotated[int, Field(ge=0)] | None = None
    """Index of this process; the first, 0, writes logs and results."""
    wait_seconds: Annotated[int, Field(gt=0)] = 300
    """Seconds to wait for the other processes at the start."""

    def _conflicts(self) -> Iterator[str]:
        names = ("coordinator", "count", "index")
        if 0 < (self.coordinator, self.count, self.index).count(None) < 3:
            yield f"{', '.join(map(self._current, names))} go together; give all three or none"
        if self.index is not None and self.count is not None and self.index >= self.count:
            yield f"{self._current('index')} must be less than {self._current('count')}; processes are numbered from 0"


class ExecutionConfig(Settings):
    """How a step is carried out."""

    PREFIX: ClassVar[str] = "--execution."
    accumulation: Annotated[int, Field(gt=0)] = 1
    """Microbatches per step. More take less memory, with the same result."""
    remat: Remat = "none"
    """Values that the backward pass recomputes to save memory: nothing, whole blocks, or all but matrix products."""
    unroll: Annotated[int, Field(gt=0)] | None = None
    """Blocks in one iteration of the compiled loop over layers. More take longer to compile and make each step faster.
    None: one block with remat, otherwise all."""
    attention: AttentionForm = "auto"
    """How attention is computed: by einsum and softmax (exact), by a kernel that keeps its [T, T] arrays on the chip
    (tpu, gpu), or by the kernel if device and sizes allow it, otherwise exact (auto). The results are the same up to
    rounding."""
    check_compiler: bool = True
    """Before the first training on a machine, compare compiled parts of a step with the same operations run one by one,
    and refuse to train if they differ."""
    max_skipped_steps: Annotated[int, Field(gt=0)] = 20
    """The run stops after this many skipped steps in a row. A step is skipped if its gradients aren't finite."""
    stuck_after_minutes: Annotated[float, Field(ge=0)] | None = 30.0
    """Minutes without progress (a step, a batch of an evaluation, a compilation, a finished write) after which the run
    ends with exit code 124, on which the launchers restart it. The stacks of all threads are written to stuck-STEP.txt
    in the run. 0 or None: never."""


class InputConfig(Settings):
    """How the prepared data is read."""

    PREFIX: ClassVar[str] = "--input."
    damaged_records: Literal["stop", "skip"] = "stop"
    """Records that a disk has damaged: stop the run and name the record; or skip it, with a warning and a count, and
    train on the other records of its batch."""


class EvaluationConfig(Settings):
    """Evaluation on held-out documents during training."""

    PREFIX: ClassVar[str] = "--evaluation."
    every: PositiveInt = 1000
    """Steps between evaluations; the last step is always evaluated."""
    max_sequences: PositiveInt | None = 4096
    """Maximum number of held-out sequences; they and their masks are the same each time. None: all."""
    watch: bool = False
    """With `init`: also evaluate before the first step, measure the mean cosine of different texts, and end the
    training if it harms the model: if the vectors of different texts become nearly equal, or if, in the second half of
    the steps, the held-out loss is higher than before the first step."""


class CheckpointConfig(Settings):
    """When checkpoints are written and which are kept."""

    PREFIX: ClassVar[str] = "--checkpoints."
    every: PositiveInt = 1000
    """Steps between checkpoints; the last step of a phase always writes one."""
    keep: Annotated[int, Field(ge=2)] = 2
    """Number of newest checkpoints to keep, besides the one with the lowest held-out loss."""
    keep_every: PositiveInt | None = None
    """Steps between permanent checkpoints. One is written after each multiple of this number, and never deleted. None:
    no such checkpoints."""
    keep_at_words: tuple[PositiveInt, ...] = ()
    """Numbers of words that the training has seen, such as 1000000 2000000 5000000, at each of which it writes a
    permanent checkpoint. Words are split at blanks and count each time that they are seen. Only for pretraining."""
    every_minutes: Annotated[float, Field(gt=0)] | None = None
    """Minutes since the last checkpoint after which the next is written, at any step. None: only the step decides."""

    def _conflicts(self) -> Iterator[str]:
        for before, words in itertools.pairwise(self.keep_at_words):
            if words <= before:
                yield f"{self._flag('keep_at_words', words)} follows {before}; give each number once, ascending"


class LoggingConfig(Settings):
    """Logs of a training."""

    PREFIX: ClassVar[str] = "--logging."
    every: PositiveInt | None = None
    """Steps between lines of metrics.jsonl. A line summarises all steps since the last line. None: 100, or a twentieth
    of the steps in runs of fewer than 2,000 steps."""
    tensorboard: bool = True
    """Also write TensorBoard events."""
    wandb: str | None = None
    """Also track the run in this project of Weights & Biases; offline where WANDB_MODE=offline."""
    mlflow: str | None = None
    """Also track the run in MLflow: the server's URI, or a folder."""

    @property
    def trackers(self) -> dict[str, str]:
        """The project or URI of each experiment tracker in use, by its setting."""
        return {name: where for name, where in (("wandb", self.wandb), ("mlflow", self.mlflow)) if where}


class PreparationConfig(Settings):
    """How the data is prepared."""

    PREFIX: ClassVar[str] = "--preparation."
    REQUIREMENTS: ClassVar[tuple[Requirement, ...]] = (
        Requirement("spark", GIVEN, "engine", "spark", "they are options of Spark"),
    )
    processes: Annotated[int, Field(gt=0)] | None = None
    """Number of worker processes, which doesn't change the records. None: one for each CPU core."""
    memory_megabytes: Annotated[int, Field(ge=100)] = 500
    """Megabytes of memory that comparing documents and lines takes (data.deduplicate, data.drop_boilerplate). The rest
    goes to temporary files of the run."""
    engine: Literal["local", "spark"] = "local"
    """Where the text is prepared: by processes of this machine, or by Apache Spark (extra spark, and Java), on this
    machine or a cluster. The records are the same. The machines of a cluster must share the file system of the text and
    of the run."""
    spark: tuple[Annotated[str, Field(pattern=r"^spark\.[\w.-]+=.*$", examples=["spark.KEY=VALUE"])], ...] = ()
    """Options of Spark, each KEY=VALUE, such as spark.master=yarn. They and the engine aren't taken from a run that
    is given as CONFIG."""

    def _conflicts(self) -> Iterator[str]:
        for name in (option.partition("=")[0] for option in self.spark):
            if re.search("secret|password|token|access.?key", name, re.IGNORECASE):
                yield (
                    f"{self._flag('spark')} has {name}, which would be written to the run's files; leave it out and "
                    "set it in Spark's own configuration (spark-defaults.conf)"
                )
