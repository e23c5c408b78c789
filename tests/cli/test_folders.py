"""Every command on every kind of folder: it works, or refuses in one line and leaves the folder as it was."""

# ruff: noqa: E501

import json
import os
import shutil
from pathlib import Path

import pytest

from bert_jax.cli.main import run
from bert_jax.products.suite.processes import Processes
from bert_jax.system.workers import available_cores

COMMANDS = {
    "pretrain": "pretrain {config} --workdir {folder} --dry-run",
    "pretrain a run as its config": "pretrain {folder} --workdir {other} --dry-run",
    "pretrain from": "pretrain {config} --init {folder} --workdir {other} --dry-run",
    "vocab": "vocab {config} --workdir {folder} --data.source text:absent.txt",
    "prepare": "prepare {config} --workdir {folder} --data.source text:absent.txt",
    "finetune": "finetune classes --init {run} --task.train rows.tsv --task.dev 50% --workdir {folder} --dry-run",
    "finetune from": "finetune classes --init {folder} --task.train rows.tsv --task.dev 50% --workdir {other} --dry-run",
    "suite": "suite suite.toml --workdir {folder} --dry-run",
    "suite of": "suite suite.toml --models {folder} --workdir {other} --dry-run",
    "doctor": "doctor {folder}",
    "inspect": "inspect {folder}",
    "params": "params {folder}",
    "evaluate": "evaluate {folder}",
    "report": "report {folder}",
    "verify": "verify {folder}",
    "fill-mask": "fill-mask {folder} [MASK]",
    "predict": "predict {folder} rows.tsv {other}.tsv",
    "score": "score {folder} text.txt",
    "features": "features {folder} text.txt {other}.npz",
    "search": "search {folder} text.txt query",
    "export": "export {folder} {other}",
    "export to": "export {run} {folder}",
    "import": "import {folder} {other}",
    "import to": "import {transformers} {folder}",
    "rows": "finetune classes --init {run} --task.train {folder} --task.dev 50% --workdir {other} --dry-run",
    "source": "pretrain {config} --data.source {folder} --workdir {other} --dry-run",
}
WRITTEN = ("vocab", "prepare", "export to", "import to")
"""Commands that may write into a folder which is empty, missing or theirs."""
KINDS = (
    *("empty", "missing", "file", "link", "foreign", "rows", "prepared", "checkpoint", "suite", "without checkpoints"),
    *("read-only", "run", "fine-tuned", "transformers", "sentence-transformers"),
)
MODELS = ("run", "fine-tuned", "transformers", "sentence-transformers", "checkpoint")
"""Kinds that commands compute with."""
AS_FILL_MASK = ("score", "features", "search")
"""Commands that open a model as fill-mask does: of the kinds that are none, a missing one shows it."""
WRITING = (*WRITTEN, "pretrain", "finetune", "suite", "report")
"""Commands for which a link and a folder without permission to write differ from other folders."""
WORDS = {
    ("suite", "run"): "is no suite's folder and not empty: it holds 'checkpoints'",
    ("suite", "suite"): "is the folder of another suite, /elsewhere/glue.toml",
    ("suite", "rows"): "is no suite's folder and not empty: it holds 'dev.jsonl'",
    ("predict", "suite"): "but there are the runs 'models/base-0-abc' in it",
    ("evaluate", "suite"): "but there are the runs 'models/base-0-abc' in it",
    ("pretrain", "suite"): "is no run and not empty: it holds",
}
"""What a refusal says that the folder is. These cases and the first ones are in the quick tier, too."""
CASES = [
    (command, kind)
    for command in COMMANDS
    for kind in KINDS
    if (command not in AS_FILL_MASK or kind in (*MODELS, "missing"))
    and (kind not in ("link", "read-only") or command in WRITING)
]


def tier_of(number: int, command: str, kind: str) -> list[pytest.MarkDecorator]:
    quick = (command, kind) in WORDS or number < 40 and kind not in MODELS
    return [] if quick else [pytest.mark.long]


@pytest.fixture(scope="module")
def transformers(tiny_run, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("transformers") / "model"
    assert run(["export", str(tiny_run.path), str(path)]) == 0
    return path


@pytest.fixture
def folder_of(tiny_run, vectors_run, transformers, tmp_path):
    def made(kind: str) -> Path:
        path = tmp_path / "folder"
        copied = {
            "run": tiny_run.path,
            "fine-tuned": vectors_run.path,
            "transformers": transformers,
            "sentence-transformers": Path(__file__).parents[1] / "golden/vectors/bert",
            "without checkpoints": tiny_run.path,
            "prepared": next(tiny_run.path.glob("data/length-*")),
            "checkpoint": sorted(tiny_run.checkpoints.glob("[0-9]*"))[-1],
        }
        if kind in copied:
            shutil.copytree(copied[kind], path)
        elif kind == "file":
            path.write_text("a text\n")
        elif kind == "link":
            (tmp_path / "target").mkdir()
            path.symlink_to(tmp_path / "target")
        elif kind != "missing":
            path.mkdir()
        if kind == "without checkpoints":
            shutil.rmtree(path / "checkpoints")
        elif kind == "suite":
            (path / "origin.json").write_text(json.dumps({"suite": "/elsewhere/glue.toml"}))
            (path / "suite.json").write_text('{"suite": {}, "runs": []}')
            shutil.copytree(tiny_run.path, path / "models/base-0-abc")
        elif kind in ("foreign", "read-only"):
            (path / "notes.txt").write_text("mine\n")
            (path / "config.json").write_text('{"mine": true}')
        elif kind == "rows":
            for name in ("train.tsv", "dev.jsonl"):
                (path / name).write_text("text\tlabel\na\t1\n")
        if kind == "read-only":
            os.chmod(path, 0o555)
        return path

    return made


def contents(path: Path) -> dict[Path, bytes | None]:
    below = [path, *path.rglob("*")] if path.exists() else []
    return {each: each.read_bytes() if each.is_file() else None for each in below}


@pytest.mark.parametrize(
    "command, kind", [pytest.param(*case, marks=tier_of(number, *case)) for number, case in enumerate(CASES)]
)
def test_it_works_or_refuses_in_one_line(command, kind, folder_of, tiny_run, transformers, config_file, tmp_path,
                                         monkeypatch, capsys):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PJRT_NPROC", str(available_cores()))
    # What a suite leaves to processes, which import all that this one has imported.
    monkeypatch.setattr(Processes, "call", lambda _, function, *arguments: function(*arguments))
    folder = folder_of(kind)
    (tmp_path / "rows.tsv").write_text("sentence\tlabel\n" + "a good one\t1\na bad one\t0\n" * 4)
    (tmp_path / "text.txt").write_text("The value of the name.\n")
    (tmp_path / "suite.toml").write_text(f'models = ["{tiny_run.path}"]\n[[tasks]]\nbeir = "judged"\n')
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        (tmp_path / "judged" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "judged" / name).touch()
    places = {"config": config_file, "folder": folder, "run": tiny_run.path, "transformers": transformers}
    words = COMMANDS[command].format(**places, other=tmp_path / "other").split()
    before = contents(folder)
    code = run(words)
    lines = capsys.readouterr().err.splitlines()
    assert code in (0, 1, 2) and WORDS.get((command, kind), "") in "".join(lines[-1:]), lines
    if code:
        assert lines[-1].startswith("bert-jax: ") and sum(line.startswith("bert-jax: ") for line in lines) == 1, lines
        assert "damaged" not in lines[-1] or kind not in ("suite", "rows", "empty", "link"), lines
        assert not (tmp_path / "other").exists()
    if code or command not in WRITTEN:
        assert {path: content for path, content in contents(folder).items() if path in before} == before
        added = contents(folder).keys() - before.keys()
        assert not added or not code and command == "report", added
