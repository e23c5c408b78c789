import os
import re
import shutil
import subprocess
import sys
import time
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
        pytest.importorskip("shellcheck")  # the name of no module: the full tier fails
    found = subprocess.run([shellcheck, "--shell=bash", *SCRIPTS], capture_output=True, text=True, cwd=ROOT)
    assert (found.returncode, found.stdout) == (0, "")


def test_ci_runs_the_test_command_of_the_readme_and_every_test():
    (readme,) = re.findall(r"^(bash launch/test\.sh[^#\n]*)", (ROOT / "README.md").read_text(), re.MULTILINE)
    ci = re.findall(r"^.*launch/.*$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    readme = readme.strip()
    assert ci == [f"{readme} --tier full", f"VENV=build/quick {readme}", "exec bash launch/check.sh"]
    assert " install test ;;\n" in (ROOT / "launch/test.sh").read_text()


@pytest.mark.parametrize(
    "script", [path for path in SCRIPTS if path.read_text().startswith("#!")], ids=lambda path: path.name
)
def test_what_says_who_runs_it_can_be_run(script):
    assert os.access(script, os.X_OK) or script.name == "tpu_worker.sh"


@pytest.mark.parametrize("script", ["check.sh", "gpu.sh", "local.sh", "soak.sh", "test.sh", "tpu.sh", "tpu_worker.sh"])
def test_help_prints_the_usage_and_does_nothing(script, place):
    before = sorted(place.project.rglob("*"))
    code, said = place.run(script, "--help")
    first = (ROOT / "launch" / script).read_text().splitlines()[1]
    assert code == 0 and said.startswith(f"{first.removeprefix('# ')}\n")
    assert sorted(place.project.rglob("*")) == before and not list(place.world.iterdir())


ATTENDED = 'trap "echo >>signals; rm -f armed; kill \\$!" TERM; sleep 20 & : >armed; wait; sleep 0.2; exit 5'
BEFORE_ITS_NUMBER_IS_KNOWN = '"child=\\$!") until [ -e armed ]; do sleep 0.02; done; kill -TERM $$ ;;'
AS_SOON_AS_ITS_NUMBER_IS_KNOWN = '"[ -n "*) until [ -e armed ]; do sleep 0.02; done; kill -TERM $$; sleep 0.1 ;;'
WHEN_IT_HAS_ENDED_BEFORE_ANYONE_LOOKS = '"kill -0"*) while [ -e armed ]; do sleep 0.02; done; sleep 0.1 ;;'


@pytest.mark.parametrize(
    "moment",
    [BEFORE_ITS_NUMBER_IS_KNOWN, AS_SOON_AS_ITS_NUMBER_IS_KNOWN, WHEN_IT_HAS_ENDED_BEFORE_ANYONE_LOOKS],
)
def test_a_signal_reaches_what_is_attended_once_whenever_it_comes(moment, tmp_path):
    hook = f"""set -T; trap 'case "$BASH_COMMAND" in {moment} esac' DEBUG"""  # before each command of `attend`
    script = f". {ROOT}/launch/again.sh; {hook}; attend bash -c '{ATTENDED}'"
    process = subprocess.Popen(["bash", "-c", script], cwd=tmp_path)
    if moment == WHEN_IT_HAS_ENDED_BEFORE_ANYONE_LOOKS:
        while not (tmp_path / "armed").exists():
            time.sleep(0.02)
        process.terminate()
    assert process.wait(timeout=10) == 5
    assert (tmp_path / "signals").read_text() == "\n"  # passed on once
