"""What the wheel holds, and what its commands and the notebooks do in a folder without the clone."""

import configparser
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from conftest import MAY_SKIP, skip_checked

for _package in ("build", "nbclient", "setuptools"):
    pytest.importorskip(_package)
from setuptools import find_namespace_packages

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[1]
NOTEBOOKS = ("first_model", "finetune", "search", "small_language", "load_checkpoint")
MODULES = ("asyncio", "email", "idlelib", "tkinter", "unittest", "xml", "shutil.py", "os.py", "pathlib.py", "socket.py")
"""Parts of Python's standard library with text for all notebooks."""
SMALLER = {
    "first_model": "STEPS = 5",
    "finetune": "EPOCHS = 0.1",
    "search": "EPOCHS = 0.1",
    "small_language": 'MODEL, MINUTES = "runs/first_model", 0.005',
    "load_checkpoint": "",
}
SMALLER_FOR_ALL = """
import sysconfig

import bert_jax

sysconfig.get_path = lambda name: {library!r}
for name in ("demo", "adapt", "scratch_small"):
    config = bert_jax.configs[name].set({{"phases.0.batch_size": 8, "evaluation.max_sequences": 64}})
    setattr(bert_jax.configs, name, config)
{parameters}
"""
"""The cell that a notebook gets after that of its parameters."""
RUN_NOTEBOOK = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[1])
"""


def setup_file() -> configparser.ConfigParser:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return setup


def test_setup_names_every_package():
    code = find_namespace_packages(str(ROOT), include=["bert_jax*"])
    configs = [f"bert_jax.{name}" for name in find_namespace_packages(str(ROOT), include=["configs*"])]
    assert sorted(setup_file()["options"]["packages"].split()) == sorted([*code, *configs])


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the wheel and the source distribution of this tree."""
    tree, folder = tmp_path_factory.mktemp("tree") / "bert_jax", tmp_path_factory.mktemp("built")
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    ).stdout.splitlines()
    for file in filter(lambda file: (ROOT / file).is_file(), files):
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tree / file)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(tree)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """A virtual environment with all packages of this one, pip among them, but bert_jax, whose editable installation
    has no effect on other environments."""
    path = tmp_path_factory.mktemp("environment")
    venv.create(path)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(path)}))
    (own / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return path


@pytest.fixture(scope="module")
def folder(built, tmp_path_factory) -> Path:
    """A folder with the wheel, the notebooks and a small part of the standard library."""
    folder = tmp_path_factory.mktemp("user")
    shutil.copy(next(built.glob("*.whl")), folder)
    (folder / "library").mkdir()
    library = Path(sysconfig.get_path("stdlib"))
    for module in MODULES:
        copy = shutil.copytree if (library / module).is_dir() else shutil.copy
        copy(library / module, folder / "library" / module)
    for name in NOTEBOOKS:
        notebook = json.loads((ROOT / f"notebooks/{name}.ipynb").read_text(encoding="utf-8"))
        cell = {"cell_type": "code", "id": "smaller", "metadata": {}, "outputs": [], "execution_count": None}
        cell["source"] = SMALLER_FOR_ALL.format(library=str(folder / "library"), parameters=SMALLER[name])
        places = [n for n, each in enumerate(notebook["cells"]) if "parameters" in each["metadata"].get("tags", ())]
        notebook["cells"].insert((places or [1])[0] + 1, cell)
        (folder / f"{name}.ipynb").write_text(json.dumps(notebook))
    return folder


def run(environment: Path, folder: Path, *words: str) -> str:
    """Runs a program of the environment in `folder`; returns its output."""
    program = [str(environment / "bin" / words[0]), *words[1:]]
    settings = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MPLBACKEND")}
    done = subprocess.run(program, cwd=folder, env=kept | settings, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def outputs(folder: Path, name: str) -> tuple[str, int]:
    """What a notebook printed, and its number of pictures."""
    notebook = json.loads((folder / f"{name}.ipynb").read_text())
    found = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    printed = "".join("".join(each.get("text", "")) for each in found if each.get("name") == "stdout")
    return printed, sum("image/png" in each.get("data", ()) for each in found)


@pytest.mark.parametrize(
    "name, phrases, pictures",
    [
        ("first_model", ("documents", "masked pieces are predicted right", "Return the [MASK] of the list."), 1),
        ("finetune", ("rows to train on", "by the most frequent class alone", "Wait until the task is done."), 1),
        ("search", ("pairs to train on", "stop the server"), 1),
        ("small_language", ("is ahead; minutes", "by the most frequent tag alone", "# published"), 1),
        ("load_checkpoint", ("2 layers of 4 heads", "within a sense"), 3),
    ],
)
def test_a_notebook_installs_the_wheel_beside_it_and_runs(environment, folder, name, phrases, pictures):
    """Each goes on with the model of the first one."""
    run(environment, folder, "python", "-c", RUN_NOTEBOOK, f"{name}.ipynb")
    printed, drawn = outputs(folder, name)
    assert not [phrase for phrase in phrases if phrase not in printed], printed
    assert drawn == pictures


@pytest.fixture(scope="module")
def installed(environment, folder) -> Path:
    """The folder of bert_jax in the environment, where a notebook may have installed it before."""
    if not (environment / "bin/bert-jax").exists():
        run(environment, folder, "python", "-m", "pip", "install", "--quiet", next(folder.glob("*.whl")).name)
    where = run(environment, folder, "python", "-c", "import bert_jax; print(bert_jax.__file__)").strip()
    assert Path(where).is_relative_to(environment)
    return Path(where).parent


def test_an_installation_has_its_annotations_and_the_configs_by_name_from_anywhere(environment, folder, installed):
    listed = run(environment, folder, "bert-jax", "configs")
    assert "demo" in listed and "sst2" in listed
    assert (installed / "py.typed").is_file()
    for name in ("demo", "sst2", "experiments/modern_muon"):
        assert "\nconfig = " in run(environment, folder, "bert-jax", "configs", name)
    for name in ("demo", "ablations/mlm", "configs/demo.py"):
        assert "--model.num-layers N            Layers of the encoder (L). (default: 2)" in (
            run(environment, installed, "bert-jax", "pretrain", name, "--help")
        ), name


def test_commands_of_the_wheel_train_a_model_and_a_task(environment, folder, installed):
    text = "\n\n".join(path.read_text() for path in sorted((folder / "library/email").glob("*.py")))
    (folder / "text.txt").write_text(text)
    (folder / "rows.csv").write_text("text,label\n" + "A fine film,good\nA dull film,bad\n" * 5)
    line = "pretrain demo --workdir demo --data.source text:text.txt --vocabulary.size 300 --phases.0.steps 5"
    run(environment, folder, "bert-jax", *line.split(), "--phases.0.batch-size", "4")
    rows = "--task.train rows.csv --task.dev rows.csv --task.batch-size 5".split()
    run(environment, folder, "bert-jax", "finetune", "classes", "--init", "demo", "--workdir", "kinds", *rows)
    assert json.loads((folder / "kinds/results.json").read_text())["training_rows"] == 10


def test_the_version_is_in_one_place_and_the_distributions_have_it(built):
    import bert_jax

    assert setup_file()["metadata"]["version"] == "attr: bert_jax.system.version.__version__"
    names = {path.name for path in built.iterdir()}
    version = bert_jax.__version__
    assert names == {f"bert_jax-{version}-py3-none-any.whl", f"bert_jax-{version}.tar.gz"}


def test_badges_and_installations_of_notebooks_have_the_address_of_the_project():
    address = setup_file()["metadata"]["url"]
    path = address.removeprefix("https://github.com/")
    for name in NOTEBOOKS:
        text = (ROOT / f"notebooks/{name}.ipynb").read_text(encoding="utf-8")
        assert f"colab.research.google.com/github/{path}/blob/main/notebooks/{name}.ipynb)" in text
        assert f'\\"git+{address}\\"' in text
    assert {path.stem for path in (ROOT / "notebooks").iterdir() if path.suffix == ".ipynb"} == set(NOTEBOOKS)


@pytest.mark.parametrize("tier", ["quick", "full", "slow"])
def test_a_skip_for_want_of_a_package_fails_except_in_the_quick_tier(tier):
    absent = "could not import 'torch': No module named 'torch'"
    for reason in ("another", absent, *MAY_SKIP):
        longrepr = ("test_file.py", 3, f"Skipped: {reason}")
        report = pytest.TestReport("test_file.py::test", ("", 0, ""), {}, "skipped", longrepr, "call")
        may_skip = reason in MAY_SKIP or reason == absent and tier == "quick"
        assert skip_checked(report, tier).failed != may_skip, reason
