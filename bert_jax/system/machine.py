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
    """What a command does before JAX is imported: it looks for no absent TPU and, on a CPU, keeps freed memory."""
    leave_out_absent_tpu()
    if not accelerated():  # on a GPU or TPU the host's memory hardly matters, and XLA's log does
        keep_freed_memory()
        silence_compiler()


def leave_out_absent_tpu() -> None:
    """Keeps JAX from looking for a TPU if libtpu is installed only for `plan`: that takes a second and prints warnings.

    To be called before JAX computes anything. Platforms that the user has chosen are kept.
    """
    if find_spec("libtpu") is None or accelerated():
        return
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if (jax := sys.modules.get("jax")) and not jax.config.jax_platforms:  # it has read the variable already
        jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])


def silence_compiler() -> None:
    """Keeps XLA from logging paragraphs amid the output where a program takes over two minutes to compile.

    They are of its level ERROR, and no smaller unit can be turned off. What fails on a CPU reaches Python as an
    exception. To be called before JAX is imported; a level that the user has chosen is kept.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def keep_freed_memory() -> bool:
    """Has the C allocator keep memory that is freed, for the next allocation; returns whether it does.

    XLA on the CPU allocates and frees 100 MB and more at every step. By default glibc maps large blocks afresh each
    time, and the page faults more than double the time of a small model's step. It doesn't, and this does nothing,
    where the C library isn't glibc or GLIBC_TUNABLES already has settings of the allocator. To be called before
    threads start, which would otherwise get arenas of their own.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    one_heap = mallopt(_ARENA_MAX, 1) and mallopt(_MMAP_MAX, 0)
    return bool(one_heap and mallopt(_TRIM_THRESHOLD, -1))  # -1: freed memory never goes back to the system
