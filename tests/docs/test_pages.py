"""Builds the manual, and runs the commands and the Python that README.md and its pages show."""

import configparser
import gzip
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from judged_folders import write_judged_folder

pytest.importorskip("sybil")
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

import bert_jax
from bert_jax.cli.main import run

ROOT = Path(__file__).parents[2]
NOT_RUN = "# Needs "
"""First words of a block that isn't run here; the reason follows."""
FEWER_STEPS = {
    "--phases.0.steps 20": "--phases.0.steps 4 --phases.0.batch-size 8",
    "--phases.0.steps 16": "--phases.0.steps 4 --phases.0.batch-size 8",
    '"phases.0.steps": 20': '"phases.0.steps": 4, "phases.0.batch_size": 8',
    "range(20)": "range(4)",
}
"""What a page says, and what is run of it."""
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.long
def test_the_pages_build_without_warnings_and_load_nothing_from_elsewhere(tmp_path):
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(tmp_path / "trees")]
    built = subprocess.run([*build, str(ROOT / "docs"), str(tmp_path / "html")], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    settings = re.sub(r"<[^>]+>", "", (tmp_path / "html/settings.html").read_text())
    assert "--task.kind class|labels|number" in settings  # in one cell of its table
    for page in (tmp_path / "html").rglob("*.html"):
        loading = r"<(?:script|img|iframe|link)[^>]*\s(?:src|href)=\"((?:https?:)?//[^\"]+)\""
        assert not re.findall(loading, page.read_text()), page.name


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.stem)
def test_tables_of_settings_and_signatures_are_those_of_the_code(page):
    """Written into the page by `python docs/generated.py`, so that it reads as Markdown too."""
    spec = importlib.util.spec_from_file_location("generated", ROOT / "docs/generated.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = page.read_text(encoding="utf-8")
    assert module.generated(text) == text, "python docs/generated.py writes it"
    assert "```{" not in text.replace("```{toctree}", "")
    if page.stem == "api":
        assert "- **`fill_mask(text, top=5)`**" in text
    if page.stem == "settings":
        assert "| `--task.kind class\\|labels" in text


def test_the_table_of_extras_has_each_one_with_its_packages():
    extras = {
        name: {re.split(r"[><=]", line)[0] for line in packages.split() if not line.startswith("<")}
        for name, packages in SETUP["options.extras_require"].items()
    }
    described = {}
    for names, packages in re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", (ROOT / "docs/install.md").read_text(), re.M):
        described |= dict.fromkeys(re.findall(r"`([\w]+)`", names), packages)
    assert described.keys() == extras.keys()
    for name in extras.keys() - {"test", "full", "dev", "ja", "tasks", "tensorflow"}:
        missing = [package for package in extras[name] if package not in described[name]]
        assert set(missing) <= {"google-crc32c"}, (name, missing)


def test_the_table_of_packages_has_each_one():
    packages = {re.split(r"[>\[]", line)[0] for line in SETUP["options"]["install_requires"].split()}
    page = (ROOT / "docs/install.md").read_text()
    section = page[page.index("## Packages that it always needs") : page.index("## Try it")]
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", section, re.M)
    assert {name for row in rows[1:] for name in row.split(", ")} == packages


def test_the_index_names_every_page():
    names = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert names == set(re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs/index.md").read_text()))


def test_every_public_name_has_an_example_there():
    """The examples run below."""
    examples = "".join(re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/api.md").read_text(), re.DOTALL | re.M))
    assert not [name for name in bert_jax.__all__ if not re.search(rf"bert_jax\.{name}\b(?!_)", examples)]


def test_readme_is_short_and_its_links_exist():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 160
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert link.startswith("https://") or (ROOT / link).exists(), link


@pytest.fixture(scope="module")
def folder(tmp_path_factory, corpus, tiny_run, vectors_run) -> Path:
    """A user's folder: text in corpus/, a small run in runs/demo, one of vectors in runs/vectors, rows of a task."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "corpus").mkdir()
    (folder / "corpus" / "stories.txt.gz").write_bytes(gzip.compress(corpus.read_bytes()))
    shutil.copytree(tiny_run.path, folder / "runs" / "demo")
    shutil.copytree(vectors_run.path, folder / "runs" / "vectors")
    films = (("good", 1), ("dull", 0))
    rows = [f"The {word} film {number} was {word}.\t{stars}\n" for number in range(8) for word, stars in films]
    for name in ("train.tsv", "dev.tsv", "new.tsv"):
        (folder / name).write_text("review\tstars\n" + "".join(rows))
    pairs = [{"query": word, "positive": f"The {word} near the river."} for word in ("cat", "dog", "house", "stone")]
    for name in ("pairs.jsonl", "dev.jsonl"):
        (folder / name).write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    for split in ("train", "dev", "test"):
        write_judged_folder(folder / "scifact", split=split)
    (folder / "lines.txt").write_text("The old cat sees the dog.\nA quiet house near the river.\n")
    bodies = [f"{pair['positive']} Nobody is there." for pair in pairs]
    (folder / "docs.jsonl").write_text("".join(json.dumps({"body": body}) + "\n" for body in bodies))
    (folder / "words.txt").write_text("lighthouse\nharbour\n")
    return folder


done: dict[tuple[str, ...], Path] = {}
"""The run directories of the commands that were run in the user's folder, by their words without the directory."""


def run_once(words: list[str]) -> int:
    """Runs a command of bert-jax unless another page has it: then its run directory is copied."""
    place = words.index("--workdir") + 1 if "--workdir" in words else len(words)
    command = (*words[:place], *words[place + 1 :])
    workdir = Path(words[place] if words[place:] else ".")
    if command not in done:
        done[command] = workdir
        return run(words)
    if done[command].exists() and not workdir.exists():
        shutil.copytree(done[command], workdir)
    return 0


def run_bash(example: Example) -> None:
    """Runs a block of commands in the user's folder. Raises AssertionError, with the output, if one fails."""
    block = example.parsed
    if block.startswith(NOT_RUN):
        return
    for line in block.replace("\\\n", " ").splitlines():
        words, where = shlex.split(line, comments=True), f"{Path(example.path).name}:{example.line}\n{line}"
        if words[:1] == ["bert-jax"] and ">" not in words:
            assert run_once(words[1:]) == 0, where
        else:
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
            shell = ["bash", "-euo", "pipefail", "-c", line]
            shown = subprocess.run(shell, env=os.environ | {"PATH": path}, capture_output=True, text=True)
            assert shown.returncode == 0, f"{where}\n{shown.stdout}{shown.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.long
def test_commands_of_a_page_run(page, folder, monkeypatch, tmp_path):
    monkeypatch.chdir(folder)
    shorter = page.read_text(encoding="utf-8")
    for said, done_here in FEWER_STEPS.items():
        shorter = shorter.replace(said, done_here)
    (tmp_path / page.name).write_text(shorter, encoding="utf-8")
    parsers = [CodeBlockParser("bash", run_bash), PythonCodeBlockParser()]
    document = Sybil(parsers).parse(tmp_path / page.name)
    for example in document.examples():
        example.evaluate()
