"""What is installed: all packages of the project, and the configs."""

import configparser
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
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
    """The folder into which a wheel of the project was unpacked."""
    made, folder = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("installed")
    build = f"import setuptools.build_meta as build; print(build.build_wheel({str(made)!r}))"
    source = tmp_path_factory.mktemp("source")  # a build leaves its folders where it runs
    for name in ("bert_jax", "configs", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).symlink_to(ROOT / name)
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    [wheel] = made.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def bert_jax(folder: Path, *words: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), sysconfig.get_path("purelib")])}
    line = [sys.executable, "-S", "-m", "bert_jax.cli.main", *words]  # -S: no editable install is found
    return subprocess.run(line, cwd=folder / "bert_jax", env=environment, capture_output=True, text=True)


def test_a_wheel_has_the_configs_by_name_from_anywhere(installed):
    listed = bert_jax(installed, "configs")
    assert listed.returncode == 0 and "demo" in listed.stdout and "sst2" in listed.stdout, listed.stderr
    assert bert_jax(installed, "configs", "demo").stdout == (ROOT / "configs" / "demo.py").read_text()
    assert bert_jax(installed, "params", "demo").returncode == 0
    assert bert_jax(installed, "params", "ablations/mlm").returncode == 0
    assert bert_jax(installed, "params", "configs/demo.py").returncode == 0
