"""How launch/setup.sh makes an environment, with a stand-in of Python that notes what is asked of it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = """#!/bin/bash
echo "$*" >>"$NOTED"
case "$*" in
  "-m venv "*)
    for folder; do :; done
    mkdir -p "$folder/bin" && cp "$0" "$folder/bin/python" && touch "$folder/pyvenv.cfg" ;;
  "-m pip --version") ;;
  "-m pip "*" --quiet "*) exit 1 ;;
  "-m pip "*)
    printf '%s\\n' "Collecting jax" "  Downloading jax-1.metadata" "  Downloading jax-1.whl (3 MB)"
    rm -f "$VENV/project" && echo "$PWD" >"$VENV/project" ;; # as pip: it replaces a file
  *version*) echo 3.12 ;;
esac
"""


@pytest.fixture
def install(tmp_path):
    """Installs in a checkout of that name; returns what Python was asked for."""
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)

    def installed(name, requirements="", versions="tested", extra="test", environment=".venv") -> list[str]:
        checkout, noted = tmp_path / name, tmp_path / "noted"
        (checkout / "launch").mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "launch/setup.sh", checkout / "launch")
        (checkout / "launch/constraints.txt").write_text(requirements)
        (checkout / "setup.cfg").touch()
        noted.write_text("")
        own = {"PYTHON": str(python), "NOTED": str(noted), "ENVIRONMENTS": str(tmp_path / "kept"), "VENV": environment}
        own["VERSIONS"] = versions
        shell = ["bash", "-euo", "pipefail", "-c", f". launch/setup.sh; install {extra}"]
        done = subprocess.run(shell, cwd=checkout, env=os.environ | own, check=True, capture_output=True, text=True)
        (tmp_path / "said").write_text(done.stdout)
        assert (checkout / environment / "project").read_text() == f"{checkout}\n"
        lines = [line for line in noted.read_text().splitlines() if line != "-m pip --version"]
        return [line.split()[1] for line in lines if line.startswith("-m")]

    return installed


def test_a_checkout_takes_the_environment_that_another_made_of_the_same_requirements(install, tmp_path):
    assert install("one") == ["venv", "pip"]
    assert install("one") == []
    assert install("two") == ["pip"]  # the project itself
    assert (tmp_path / "one/.venv/project").read_text() == f"{tmp_path}/one\n"
    assert install("three", "others") == ["venv", "pip"]


def test_what_an_extra_holds_is_not_installed_again(install):
    assert install("one", extra="full") == ["venv", "pip"] and install("one") == []
    assert install("two") == ["venv", "pip"] and install("two", extra="full") == ["pip"]
    assert install("two", extra="dev") == ["pip"] and install("two", extra="full") == install("two") == []


def test_an_environment_is_of_the_requirements_that_were_installed_last(install):
    assert install("one", "these") == ["venv", "pip"] and install("one", "others") == ["pip"]
    assert install("one", "these") == ["pip"] and install("one", "these") == []
    assert install("one", "these", versions="newest") == ["pip"] and install("one", "these") == ["pip"]


def test_an_environment_may_lie_in_a_folder_that_a_checkout_lacks(install):
    assert install("one", environment="build/quick") == ["venv", "pip"]
    assert install("two", environment="build/quick") == ["pip"]


@pytest.fixture
def half_made(install, tmp_path):
    """An environment whose making was cut off."""
    install("one")
    (tmp_path / "one/.venv/installed").unlink()
    (tmp_path / "one/.venv/bin/python").write_text("#!/bin/bash\nexit 1\n")


@pytest.mark.parametrize("known", [True, False])
def test_an_environment_whose_making_was_cut_off_is_made_anew(half_made, install, tmp_path, known):
    """And cleared, if it is known to be one: a folder of that name may hold other things."""
    if not known:
        (tmp_path / "one/.venv/pyvenv.cfg").unlink()
    assert install("one") == ["venv", "pip"]
    assert ("-m venv --clear .venv" in (tmp_path / "noted").read_text()) == known


@pytest.mark.parametrize("package, kept", [("jax-1", True), ("pip-1", False)])
def test_an_environment_with_packages_and_without_pip_is_no_half_made_one(half_made, install, tmp_path, package, kept):
    """As one that uv made, which has no pip; it isn't cleared."""
    (tmp_path / f"one/.venv/lib/python3.12/site-packages/{package}.dist-info").mkdir(parents=True)
    if not kept:
        assert install("one") == ["venv", "pip"]
        return
    with pytest.raises(subprocess.CalledProcessError) as failed:
        install("one")
    assert failed.value.returncode == 2 and ".venv has packages and no pip that works" in failed.value.stderr


def test_setup_says_what_is_installed_and_passes_on_what_pip_downloads(install, tmp_path):
    install("one")
    said = (tmp_path / "said").read_text().splitlines()
    assert "Installing bert_jax with the extra(s) test" in said[-2] and said[-1] == "  Downloading jax-1.whl (3 MB)"


def test_the_environments_that_were_used_last_are_kept(install, tmp_path):
    for number in range(8):
        install(f"checkout{number}", f"requirements {number}")
        for kept in (tmp_path / "kept").iterdir():  # time passes
            os.utime(kept, (kept.stat().st_mtime - 60,) * 2)
    assert len(list((tmp_path / "kept").iterdir())) == 6
    assert install("newest", "requirements 7") == ["pip"] and install("oldest", "requirements 0") == ["venv", "pip"]


@pytest.mark.parametrize(
    "versions, asked, constraints",
    [
        ("tested", ["venv", "pip"], "launch/constraints.txt"),
        ("oldest", ["venv", "pip", "uv", "pip"], ".venv/oldest.txt"),
        ("newest", ["venv", "pip"], "/dev/null"),
    ],
)
def test_the_oldest_and_the_newest_packages_may_be_installed(install, tmp_path, versions, asked, constraints):
    assert install("one", versions=versions) == asked
    noted = (tmp_path / "noted").read_text()
    assert f"--constraint {constraints} --editable .[test]" in noted
    assert ("--resolution lowest-direct --extra test" in noted) == (versions == "oldest")
    assert install("one", versions=versions) == []


def test_other_names_of_versions_are_refused(install):
    with pytest.raises(subprocess.CalledProcessError) as refused:
        install("one", versions="old")
    assert refused.value.stderr == "VERSIONS=old is none of tested, oldest and newest\n"
