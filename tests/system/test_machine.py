"""The C allocator keeps memory that is freed."""

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator of glibc")

FAULTS = """
import ctypes, resource, sys
from bert_jax.system.machine import keep_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.memset.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
libc.free.argtypes = (ctypes.c_void_p,)


def use(size=200 << 20):
    block = libc.malloc(size)
    libc.memset(block, 1, size)
    libc.free(block)


kept = keep_freed_memory() if sys.argv[1] == "keep" else False
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how, **environment):
    """What `keep_freed_memory` returned, and the page faults of using 200 MB a second time."""
    line = [sys.executable, "-c", FAULTS, how]
    kept, count = subprocess.check_output(line, env=os.environ | environment, text=True).split()
    return kept == "True", int(count)


def test_memory_that_is_freed_is_used_again_without_page_faults():
    kept, count = faults("keep")
    assert kept and count < 100
    assert faults("leave")[1] > 1000


def test_settings_of_the_user_are_left():
    kept, count = faults("keep", GLIBC_TUNABLES="glibc.malloc.arena_max=2")
    assert not kept and count > 1000
