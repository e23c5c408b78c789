"""What an installation that is not editable holds."""

import configparser
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from conftest import MAY_SKIP, skip_checked
from setuptools import find_namespace_packages

ROOT = Path(__file__).parents[1]


def test_setup_names_every_package():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    code = find_namespace_packages(str(ROOT), include=["bert_jax*"])
    configs = [f"bert_jax.{name}" for name in find_namespace_packages(str(ROOT), include=["configs*"])]
    assert sorted(setup["options"]["packages"].split()) == sorted([*code, *configs])


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder into which the project was built, as a wheel of it is."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in ("bert_jax", "configs", "setup.cfg", "README.md"):
        (source / name).symlink_to(ROOT / name)  # a build leaves files where it runs
    build = f"import setuptools; setuptools.setup(script_args=['-q', 'build_py', '--build-lib', {str(built)!r}])"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    return built


def bert_jax(folder: Path, *words: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), sysconfig.get_path("purelib")])}
    line = [sys.executable, "-S", "-m", "bert_jax.cli.main", *words]  # -S: so that no editable installation is found
    return subprocess.run(line, cwd=folder / "bert_jax", env=environment, capture_output=True, text=True)


def test_an_installation_has_the_configs_by_name_from_anywhere(installed):
    listed = bert_jax(installed, "configs")
    assert listed.returncode == 0 and "demo" in listed.stdout and "sst2" in listed.stdout, listed.stderr
    for name in ("demo", "sst2", "experiments/modern_muon"):
        printed = bert_jax(installed, "configs", name)
        assert printed.returncode == 0 and "\nconfig = " in printed.stdout, printed.stderr
    for name in ("demo", "ablations/mlm", "configs/demo.py"):
        assert "--model.num-layers N            Layers of the encoder (L). (default: 2)" in (
            bert_jax(installed, "pretrain", name, "--help").stdout
        ), name


def test_an_installation_tells_type_checkers_of_its_annotations(installed):
    assert (installed / "bert_jax" / "py.typed").is_file()


def test_a_skip_for_want_of_a_package_fails():
    for reason in ("could not import 'torch': No module named 'torch'", *MAY_SKIP):
        longrepr = ("test_file.py", 3, f"Skipped: {reason}")
        report = pytest.TestReport("test_file.py::test", ("", 0, ""), {}, "skipped", longrepr, "call")
        assert skip_checked(report).failed == (reason not in MAY_SKIP), reason
