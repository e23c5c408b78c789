"""Describes what a training would do: how the run begins, its steps, memory and disk."""

import math
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import jax
from jax.sharding import Mesh

from bert_jax.config.phase import Phase
from bert_jax.config.training import TrainingConfig
from bert_jax.config.wording import counted
from bert_jax.model.kernels.platform import compute_dtype
from bert_jax.model.memory import Memory
from bert_jax.model.sharding import num_shards
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.reading import Reading
from bert_jax.training.devices import device_memory, gigabytes

_CHECKPOINTS_BESIDE = 2
"""Number of checkpoints on the disk besides the newest ones: the best one, and one that is being written."""

Lines = Iterator[tuple[str, str]]
"""Lines of a table, each a name and a text about the plan."""


def planned_run(config: TrainingConfig, run: RunDirectory, mesh: Mesh) -> Lines:
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
    return f"{counted(phase.steps, 'steps')}{left} of {batch}, {tokens:.3e} tokens at most"


def memory_in_words(memory: Memory, mesh: Mesh) -> str:
    """The memory of a step on one device and its parts."""
    there = device_memory(mesh.local_devices[0])
    of = f" of {gigabytes(there)}" if there else ""
    named = ", ".join(f"{name} {gigabytes(size)}" for name, size in memory._asdict().items())
    return f"about {gigabytes(memory.total)}{of} a device by formula: {named}"


def checkpoints_in_words(config: TrainingConfig, workdir: Place, memory: Memory, mesh: Mesh, runs: int = 1) -> str:
    """Size of the checkpoints of all runs, and the free space on the disk, which is unknown for a bucket."""
    size = runs * memory.state * num_shards(mesh, ("fsdp", "tensor"))
    most = (config.checkpoints.keep + _CHECKPOINTS_BESIDE) * size
    words = f"{gigabytes(size)} each, every {config.checkpoints.every:,} steps; {gigabytes(most)} at most"
    if in_bucket(workdir):
        return words
    path = Path(workdir).absolute()
    free = shutil.disk_usage(next(place for place in (path, *path.parents) if place.exists())).free
    return f"{words}; {gigabytes(free)} are free" + (": too little" if free < most else "")
