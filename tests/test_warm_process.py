"""A program that is forked from the server is to its caller what one that Python was started for is."""

import os
import subprocess

import pytest
from conftest import program
from warm_process import WarmProcess, can_be_warm

pytestmark = pytest.mark.skipif(not can_be_warm(os.environ), reason="processes are adopted on Linux alone")

TELLING = """
import os, sys
from jax._src import xla_bridge

print(os.getppid(), os.getsid(0) == os.getpid(), os.getcwd(), os.environ.get("GIVEN"), sys.argv[1:])
print(xla_bridge.backends_are_initialized(), "bert_jax.pretraining.pretrain" in sys.modules)
print("an error", file=sys.stderr)
sys.exit(3)
"""
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@pytest.mark.parametrize("leads", [True, False])
def test_it_is_a_child_with_its_own_session_folder_variables_and_pipes(tmp_path, leads):
    process = WarmProcess(
        [TELLING, "an argument", 4], cwd=tmp_path, env=os.environ | {"GIVEN": "yes"}, start_new_session=leads, **PIPES
    )
    output, said = process.communicate(timeout=60)
    assert process.returncode == 3 and said == "an error\n"
    first, second = output.splitlines()
    assert first == f"{os.getpid()} {leads} {tmp_path} yes ['an argument', '4']"
    assert second == "False True"


def test_no_more_processes_are_adopted_than_were_asked_for():
    """What a program leaves behind goes to the system's first process, as ever."""
    leaving = "import os, time; print(os.fork() or time.sleep(0.2) or os.getppid(), flush=True)"
    process = WarmProcess([leaving], **PIPES)
    assert process.wait(60) == 0
    parents = {int(line) for line in process.communicate(timeout=60)[0].split()}
    assert os.getpid() not in parents


def test_variables_that_imports_read_have_python_started_anew():
    assert not can_be_warm(os.environ | {"JAX_PLATFORMS": "tpu"})
    process = program("import jax; print(jax.config.jax_enable_x64)", env=os.environ | {"JAX_ENABLE_X64": "1"}, **PIPES)
    assert process.communicate(timeout=60)[0] == "True\n"
