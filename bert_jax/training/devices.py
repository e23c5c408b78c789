"""Devices: peak rates and memory, whether a training fits, and the times of computations."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, DTypeLike

from bert_jax.config.finetune import AnyRunConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.training import Phase
from bert_jax.model.kernels.attention_forms import check_attention
from bert_jax.model.kernels.products import product
from bert_jax.model.sharding import check_batch_size, row_shards
from bert_jax.model.size import Memory, encoder_flops
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.figures import gigabytes
from bert_jax.system.progress import say

_COMPILER_OPTIONS: dict[str, dict[str, bool | int]] = {
    # A step takes the same time as at LLVM's level 3, and compiles in five sixths of the time. At level 0 it takes
    # three times as long.
    "cpu": {"xla_backend_optimization_level": 1},
    "gpu": {
        # Overlaps collectives with computation.
        "xla_gpu_enable_latency_hiding_scheduler": True,
        # cuBLAS computes the products: it adds biases and residuals itself, and needs half the time to compile. On an
        # H200, XLA chose it over Triton for nearly all products of BERT-base anyway.
        "xla_gpu_enable_triton_gemm": False,
        # Takes the code that cuBLAS proposes for a product. Otherwise XLA would time several in each process, and a
        # continued training could get other code and other bits. On an H200, steps of BERT-base take the same time
        # either way.
        "xla_gpu_autotune_level": 0,
    },
}
"""XLA options for training steps, by kind of device, that differ from XLA's defaults.
https://docs.jax.dev/en/latest/gpu_performance_tips.html. The launchers set those of TPUs (launch/flags.sh), which
libtpu reads from the environment."""

_COMPILING_FLOPS = {"cpu": 30 * 1e11, "accelerator": 20 * 1e14}
"""FLOPs that a device could compute while one training step compiles. The forward pass alone has a third of the FLOPs
a token and takes a third of the time to compile, so the number of tokens in that time is the same."""
_TYPICAL_LENGTH = 128
_SHORTEST_TEXT = 3
"""Tokens of the shortest text: [CLS], a piece, [SEP]."""
TIGHT, TOO_MUCH = 0.8, 1.5
"""A training that takes more than the share TIGHT of a device's memory by formula gets a warning; one that takes more
than TOO_MUCH is refused. The formula gave 0.74 to 1.36 times the memory of XLA's program for eleven shapes on a CPU,
and 0.55 to 1.42 times for BERT-base and large on TPUs (by libtpu's compiler at its least effort)."""
_SAVING = "save memory by --execution.remat full and --execution.accumulation N"
LESS_MEMORY = f"give a smaller batch, or {_SAVING}"
"""The remedy for a step that doesn't fit."""
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class Chip(NamedTuple):
    """Peak rates and memory of one chip."""

    flops: float
    """Dense bfloat16 FLOP/s at its peak."""
    memory: float = 0.0
    """Bytes that a program may use: the chip's memory minus the system's part. 0 for chips that `plan` doesn't know."""
    memory_bandwidth: float = 0.0
    """Bytes a second to and from memory."""
    link_bandwidth: float = 0.0
    """Bytes a second over one link to a neighbouring chip, each way; 0 for chips that `plan` doesn't know."""


_V5E = Chip(197e12, 15.75 * 2**30, 819e9, 50e9)
_V5P = Chip(459e12, 95.73 * 2**30, 2765e9, 100e9)
_V6E = Chip(918e12, 31.24 * 2**30, 1638e9, 100e9)

CHIPS = {
    "TPU v4": Chip(275e12, 30.75 * 2**30, 1200e9, 50e9),
    "TPU v5 lite": _V5E,
    "TPU v5e": _V5E,
    "TPU v5": _V5P,
    "TPU v5p": _V5P,
    "TPU v6 lite": _V6E,
    "TPU v6e": _V6E,
    "NVIDIA A100": Chip(312e12, memory_bandwidth=2039e9),
    "NVIDIA A100-SXM4-40GB": Chip(312e12, memory_bandwidth=1555e9),
    "NVIDIA A100-PCIE-40GB": Chip(312e12, memory_bandwidth=1555e9),
    "NVIDIA A100 80GB PCIe": Chip(312e12, memory_bandwidth=1935e9),
    "NVIDIA H100": Chip(989e12, memory_bandwidth=3350e9),
    "NVIDIA H100 PCIe": Chip(756e12, memory_bandwidth=2000e9),
    "NVIDIA H100 NVL": Chip(835e12, memory_bandwidth=3900e9),
    "NVIDIA H200": Chip(989e12, memory_bandwidth=4800e9),
    "NVIDIA H200 NVL": Chip(835e12, memory_bandwidth=4800e9),
}
"""Chips by the beginning of a device's name, from the makers' data sheets. The data sheets of TPUs are
https://cloud.google.com/tpu/docs/v4 to v6e. They give 32, 16, 95 and 32 GB of memory; the table has the part that
libtpu 0.0.52 lets a program use. All links of a chip together carry 2,400, 1,600, 4,800 and 3,200 Gbit/s each way, over
6, 4, 6 and 4 links."""


TPU_FAMILIES = ("v4", "v5e", "v5p", "v6e")
"""TPU generations whose chips `plan` knows."""


Work = dict[str, Callable[[], object]]
"""Functions to be timed, by name. Each call returns arrays to wait for."""
_WARM_ROUNDS, _LEAST_ROUNDS = 2, 5
"""Number of first rounds that aren't measured, and least number of measured rounds."""


class SquareProduct(NamedTuple):
    """A product of two square matrices; its time gives a device's matrix rate."""

    run: Callable[[], Array]
    flops: int
    """FLOPs of one run."""

    @classmethod
    def of(cls, size: int, dtype: DTypeLike) -> "SquareProduct":
        """The product of two random `size` x `size` matrices of `dtype` on one device, with a float32 result."""
        factors = [jax.random.normal(jax.random.key(number), (size, size), dtype) for number in range(2)]
        multiply = jax.jit(lambda a, b: product(a, b, jnp.float32))
        return cls(lambda: multiply(*factors), 2 * size**3)


def compiler_options(platform: str) -> dict[str, bool | int]:
    """XLA's options for a training step on devices of this kind, without those that $XLA_FLAGS sets. Empty for a CPU if
    $JAX_DISABLE_MOST_OPTIMIZATIONS asks for the lowest level."""
    lowest = platform == "cpu" and bool(os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS"))
    options = {} if lowest else _COMPILER_OPTIONS.get(platform, {})
    return {name: value for name, value in options.items() if f"--{name}" not in os.environ.get("XLA_FLAGS", "")}


def chip_of(kind: str) -> Chip | None:
    """The chip of a device whose `device_kind` is `kind`; None if it isn't known, as for a CPU."""
    names = [name for name in CHIPS if kind.startswith(name)]
    return CHIPS[max(names, key=len)] if names else None


def peak_flops(device: jax.Device) -> float | None:
    """Peak FLOP/s of `device`; None if it isn't known."""
    chip = chip_of(device.device_kind)
    return chip and chip.flops


def compiling_tokens(model: ModelConfig) -> float:
    """Roughly the number of tokens that `model` computes in the time of compiling one more shape. It comes from a
    formula instead of a clock, so that the shapes chosen by it are always the same."""
    rate = _COMPILING_FLOPS["cpu" if jax.default_backend() == "cpu" else "accelerator"]
    return rate * _TYPICAL_LENGTH / (3 * encoder_flops(model, _TYPICAL_LENGTH, _TYPICAL_LENGTH))


def tokens_at_once() -> int:
    """Tokens of a batch in inference, with padding: enough for an accelerator, few enough for a CPU's caches."""
    return 1 << 11 if jax.default_backend() == "cpu" else 1 << 13


def device_memory(device: jax.Device) -> int | None:
    """Bytes that programs may use on one device; None if unknown. CPU devices share this machine's memory."""
    if device.platform == "cpu":
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = _CGROUP_LIMIT.read_text().strip() if _CGROUP_LIMIT.is_file() else "max"
        return min(whole, int(limit) if limit.isdigit() else whole) // len(jax.local_devices())
    if bytes_limit := (device.memory_stats() or {}).get("bytes_limit"):
        return bytes_limit
    chip = chip_of(device.device_kind)
    return int(chip.memory) if chip and chip.memory else None


def check_room(memory: Memory, phase: Phase, mesh: Mesh, batch_size: str) -> None:
    """Warns if a step may not fit a device's memory. Raises UsageError if it exceeds the memory by a wide margin.

    `batch_size`: the flag that sets the batch size of this phase.
    """
    limit = device_memory(mesh.local_devices[0])
    if limit is None or memory.total <= TIGHT * limit:
        return
    step = f"a step of {phase.batch_size:,} rows of {phase.length:,} tokens ({batch_size})"
    estimate = f"{step} takes about {gigabytes(memory.total)} a device by formula, and each has {gigabytes(limit)}"
    state = memory.state + memory.gradients
    less = "a smaller model or --mesh.fsdp over more devices" if state > limit else "a smaller batch"
    remedy = f"give {less}, or {_SAVING}"
    if memory.total > TOO_MUCH * limit:
        raise UsageError(f"{estimate}; {remedy}")
    say(f"{estimate}: it may not fit; should it fail, {remedy}")


def with_even_batches(config: AnyRunConfig, mesh: Mesh) -> AnyRunConfig:
    """`config` with the rows of a fine-tuning's step rounded up so that they divide evenly over the devices of `mesh`;
    a config of pretraining is returned unchanged.

    Raises UsageError if a batch can't be divided over the devices, if the rows are too short for their texts, or if the
    attention can't be computed there.
    """
    for size in config.batch_sizes.values():
        check_batch_size(size, config.execution.accumulation, mesh)
    if config.task:
        [phase], multiple = config.phases, config.execution.accumulation * row_shards(mesh)
        config = config.replace(phases=(phase.replace(batch_size=-(-phase.batch_size // multiple) * multiple),))
        [(length, texts)] = config.rows
        if texts * _SHORTEST_TEXT > length:
            raise UsageError(
                f"{Setting('phases.0.batch_size', config.phases[0].batch_size)} rows of "
                f"{Setting('phases.0.length', length)} tokens are too few for {config.sequences(0):,} texts; "
                "raise one of the two"
            )
    check_attention(config.execution, config.model, config.rows, mesh)
    return config


def timed_in_turn(work: Work, seconds: float, clock: Callable[[], float] = time.perf_counter) -> dict[str, list[float]]:
    """Runs all of `work` in rounds, and returns the seconds of each run by name.

    After at least _LEAST_ROUNDS, ends when the last item of `work` has taken `seconds` in all or, if that item is much
    shorter than the others, when the items have taken `seconds` on average.
    """
    times: dict[str, list[float]] = {name: [] for name in work}
    *_, last = work
    number = -_WARM_ROUNDS
    while True:
        for name, do in work.items():
            began = clock()
            jax.block_until_ready(do())
            if number >= 0:
                times[name].append(clock() - began)
        enough = sum(times[last]) >= seconds or sum(map(sum, times.values())) >= seconds * len(work)
        number += 1
        if number >= _LEAST_ROUNDS and enough:
            return times
