"""What of a machine is set before a command works: its compiler, its TPU, and the memory that its C allocator keeps."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import bert_jax
from bert_jax.system import machine
from bert_jax.system.workers import in_own_process

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
HUGE_PAGES = SETTING.read_text() if SETTING.exists() else "[never]"
ON_GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator of glibc")

REUSE = """
import ctypes, resource

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.memset.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
libc.free.argtypes = (ctypes.c_void_p,)


def use(size=200 << 20):
    block = libc.malloc(size)
    libc.memset(block, 1, size)
    libc.free(block)


use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
count = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
"""
FAULTS = f"""
import sys
from bert_jax.system.machine import keep_freed_memory

kept = keep_freed_memory() if sys.argv[1] == "keep" else False
{REUSE}
print(kept, count)
"""


def faults(how, **environment):
    """What `keep_freed_memory` returned, and the page faults of using 200 MB a second time."""
    line = [sys.executable, "-c", FAULTS, how]
    kept, count = subprocess.check_output(line, env=os.environ | environment, text=True).split()
    return kept == "True", int(count)


@ON_GLIBC
def test_memory_that_is_freed_is_used_again_without_page_faults():
    kept, count = faults("keep")
    assert kept and count < 100
    assert faults("leave")[1] > 1000


@ON_GLIBC
@pytest.mark.skipif("[never]" in HUGE_PAGES, reason="this machine's Linux gives no huge pages")
def test_kept_memory_lies_in_huge_pages():
    """Also after protobuf has called malloc_trim, which gives up the end of the heap."""
    script = FAULTS.replace("    libc.free(block)", "    libc.malloc_trim(0)").replace("print(kept, count)", "")
    script += "print(open('/proc/self/smaps').read())"
    lines = subprocess.check_output([sys.executable, "-c", script, "keep"], text=True).splitlines()
    kilobytes = sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))
    assert kilobytes > 190 * 1024  # of 400 MB; Linux has fewer huge pages left while other programs read files


@ON_GLIBC
def test_the_process_of_a_scripts_measurement_reuses_memory_as_a_command_does(tmp_path):
    (tmp_path / "reuse.py").write_text(REUSE)
    count = in_own_process(eval, f"__import__('runpy').run_path({str(tmp_path / 'reuse.py')!r})['count']")
    assert count < 100


@ON_GLIBC
def test_settings_of_the_user_are_left():
    kept, count = faults("keep", GLIBC_TUNABLES="glibc.malloc.arena_max=2")
    assert not kept and count > 1000


def test_the_compiler_logs_nothing_below_fatal_unless_asked(monkeypatch):
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    machine.silence_compiler()
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "3"
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    machine.silence_compiler()
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"


@pytest.mark.parametrize("tpu", [True, False])
def test_libtpu_by_itself_is_no_tpu(tpu, monkeypatch):
    monkeypatch.setattr(machine, "find_spec", lambda name: name == "libtpu")
    monkeypatch.setattr(machine, "entry_points", lambda group: [])
    monkeypatch.setattr(machine, "has_tpu", lambda: tpu)
    monkeypatch.delenv("JAX_PLATFORMS")
    machine.leave_out_absent_tpu()
    assert machine.accelerated() == tpu and os.environ.get("JAX_PLATFORMS") == (None if tpu else "cpu")
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    machine.leave_out_absent_tpu()
    assert os.environ["JAX_PLATFORMS"] == "tpu"


def test_only_functions_that_train_prepare_the_process_to_compute(monkeypatch):
    prepared = []
    monkeypatch.setattr(machine, "prepare_to_compute", lambda: prepared.append("all"))
    monkeypatch.setattr(machine, "leave_out_absent_tpu", lambda: prepared.append("devices"))
    for name in ("pretrain", "finetune", "load"):
        bert_jax.__getattr__(name)
    assert prepared == ["all", "all", "devices"]
