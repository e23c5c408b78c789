"""The JSON of a bench: what was measured, where and with which settings, and how two of them differ."""

import importlib
import os
import platform
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import jax
import jaxlib
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bert_jax.config.run import RunConfig
from bert_jax.model.attention import training_forms
from bert_jax.model.encoder import Computation
from bert_jax.model.linear import compute_dtype
from bert_jax.planning.bench import Bench
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.json_file import MOST_BYTES, Shape, as_shape, check_format, parse_object, read_bytes
from bert_jax.training.trainer import Trainer

KIND = "bert-jax bench"
FORMAT = 1

Scalar = str | int | float | bool | None
Positive = Annotated[float, Field(gt=0)]

_SAME_WORK = (
    "model.dropout",
    "model.attention_dropout",
    "model.initializer_range",
    "model.layer_norm_epsilon",
    "model.activation",
    "model.max_positions",
)
"""Settings of the model that leave its matrix products as they are."""


class RecordedTime(Shape):
    """Seconds of a part in a record."""

    median: float
    low: float
    """The 10th percentile."""

    @model_validator(mode="after")
    def _median_is_not_below(self) -> "RecordedTime":
        # Not simply low <= median: of equal times the percentile may be a rounding error above them.
        if self.low > 0 >= self.median:
            raise PydanticCustomError("median", "the median isn't above 0 and the 10th percentile is")
        return self


class RecordedRate(Shape):
    """A rate in a record."""

    per_second: Positive


class RecordedRates(Shape):
    """The rates of a device in a record."""

    matrix: RecordedRate
    memory: RecordedRate


class RecordedPart(Shape):
    """A part in a record."""

    name: str
    time: RecordedTime


class Record(Shape):
    """The fields of a bench's JSON that a comparison reads."""

    kind: Literal["bert-jax bench"]
    versions: dict[str, str]
    machine: dict[str, Scalar]
    settings: dict[str, Scalar]
    parts: list[RecordedPart]
    operations: list[RecordedPart]
    rates: RecordedRates
    tokens_per_second: Positive

    @property
    def times(self) -> dict[str, RecordedTime]:
        """The time of each part and operation, by name."""
        return {part.name: part.time for part in [*self.parts, *self.operations]}


class Difference(NamedTuple):
    """Something that isn't alike in two records."""

    name: str
    there: Scalar
    here: Scalar
    work: bool
    """Whether it changes the work of a step, so that the times aren't of the same work."""


def record(measured: Bench, trainer: Trainer, sequences: Literal["random", "of a run"]) -> dict[str, Any]:
    """The JSON object of a bench of the trainer's first phase."""
    device = jax.devices()[0]
    return {
        "kind": KIND,
        "format": FORMAT,
        "versions": {
            "bert_jax": importlib.import_module("bert_jax").__version__,
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
        },
        "machine": {
            "device": device.device_kind,
            "devices": trainer.mesh.size,
            "platform": device.platform,
            "processor": processor(),
            "cores": os.cpu_count(),
        },
        "settings": _settings(trainer) | {"sequences": sequences},
        **measured.as_json(),
    }


def read_record(path: Place) -> Record:
    """Reads a bench's JSON; the tables that the command prints may stand before it.

    Raises UsageError if the file is missing, damaged, no bench's JSON, or of a newer format.
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
        return as_shape(value, Record)
    except OSError as error:
        raise UsageError(f"--compare {path} can't be read ({error.strerror}); {remedy}") from None
    except ValueError as error:
        raise UsageError(f"--compare {path} can't be compared with: {error}; {remedy}") from None


def differences(there: Record, here: Record) -> list[Difference]:
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


def _settings(trainer: Trainer) -> dict[str, Scalar]:
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
