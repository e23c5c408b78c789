"""Settings of glibc's memory allocator, made while the process runs."""

import ctypes
import os

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
"""M_TRIM_THRESHOLD, M_MMAP_MAX and M_ARENA_MAX of <malloc.h>."""


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
