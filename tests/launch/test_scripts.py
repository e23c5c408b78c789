import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    *sorted((ROOT / "launch").glob("*.sh")),
    ROOT / ".ci/run",
    *sorted((ROOT / "tests/launch/standins").iterdir()),
]


def test_shellcheck_finds_nothing():
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if not shellcheck:
        pytest.skip("shellcheck isn't installed; the extra `test` brings it")
    found = subprocess.run([shellcheck, "--shell=bash", *SCRIPTS], capture_output=True, text=True, cwd=ROOT)
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.parametrize(
    "script", [path for path in SCRIPTS if path.read_text().startswith("#!")], ids=lambda path: path.name
)
def test_what_says_who_runs_it_can_be_run(script):
    assert os.access(script, os.X_OK) or script.name == "tpu_worker.sh"


def test_xla_knows_our_flags_and_ends_at_others():
    def ends(more: str) -> int:
        program = "import jaxlib._jax as lib; lib.CompileOptions().executable_build_options.debug_options"
        script = f'. launch/flags.sh; gpu_flags; exec {sys.executable} -c "{program}"'
        return subprocess.run(["bash", "-c", script], cwd=ROOT, env=os.environ | {"XLA_FLAGS": more}).returncode

    assert ends("") == 0
    assert ends("--xla_gpu_no_such_flag=1") != 0
