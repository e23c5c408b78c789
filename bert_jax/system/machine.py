"""The machine before JAX starts: its accelerators, and the C library's memory allocator."""

import ctypes
import os
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
"""M_TRIM_THRESHOLD, M_MMAP_MAX and M_ARENA_MAX of <malloc.h>."""


def has_tpu() -> bool:
    """Whether this machine has TPU devices, under the driver's old or new name."""
    return any(Path("/dev").glob("accel*")) or any(Path("/dev/vfio").glob("[0-9]*"))


def accelerated() -> bool:
    """Whether JAX may find a GPU or a TPU."""
    return bool(entry_points(group="jax_plugins")) or has_tpu()


def prepare_to_compute() -> None:
    """Prepares a command before JAX is imported: avoids the search for an absent TPU and, on a CPU, keeps freed
    memory."""
    leave_out_absent_tpu()
    if not accelerated():  # on a GPU or TPU the host's memory hardly matters, but XLA's log does
        keep_freed_memory()
        silence_compiler()


def leave_out_absent_tpu() -> None:
    """Keeps JAX from looking for a TPU if libtpu is installed only for `plan`. The search would take a second and print
    warnings.

    Must be called before JAX computes anything. Platforms that the user has chosen are kept.
    """
    if find_spec("libtpu") is None or accelerated():
        return
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if (jax := sys.modules.get("jax")) and not jax.config.jax_platforms:  # JAX has already read the variable
        jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])


def silence_compiler() -> None:
    """Keeps XLA from logging paragraphs amid the output if a program takes over two minutes to compile. XLA logs them
    at its level ERROR, and only the whole level can be turned off. Errors on a CPU still reach Python as exceptions.
    Must be called before JAX is imported. A level that the user has chosen is kept.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def keep_freed_memory() -> bool:
    """Makes the C allocator keep freed memory for the next allocation; returns whether it does.

    XLA on the CPU allocates and frees 100 MB and more at every step. By default glibc maps large blocks afresh each
    time, and the page faults more than double the time of a small model's step. This function does nothing if the C
    library isn't glibc or if GLIBC_TUNABLES already sets the allocator. Must be called before threads start, which
    would otherwise get arenas of their own.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    one_heap = mallopt(_ARENA_MAX, 1) and mallopt(_MMAP_MAX, 0)
    return bool(one_heap and mallopt(_TRIM_THRESHOLD, -1))  # -1: freed memory never goes back to the system
