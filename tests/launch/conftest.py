"""The launchers in a copy of the project, with stand-ins for the command-line tools that they call."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAND_INS = Path(__file__).parent / "standins"


class Place:
    """A project to launch, in a world whose state is the files of `world`; `standins/gcloud` and others say which."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "the project"
        self.world = folder / "world"
        self.world.mkdir()
        shutil.copytree(ROOT / "launch", self.project / "launch")
        shutil.copy(ROOT / "setup.cfg", self.project)
        (self.project / "config.py").touch()
        self.environment = {
            "PATH": f"{STAND_INS}:/usr/bin:/bin",
            "HOME": str(folder),
            "STAND_IN": str(self.world),
            "PYTHON": "python3",
            "POLL_SECONDS": "0",
            "RETRY_SECONDS": "0",
        }

    def set(self, name: str, *lines: str | int) -> None:
        """Writes a file of the world."""
        (self.world / name).write_text("".join(f"{line}\n" for line in lines))

    def lines(self, name: str) -> list[str]:
        """A file of the world; no lines if there is none."""
        path = self.world / name
        return path.read_text().splitlines() if path.exists() else []

    def start(self, script: str, *arguments: str, **environment: str) -> subprocess.Popen:
        """Starts `launch/SCRIPT ARGUMENTS` from another directory."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "stdin": subprocess.DEVNULL}
        line = ["bash", self.project / "launch" / script, *arguments]
        return subprocess.Popen(line, cwd=self.world, env=self.environment | environment, **pipes)

    def run(self, script: str, *arguments: str, patience: float = 60, **environment: str) -> tuple[int, str]:
        """Its exit code and all that it says within so many seconds."""
        with self.start(script, *arguments, **environment) as process:
            said, _ = process.communicate(timeout=patience)
        return process.returncode, said


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="module")
def script(request):
    """The Python script that a test file is about, as a module: launch/measure.py for test_measure.py."""
    name = request.path.stem.removeprefix("test_")
    spec = importlib.util.spec_from_file_location(name, ROOT / "launch" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]
