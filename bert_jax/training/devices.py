"""What the machine is: peak rates, and where compiled programs are kept."""

import os

import jax

from bert_jax.system.copies import cache_directory

PEAK_FLOPS = {
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v5p": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
    "NVIDIA A100": 312e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H200": 989e12,
}
"""Dense bfloat16 FLOP/s of a chip by the beginning of its name, from the makers' data sheets."""


def peak_flops(device: jax.Device) -> float | None:
    """The peak of `device`; None where it isn't known (a CPU)."""
    names = [name for name in PEAK_FLOPS if device.device_kind.startswith(name)]
    return PEAK_FLOPS[max(names, key=len)] if names else None


def keep_compiled_programs() -> None:
    """Turns on JAX' compilation cache, in $JAX_COMPILATION_CACHE_DIR or the user's cache directory."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", os.fspath(cache_directory() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
