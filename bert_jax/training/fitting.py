"""Whether a training fits the devices' memory, before anything is written or compiled."""

import os
from pathlib import Path

import jax
from jax.sharding import Mesh

from bert_jax.config.model import ModelConfig
from bert_jax.config.phase import Phase
from bert_jax.config.training import OperationConfig
from bert_jax.model.attention import obstacle
from bert_jax.model.bert import parameter_shapes
from bert_jax.model.memory import Memory, step_memory
from bert_jax.model.sharding import parts, row_shards
from bert_jax.system.errors import UsageError
from bert_jax.system.progress import say
from bert_jax.training.devices import chip_of

TIGHT, TOO_MUCH = 0.8, 1.5
"""Shares of a device's memory by the formula: from the first on a start is warned of, from the second on refused. For
eleven shapes on a CPU the formula gave 0.74 to 1.36 times what XLA's program took; for BERT-base and large on TPUs (by
libtpu's compiler, least effort) 0.55 to 1.42 times."""
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def device_memory(device: jax.Device) -> int | None:
    """Bytes that programs may use on one device; None if unknown. CPU devices share this machine's memory."""
    if device.platform == "cpu":
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = _CGROUP_LIMIT.read_text().strip() if _CGROUP_LIMIT.is_file() else "max"
        return min(whole, int(limit) if limit.isdigit() else whole) // len(jax.local_devices())
    stats = device.memory_stats() or {}
    chip = chip_of(device.device_kind)
    return stats.get("bytes_limit") or (chip and chip.memory and int(chip.memory))


def phase_memory(config: OperationConfig, model: ModelConfig, mesh: Mesh, phase: Phase, predictions: int) -> Memory:
    """The formula for a step of `phase` on one device of `mesh`; `model.vocabulary_size` is set."""
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        return step_memory(
            model,
            config.execution,
            parameters=sum(leaf.size for leaf in jax.tree.leaves(parameter_shapes(model))),
            rows=-(-phase.batch_size // row_shards(mesh)),
            length=phase.length,
            predictions=predictions,
            split=parts(mesh, ("fsdp", "tensor")),
            tensor=parts(mesh, "tensor"),
            kernel=obstacle(config.execution.attention, model, phase.length) is None,
        )


def check_room(memory: Memory, phase: Phase, mesh: Mesh) -> None:
    """Warns if a step may not fit a device's memory. Raises UsageError if it exceeds the memory by a wide margin."""
    there = device_memory(mesh.local_devices[0])
    if there is None or memory.total <= TIGHT * there:
        return
    said = (
        f"a step of {phase.batch_size:,} sequences of {phase.length:,} tokens takes about {gigabytes(memory.total)} a "
        f"device by formula, and each has {gigabytes(there)}"
    )
    state = memory.state + memory.gradients
    less = "a smaller model or --mesh.fsdp over more devices" if state > there else "a smaller batch"
    remedy = f"give {less}, or save memory by --execution.remat full and --execution.accumulation N"
    if memory.total > TOO_MUCH * there:
        raise UsageError(f"{said}; {remedy}")
    say(f"{said}: it may not fit; should it fail, {remedy}")


def gigabytes(size: float) -> str:
    """`size` in bytes, in a unit that suits it."""
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
