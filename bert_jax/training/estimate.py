"""What work takes: FLOPs, memory, disk and time, each figure with its basis; and how a training would begin."""

import math
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import jax
from jax.sharding import Mesh
from pydantic import Field

from bert_jax.config.model import ModelConfig
from bert_jax.config.training import Phase, TrainingConfig
from bert_jax.config.wording import counted
from bert_jax.model.kernels.platform import compute_dtype
from bert_jax.model.sharding import num_shards
from bert_jax.model.size import Memory
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system import figures
from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.figures import Figure, Figures, gigabytes
from bert_jax.system.reading import Reading
from bert_jax.training.devices import CHIPS, TPU_FAMILIES, SquareProduct, chip_of, device_memory

_PRODUCT_SIZE, _ROUNDS = 2048, 4
_MFU = 0.4
"""Share of a chip's peak that a step of BERT-base or BERT-large reaches: 0.36 to 0.43 on an H200 (docs/performance.md);
on other chips it is assumed."""
_CPU_SHARE = 0.7
"""Share of a CPU's rate of matrix products that a step reaches: 0.8 for BERT-base in float32, less for small models."""
_CHECKPOINTS_BESIDE = 2
"""Number of checkpoints on the disk besides the newest ones: the best one, and one that is being written."""

Lines = Iterator[tuple[str, str]]
"""Lines of a table, each a name and a text about the training."""
_UNITS = {"flops": " FLOPs", "memory": " a device", "disk": " on disk", "hours": ""}
"""The figures of an estimate, and what follows each one in a line."""
_OPTIONAL = Field(exclude_if=lambda value: value is None)


class Estimate(Figures):
    """What some work takes. A figure that is None isn't estimated or isn't known."""

    work: Annotated[str | None, _OPTIONAL] = None
    """The work, and the machine where it matters."""
    flops: Annotated[figures.Flops | None, "FLOPs", _OPTIONAL] = None
    memory: Annotated[figures.Traffic | None, "memory a device", _OPTIONAL] = None
    """Bytes on one device at the peak of a step."""
    disk: Annotated[figures.Traffic | None, _OPTIONAL] = None
    """Bytes of files."""
    hours: Annotated[figures.Hours | None, "time", _OPTIONAL] = None
    basis: Annotated[str, "by"]
    """What the figures rest on: a formula, a probe, a trial, a compiled program, or finished runs."""

    def line(self, detail: str = "") -> tuple[str, str]:
        """The work and its figures as a line of a table. `detail`: the parts of the figures."""
        figures = ((name, getattr(self, name)) for name in _UNITS)
        words = [Figure(Estimate, name).text(value) + _UNITS[name] for name, value in figures if value is not None]
        return self.work or "", f"about {', '.join(words)} by {self.basis}{': ' * bool(detail)}{detail}"


def training_times(model: ModelConfig, flops: float) -> Iterator[Estimate]:
    """The time of a training of `flops` on this machine, and on one chip of each kind that `plan` knows."""
    name, chip = jax.devices()[0].device_kind, chip_of(jax.devices()[0].device_kind)
    if chip:
        rate, basis = _MFU * chip.flops * jax.device_count(), f"{_MFU:.0%} of the peak, assumed"
    else:
        # The probe ran on one device; those of a CPU share its cores.
        products = _matrix_rate(model) * (1 if jax.default_backend() == "cpu" else jax.device_count())
        rate, basis = _CPU_SHARE * products, f"{_CPU_SHARE:.0%} of {figures.flops_per_second(products)}, measured now"
    yield Estimate(work=f"this machine, {jax.device_count()} x {name}", hours=flops / rate / 3600, basis=basis)
    for family in TPU_FAMILIES:
        hours = flops / (_MFU * CHIPS[f"TPU {family}"].flops) / 3600
        yield Estimate(work=f"one TPU {family}", hours=hours, basis=f"{_MFU:.0%} of the peak, assumed")


def _matrix_rate(model: ModelConfig) -> float:
    """FLOPs a second of a large matrix product in the model's compute dtype here."""
    probe = SquareProduct.of(_PRODUCT_SIZE, compute_dtype(model))
    seconds = []
    for _ in range(_ROUNDS):  # the first compiles
        began = time.perf_counter()
        jax.block_until_ready(probe.run())
        seconds.append(time.perf_counter() - began)
    return probe.flops / min(seconds)


def run_beginning(config: TrainingConfig, run: RunDirectory, mesh: Mesh) -> Lines:
    """How the run would begin, and on which devices. Raises UsageError if it can't be trained there."""
    run.check(config)
    newest = run.newest_step or 0
    if not run.under_way:
        beginning = f"a new one of {counted(config.steps, 'steps')}"
    else:
        finished = run.results(config.steps)
        beginning = "finished: nothing to do" if finished else f"go on from step {newest:,} of {config.steps:,}"
    yield "run", f"{run.path}: {beginning}"
    axes = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    devices = f"{math.prod(mesh.shape.values())} x {mesh.local_devices[0].device_kind}, as {axes}"
    yield "devices", f"{devices}; processes: {jax.process_count()}; {compute_dtype(config.model).name}"


def read_as(readings: Iterable[Reading]) -> Lines:
    """How foreign input is understood, and warnings about odd figures."""
    for reading in readings:
        yield from reading.rows()
        yield from (("odd", remark) for remark in reading.remarks)


def steps_in_words(phase: Phase, done: int, batch: str) -> str:
    """The number of steps of a phase, how many of them are left, and the `batch` of a step in words."""
    left = f" ({max(0, phase.steps - done):,} left)" if done else ""
    tokens = phase.steps * phase.batch_size * phase.length
    shown = f"{tokens:,}" if tokens < 1_000_000 else f"{tokens:.3e}"
    return f"{counted(phase.steps, 'steps')}{left} of {batch}, {shown} tokens at most"


def memory_line(phase: Phase, memory: Memory, mesh: Mesh) -> tuple[str, str]:
    """The memory of a step on one device, its parts, and the memory that the device has."""
    step = Estimate(work=f"memory, length {phase.length}", memory=memory.total, basis="formula")
    parts = ", ".join(f"{name} {gigabytes(size)}" for name, size in memory._asdict().items())
    limit = device_memory(mesh.local_devices[0])
    return step.line(parts + (f"; a device has {gigabytes(limit)}" if limit else ""))


def checkpoints_line(config: TrainingConfig, workdir: Place, memory: Memory, mesh: Mesh) -> tuple[str, str]:
    """Size of the checkpoints, and the free space on the disk, which is unknown for a bucket."""
    size = memory.state * num_shards(mesh, ("fsdp", "tensor"))
    most = (config.checkpoints.keep + _CHECKPOINTS_BESIDE) * size
    detail = f"at most, {gigabytes(size)} each, every {config.checkpoints.every:,} steps"
    if not in_bucket(workdir):
        path = Path(workdir).absolute()
        free = shutil.disk_usage(next(place for place in (path, *path.parents) if place.exists())).free
        detail += f"; {gigabytes(free)} are free" + (": too little" if free < most else "")
    return Estimate(work="checkpoints", disk=most, basis="formula").line(detail)
