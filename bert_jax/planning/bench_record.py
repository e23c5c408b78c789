"""The JSON of a bench: what was measured, where and with which settings, and how two of them differ."""

import importlib
import os
import platform
import statistics
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast

import jax
import jaxlib
from jax.sharding import Mesh
from pydantic import computed_field, model_validator
from pydantic_core import PydanticCustomError

from bert_jax.config.run import RunConfig
from bert_jax.model.attention import training_forms
from bert_jax.model.encoder import Computation
from bert_jax.model.linear import compute_dtype
from bert_jax.planning.rates import Limit, Positive, Rates
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.json_file import MOST_BYTES, Shape, as_shape, check_format, parse_object, read_bytes
from bert_jax.training.trainer import Trainer

KIND: Final = "bert-jax bench"
FORMAT = 1

Scalar = str | int | float | bool | None
_SAME_WORK = (
    "model.dropout",
    "model.attention_dropout",
    "model.initializer_range",
    "model.layer_norm_epsilon",
    "model.activation",
    "model.max_positions",
)
"""Settings of the model that leave its matrix products as they are."""


class Timing(Shape):
    """Seconds of repeated measurements of one thing."""

    median: float
    low: float
    """The 10th percentile."""
    high: float
    """The 90th percentile."""
    rounds: int
    """How often it was measured."""

    @classmethod
    def of(cls, seconds: list[float]) -> "Timing":
        """Median and deciles of at least two measurements."""
        deciles = statistics.quantiles(seconds, n=10, method="inclusive")
        return cls(median=statistics.median(seconds), low=deciles[0], high=deciles[-1], rounds=len(seconds))

    @model_validator(mode="after")
    def _median_is_not_below(self) -> "Timing":
        # Not simply low <= median: of equal times the percentile may be a rounding error above them.
        if self.low > 0 >= self.median:
            raise PydanticCustomError("median", "the median isn't above 0 and the 10th percentile is")
        return self


class Part(Shape):
    """The work, limit and time of a part of a step, or of one run of an operation."""

    name: str
    count: int
    """How often a step runs it."""
    flops: float
    """FLOPs of its matrix products by formula, without recomputation."""
    bytes: float
    """Of a part: what its compiled program reads from and writes to memory (see `traffic`). Of an operation: its
    arguments and results, each read or written once."""
    limit: Limit
    time: Timing

    @computed_field  # type: ignore[prop-decorator]
    @property
    def limit_share(self) -> float | None:
        """The limit over the median time; None for a difference of times that is lost in their noise."""
        return self.limit.seconds / self.time.median if self.time.low > 0 else None


class Bench(Shape):
    """The JSON object of a bench. Figures are over all devices."""

    kind: Literal["bert-jax bench"]
    format: int
    versions: dict[str, str]
    machine: dict[str, Scalar]
    settings: dict[str, Scalar]
    compile_seconds: float
    """Seconds for tracing, lowering and compiling the step; few if it is in the compilation cache."""
    parts: list[Part]
    """Forward, backward, optimizer and step. Forward and step are measured by themselves; backward and optimizer are
    the differences between forward, forward with backward, and step, round by round."""
    operations: list[Part]
    """The main operations, at one device's share of the batch; empty if they weren't asked for."""
    rates: Rates
    transfer: Timing
    """Seconds in which a batch is sent to the device, which isn't in the step."""
    sequences_per_second: float
    tokens_per_second: Positive
    """Without padding."""
    fill: float
    """Share of the batch's positions that hold tokens."""
    model_flops_per_step: float
    model_flops_per_second: float
    share_of_matrix_rate: float
    """Model FLOPs a second over the rate of square products that was measured in this process."""
    mfu: float | None
    """Model FLOPs utilisation: share of the bfloat16 peak in the data sheet; None if the peak is unknown."""
    peak_memory_bytes: int
    """Peak memory of the fullest device; on a CPU, of this process."""
    input_sequences_per_second: float | None
    """Rate of reading and batching the run's data; None for random sequences."""

    @property
    def step(self) -> Timing:
        """Time of the whole step."""
        return self.parts[-1].time

    @property
    def times(self) -> dict[str, Timing]:
        """The time of each part and operation, by name."""
        return {part.name: part.time for part in [*self.parts, *self.operations]}


class Difference(NamedTuple):
    """Something that isn't alike in two records."""

    name: str
    there: Scalar
    here: Scalar
    work: bool
    """Whether it changes the work of a step, so that the times aren't of the same work."""


def versions() -> dict[str, str]:
    """Versions of bert_jax and of the libraries that compute."""
    own = importlib.import_module("bert_jax").__version__
    return {"bert_jax": own, "jax": jax.__version__, "jaxlib": jaxlib.__version__}


def machine(mesh: Mesh) -> dict[str, Scalar]:
    """The devices of `mesh` and the processor of this machine."""
    device = jax.devices()[0]
    return {
        "device": device.device_kind,
        "devices": mesh.size,
        "platform": device.platform,
        "processor": processor(),
        "cores": os.cpu_count(),
    }


def read_record(path: Place) -> Bench:
    """Reads a bench's JSON; the tables that the command prints may stand before it.

    Raises UsageError if the file is missing, damaged, no bench's JSON, or of another format.
    """
    remedy = f"give the JSON that {KIND} prints last, or all of its output"
    try:
        lines = read_bytes(path, MOST_BYTES).strip().splitlines()
        if not lines:
            raise ValueError("it is empty")
        # JSON of several lines is what somebody formatted: it then begins with a brace.
        value = parse_object(b"\n".join(lines) if lines[0].startswith(b"{") else lines[-1])
        if value.get("kind") != KIND:
            raise ValueError(f"it is no JSON of {KIND}")
        check_format(path, value.get("format"), FORMAT)
        return as_shape(value, Bench)
    except OSError as error:
        raise UsageError(f"--compare {path} can't be read ({error.strerror}); {remedy}") from None
    except ValueError as error:
        raise UsageError(f"--compare {path} can't be compared with: {error}; {remedy}") from None


def differences(there: Bench, here: Bench) -> list[Difference]:
    """What isn't alike in two records, the work first, then machine, versions and other settings."""
    found = []
    for group in ("machine", "versions", "settings"):
        of_there, of_here = getattr(there, group), getattr(here, group)
        for name in dict.fromkeys([*of_here, *of_there]):
            a, b = of_there.get(name), of_here.get(name)
            if a != b:
                found.append(Difference(name, a, b, group == "settings" and _is_work(name)))
    return sorted(found, key=lambda each: not each.work)


def _is_work(name: str) -> bool:
    others = ("batch_size", "length", "predictions", "sequences", "objective.predict", "objective.pair")
    return name in others or name.startswith("model.") and name not in _SAME_WORK


def settings(trainer: Trainer) -> dict[str, Scalar]:
    """Settings that the time of a step depends on, by name; those that are chosen by themselves as they were chosen."""
    model, config = trainer.objective.model, cast(RunConfig, trainer.config)  # bench trains a pretraining objective
    phase, execution = config.phases[0], config.execution
    sequences = config.data.sequences_a_row(phase.length)
    whole, local = training_forms(execution.attention, model, phase.length, sequences, trainer.mesh)
    attention = whole.name if local is whole else f"{whole.name}, local {local.name}"
    of_model = model.model_dump(exclude={"compute_dtype"}) | {"feedforward_size": model.inner_size}
    return {
        "batch_size": phase.batch_size,
        "length": phase.length,
        "predictions": config.slots(phase.length),
        "compute_dtype": compute_dtype(model).name,
        **{f"model.{name}": value for name, value in of_model.items()},
        "objective.predict": config.objective.predict,
        "objective.pair": config.objective.pair,
        "optimizer.name": config.optimizer.name,
        **{f"mesh.{name}": size for name, size in trainer.mesh.shape.items()},
        "execution.accumulation": execution.accumulation,
        "execution.remat": execution.remat,
        "execution.unroll": Computation.of(execution).blocks_at_once(model.num_layers),
        "execution.attention": attention,
    }


def processor() -> str:
    """The CPU's model as Linux names it; elsewhere as Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()
