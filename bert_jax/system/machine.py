"""The machine before JAX starts: its accelerators, and the C library's memory allocator."""

import ctypes
import mmap
import os
import re
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from bert_jax.system.errors import UsageError, first_line

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
"""M_TRIM_THRESHOLD, M_MMAP_MAX and M_ARENA_MAX of <malloc.h>."""
_VARIABLE = re.compile(r"\bJAX_\w+")
_HUGE_PAGE = 2 << 20
"""Bytes of a huge page on x86-64, and on ARM with pages of 4 KiB."""


def has_tpu() -> bool:
    """Whether this machine has TPU devices, under the driver's old or new name."""
    return any(Path("/dev").glob("accel*")) or any(Path("/dev/vfio").glob("[0-9]*"))


def in_slurm_step() -> bool:
    """Whether this process is one of the several tasks of a Slurm step."""
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1


def may_be_one_of_several(coordinator: str | None) -> bool:
    """Whether this process may be one of several hosts: by the address of their coordinator, in a Slurm step of several
    tasks, or on a TPU."""
    return coordinator is not None or in_slurm_step() or has_tpu()


def accelerated() -> bool:
    """Whether JAX may find a GPU or a TPU."""
    return bool(entry_points(group="jax_plugins")) or has_tpu()


def environment_fault(error: BaseException | None = None) -> UsageError | None:
    """The error for an environment variable that JAX can't use, if `error` comes from one or no device is found.
    JAX reads its variables when it is imported, and looks for devices when it first computes."""
    name = next(iter(_VARIABLE.findall(str(error).upper())), "") if isinstance(error, ValueError) else "JAX_PLATFORMS"
    if name not in os.environ or name == "JAX_PLATFORMS" and "jax" not in sys.modules:
        return None
    if name == "JAX_PLATFORMS":
        try:
            sys.modules["jax"].local_devices()
            return None
        except (RuntimeError, AssertionError) as missing:  # JAX 0.10.2 asserts that there is a device
            error = missing if str(missing) else RuntimeError("JAX finds no such device")
    return UsageError(f"{name}={os.environ[name]} can't be used here ({first_line(error or name)}); unset or change it")


def prepare_to_compute() -> None:
    """Prepares a command before JAX is imported: avoids the search for an absent TPU and, on a CPU, keeps freed
    memory."""
    leave_out_absent_tpu()
    if not accelerated():  # on a GPU or TPU the host's memory hardly matters, but XLA's log does
        keep_freed_memory()
        silence_compiler()


def leave_out_absent_tpu() -> None:
    """Keeps JAX from looking for a TPU if libtpu is installed only for `plan`. The search would take a second and print
    warnings. Must be called before JAX computes anything. Platforms that the user has chosen are kept."""
    if find_spec("libtpu") is None or accelerated():
        return
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if (jax := sys.modules.get("jax")) and not jax.config.jax_platforms:  # JAX has already read the variable
        jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])


def silence_compiler() -> None:
    """Keeps XLA from logging paragraphs amid the output if a program takes over two minutes to compile. XLA logs them
    at its level ERROR, and only the whole level can be turned off. Errors on a CPU still reach Python as exceptions.
    Must be called before JAX is imported. A level that the user has chosen is kept."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def keep_freed_memory() -> bool:
    """Makes the C allocator keep freed memory for the next allocation, in huge pages; returns whether it keeps it.

    XLA on the CPU allocates and frees 100 MB and more at every step. By default glibc maps large blocks afresh each
    time, and the page faults can double the time of a small model's step. Huge pages save another fifth of the step,
    because the processor finds more of the addresses in its cache of translations. This function does nothing if the C
    library isn't glibc or if GLIBC_TUNABLES already sets the allocator. Must be called before threads start, which
    would otherwise get separate arenas.
    """
    libc = ctypes.CDLL(None)
    mallopt = getattr(libc, "mallopt", None)
    if mallopt is None or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    one_heap = mallopt(_ARENA_MAX, 1) and mallopt(_MMAP_MAX, 0)
    keeps = bool(one_heap and mallopt(_TRIM_THRESHOLD, -1))  # -1: freed memory never goes back to the system
    if keeps:
        _advise_huge_pages(libc)
    return keeps


def _advise_huge_pages(libc: ctypes.CDLL) -> None:
    """Asks Linux to use huge pages for the heap that follows, up to the size of the machine's memory.

    The addresses are reserved by allocating and freeing them; they take no memory until they are used. A small block
    behind them, never freed, keeps `malloc_trim`, which protobuf calls, from releasing them. If the system refuses so
    many addresses, for example under `ulimit -v`, nothing changes.
    """
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.free.argtypes = (ctypes.c_void_p,)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _HUGE_PAGE
    if block := libc.malloc(pages * _HUGE_PAGE):
        libc.malloc(1 << 16)
        libc.madvise(-(-block // _HUGE_PAGE) * _HUGE_PAGE, (pages - 1) * _HUGE_PAGE, mmap.MADV_HUGEPAGE)
        libc.free(block)
