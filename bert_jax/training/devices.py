"""What the machine is: peak rates, and where compiled programs are kept."""

import os
from typing import NamedTuple

import jax

from bert_jax.config.model import ModelConfig
from bert_jax.model.size import encoder_flops
from bert_jax.system.copies import cache_directory


class Chip(NamedTuple):
    """Peak rates and memory of one chip."""

    flops: float
    """Dense bfloat16 FLOP/s at its peak."""
    memory: float | None = None
    """Bytes that a program may use: the chip's, less what the system keeps. None where nothing is planned for it."""
    memory_bandwidth: float | None = None
    """Bytes a second to and from memory."""
    link_bandwidth: float | None = None
    """Bytes a second over one link to a neighbouring chip, each way."""


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
    "NVIDIA A100": Chip(312e12),
    "NVIDIA H100": Chip(989e12),
    "NVIDIA H200": Chip(989e12),
}
"""By the beginning of a device's name. From the makers' data sheets, for TPUs https://cloud.google.com/tpu/docs/v4 to
v6e: 32, 16, 95 and 32 GB of memory, of which libtpu 0.0.52 lets a program have what is written here; 2,400, 1,600,
4,800 and 3,200 Gbit/s each way over 6, 4, 6 and 4 links."""


_COMPILING_FLOPS = {"cpu": 6 * 1e11, "accelerator": 20 * 1e14}
"""Computed while one train step compiles, in its seconds times the rate meanwhile. The forward pass alone takes a third
of both."""
_TYPICAL_LENGTH = 128


def chip_of(kind: str) -> Chip | None:
    """The chip of a device whose `device_kind` is `kind`; None if it isn't known, as of a CPU."""
    names = [name for name in CHIPS if kind.startswith(name)]
    return CHIPS[max(names, key=len)] if names else None


def peak_flops(device: jax.Device) -> float | None:
    """The peak of `device`; None where it isn't known."""
    chip = chip_of(device.device_kind)
    return chip and chip.flops


def keep_compiled_programs() -> None:
    """Turns on JAX' compilation cache, in $JAX_COMPILATION_CACHE_DIR or the user's cache directory."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", os.fspath(cache_directory() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def compiling_tokens(model: ModelConfig) -> float:
    """Tokens that `model` computes in the time that compiling one more shape takes, roughly; the same in training.

    By formula and not by the clock, so that the shapes that are chosen by it are the same every time.
    """
    rate = _COMPILING_FLOPS["cpu" if jax.default_backend() == "cpu" else "accelerator"]
    return rate * _TYPICAL_LENGTH / (3 * encoder_flops(model, _TYPICAL_LENGTH, _TYPICAL_LENGTH))


def tokens_at_once() -> int:
    """Make a batch where nothing is learned, padding counted: enough to keep an accelerator busy, and few enough for a
    CPU's caches."""
    return 1 << 11 if jax.default_backend() == "cpu" else 1 << 13
