"""Commands, and the interpreters that they start, import nothing that lies in the current folder."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOSTILE = 'import pathlib; pathlib.Path(__file__).with_name("RAN").touch(); raise ImportError("hostile")'
SHADOWED = "threading", "numpy", "jax", "pyspark", "multiprocessing"
PREPARE = "prepare demo --workdir ../run --data.source text:../text.txt --vocabulary.size 60 --preparation.processes 2"


@pytest.mark.parametrize(
    "words",
    [
        "doctor text:../text.txt --config demo",
        PREPARE,
        pytest.param(
            f"{PREPARE} --preparation.engine spark",
            marks=pytest.mark.skipif(not shutil.which("java"), reason="Spark needs Java"),
        ),
    ],
)
@pytest.mark.long
def test_no_module_of_the_current_folder_runs(tmp_path, words):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in SHADOWED:
        (folder / f"{name}.py").write_text(HOSTILE)
    (tmp_path / "text.txt").write_text("".join(f"A text number {number} of some words.\n\n" for number in range(60)))
    command = Path(sys.executable).with_name("bert-jax")
    ended = subprocess.run([command, *words.split()], cwd=folder, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    assert not (folder / "RAN").exists()
