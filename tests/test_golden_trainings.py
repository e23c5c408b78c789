"""What is trained, and what trained models say, is what it was when the files of golden/trainings were made.

golden/make_trainings.py --compare tells of every figure by how much it differs; here a machine's own rounding is let
pass.
"""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from bert_jax.cli.main import run as command
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.verification import verify

GOLDEN = Path(__file__).parent / "golden"
SEEN_EACH_TIME = {"pretraining", "class", "span"}
"""The others with --tier slow."""


@pytest.fixture(scope="module")
def maker():
    """golden/make_trainings.py as a module."""
    spec = importlib.util.spec_from_file_location("make_trainings", GOLDEN / "make_trainings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A copy of the golden files, of which nothing is expected but what it is read for."""
    return Path(shutil.copytree(GOLDEN / "trainings", tmp_path_factory.mktemp("golden") / "trainings"))


def expected(name: str) -> dict[str, list[float]]:
    return json.loads((GOLDEN / "trainings" / name).read_text())


def differences(maker, of: dict[str, list[float]], found: dict[str, list[float]]) -> dict[str, float]:
    """Those that no machine's rounding explains: losses by a thousandth, shares of few rows by a twentieth."""
    by_name = {name: maker.difference(values, found.get(name, [])) for name, values in of.items()}
    return {name: by for name, by in by_name.items() if by > (1e-3 if "loss" in name or ":" not in name else 0.05)}


@pytest.fixture(scope="module")
def trained(maker, folder, slow, tmp_path_factory):
    """The folder of all trainings done anew, and their figures."""
    runs = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        return runs, dict(maker.figures(runs, lambda name: slow or name in SEEN_EACH_TIME))


@pytest.mark.long
def test_trainings_give_the_figures_they_gave(maker, trained, slow):
    wanted = {name: of for name, of in expected("losses.json").items() if slow or name.split(":")[0] in SEEN_EACH_TIME}
    assert wanted and not differences(maker, wanted, trained[1])


@pytest.mark.long
def test_models_say_what_they_said(maker, folder, trained, monkeypatch):
    monkeypatch.chdir(folder)
    found = maker.outputs(trained[0])
    untrained = {f"predict {kind}" for kind in maker.TASKS} - found.keys()
    wanted = {name: of for name, of in expected("outputs.json").items() if name not in untrained}
    assert not differences(maker, wanted, found)


@pytest.mark.long
def test_a_run_of_that_time_is_whole_and_goes_on(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    run = shutil.copytree(folder / "pretrained", tmp_path / "pretrained")
    assert not [verdict for verdict in verify(RunDirectory(run)) if verdict.damage]
    assert command(["pretrain", str(run), "--workdir", str(run), "--phases.1.steps", "10"]) == 0
    assert "going on from step 20" in capsys.readouterr().err
