"""--dry-run, --print-config and --overwrite."""

import fcntl
import json
import shutil
from pathlib import Path

import pytest

from bert_jax.cli.main import run
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.run import RunConfig
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.progress import output


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Tables in which nothing wraps."""
    monkeypatch.setattr(output, "width", 240)


def contents(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_dry_run_tells_what_would_be_done_and_writes_nothing(config_file, tiny_run, tmp_path, capsys):
    assert run(["pretrain", str(config_file), "--workdir", str(tmp_path / "run"), "--dry-run"]) == 0
    assert "a new one of 12 steps" in (shown := capsys.readouterr().out) and "a device by formula: state" in shown
    assert not list(tmp_path.iterdir())
    before = contents(tiny_run.path)
    command = ["pretrain", str(config_file), "--workdir", str(tiny_run.path), "--dry-run"]
    assert run([*command, "--phases.0.steps", "20"]) == 0
    assert "go on from step 12 of 20" in (shown := capsys.readouterr().out) and "20 steps (8 left)" in shown
    assert run([*command, "--seed", "9"]) == 2
    assert "is another run: seed is 0 there and 9 now" in capsys.readouterr().err
    assert contents(tiny_run.path) == before


def test_a_dry_run_of_a_task_reads_its_rows(tiny_run, tmp_path, capsys):
    rows = "\n".join(json.dumps({"sentence": f"The old cat {n}.", "label": n % 2}) for n in range(20))
    (tmp_path / "rows.jsonl").write_text(rows)
    flags = ["--init", str(tiny_run.path), "--task.train", str(tmp_path / "rows.jsonl"), "--task.max-length", "32"]
    flags += ["--task.batch-size", "5", "--task.epochs", "2", "--workdir", str(tmp_path / "run"), "--dry-run"]
    assert run(["finetune", "sst2", *flags, "--task.dev", str(tmp_path / "rows.jsonl"), "--seeds", "3"]) == 0
    shown = capsys.readouterr().out
    for words in ("a new one of 8 steps", "3 runs like this", "20 of ", "labels", "8 steps of 5 sequences"):
        assert words in shown
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_what_can_not_fit_is_refused_before_anything_is_written(config_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("bert_jax.training.devices.device_memory", lambda device: 10_000)
    for flags in ([], ["--dry-run"]):
        assert run(["pretrain", str(config_file), "--workdir", str(tmp_path / "run"), *flags]) == 2
        said = capsys.readouterr().err
        assert (
            said.count("\n") == 1 and "a step of 8 sequences of 32 tokens (--phases.0.batch-size) takes about" in said
        )
        assert "each has 0.0 MB; give a smaller model or --mesh.fsdp over more devices" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command, kind", [("pretrain demo", RunConfig), ("finetune squad --init RUN", FinetuneConfig)])
def test_a_printed_config_is_one_that_builds_the_same(command, kind, tmp_path, capsys):
    changed = ["--workdir", str(tmp_path / "run"), "--seed", "7", "--print-config"]
    assert run([*command.split(), *changed]) == 0
    printed = capsys.readouterr().out
    (tmp_path / "mine.py").write_text(printed)
    assert run([command.split()[0], str(tmp_path / "mine.py"), *changed]) == 0
    assert capsys.readouterr().out == printed and "seed=7" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"mine.py"}
    built = {}
    exec(printed, built)
    assert isinstance(built["config"], kind) and built["config"].seed == 7


def test_overwrite_begins_anew(config_file, tiny_run, tmp_path, capsys):
    shutil.copytree(tiny_run.path, tmp_path / "run")
    (tmp_path / "run" / "tensorboard").mkdir()  # as a run has by default
    command = ["pretrain", str(config_file), "--workdir", str(tmp_path / "run"), "--data.dupe-factor", "2"]
    assert run(command) == 2 and "is another run" in capsys.readouterr().err
    assert run([*command, "--overwrite"]) == 0
    assert "the run at" in (said := capsys.readouterr().err) and "at step 12, was deleted" in said
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["data"]["dupe_factor"] == 2
    assert not (tmp_path / "run" / "tensorboard").exists() and RunDirectory(tmp_path / "run").newest_step == 12


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--data.source", "nothing.txt"], "nothing.txt"),
        (["--data.source", "nothing.txt", "--dry-run"], "nothing.txt"),
        (["--data.source", "empty.txt"], "empty.txt' holds no text"),
        (["--vocabulary.file", "nothing"], "no vocabulary at "),
        (["--init", "nothing"], "nothing"),
        (["--data.source", "jsonl:run/metrics.jsonl#split"], "--overwrite would delete jsonl:run/metrics.jsonl#split"),
        (["--init", "run"], "--overwrite would delete run, which is to be read"),
        (["--init", "run", "--dry-run"], "--overwrite would delete run, which is to be read"),
        (
            ["--vocabulary.file", "run/tokenizer/vocab.txt"],
            "--overwrite would delete run/tokenizer/vocab.txt, which is to be read",
        ),
    ],
)
def test_overwrite_deletes_nothing_where_the_coming_run_is_refused(
    config_file, tiny_run, tmp_path, monkeypatch, capsys, flags, said
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_run.path, "run")
    Path("empty.txt").touch()
    before = contents(tmp_path)
    assert run(["pretrain", str(config_file), "--workdir", "run", "--overwrite", *flags]) == 2
    assert said in capsys.readouterr().err and contents(tmp_path) == before


def test_text_that_is_refused_leaves_nothing_of_a_run(config_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").touch()
    Path("file").touch()
    for workdir, said in (("run", "holds no text"), ("", "a path is empty"), ("file", "file is a file; give a folder")):
        command = ["pretrain", str(config_file), "--workdir", workdir, "--data.source", "empty.txt"]
        assert run(command) == 2 and said in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"empty.txt", "file"}


@pytest.mark.parametrize("what", ["notes", "no run", "locked"])
def test_overwrite_deletes_nothing_but_a_run_that_rests(config_file, tiny_run, tmp_path, capsys, what):
    workdir = tmp_path / "run"
    if what == "no run":
        workdir.mkdir()
        (workdir / "thesis.txt").write_text("everything")
    else:
        shutil.copytree(tiny_run.path, workdir)
    if what == "notes":
        (workdir / "notes.txt").write_text("mine")
    before = contents(workdir)
    with open(workdir / ".lock", "a") if what == "locked" else open(config_file) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run(["pretrain", str(config_file), "--workdir", str(workdir), "--overwrite"]) == 2
    said = capsys.readouterr().err
    words = {
        "notes": "notes.txt is none of a run's files",
        "no run": "is no run",
        "locked": "another process is working",
    }
    assert words[what] in said and said.count("\n") == 1
    assert set(contents(workdir)) == set(before)
