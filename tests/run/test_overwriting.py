"""--overwrite: the existing run stays until the next one is prepared."""

import itertools
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from stages import started_until

from bert_jax.cli.main import run
from bert_jax.config.run import RunConfig
from bert_jax.run.overwriting import overwrite
from bert_jax.run.run_config import read_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.errors import UsageError


class Killed(BaseException):
    """Ends a block as a kill would, if nothing is deleted any more."""


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def begun(path, seed=0):
    """A run at `path` with a checkpoint and with metrics."""
    RunDirectory(path).open(RunConfig(seed=seed))
    (path / "checkpoints" / "00000001").mkdir(parents=True)
    (path / "checkpoints" / "00000001" / "manifest.json").write_text("{}")
    (path / "metrics.jsonl").write_text("{}\n")


def prepare(path):
    RunDirectory(path).open(RunConfig(seed=9))
    (path / "data").mkdir()


def fails(path):
    prepare(path)
    raise UsageError("too little text")


def rename_failing_after(moves, error, monkeypatch):
    """Lets `Path.rename` raise `error` after so many calls: once, or again and again if it is Killed."""
    rename, calls = Path.rename, itertools.count()

    def renamed(path, target):
        call = next(calls)
        if call == moves or call > moves and isinstance(error, Killed):
            raise error
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)


def test_a_pretrained_run_stays_and_goes_on_if_the_next_one_cannot_be_prepared(
    config_file, tiny_run, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_run.path, "run")
    Path("small.txt").write_text("a a b b c c.\nb c.\n\na b.\n")
    lines = [json.dumps({"text": f"The old cat {number}. A dog."}) for number in range(20)]
    Path("damaged.jsonl").write_text("\n".join([*lines, '{"text": "broken']))
    before = files(Path("run"))
    command = ["pretrain", str(config_file), "--workdir", "run"]
    for flags, said in (
        (
            ["--data.source", "small.txt", "--data.held-out", "0"],
            "--vocabulary.size=150 is more than the text can give",
        ),
        (["--data.source", "jsonl:damaged.jsonl#text", "--vocabulary.size", "60"], "damaged.jsonl"),
        (["--model.vocabulary-size", "200"], "--model.vocabulary-size=200 and the vocabulary has 150 pieces"),
        (["--logging.mlflow", "https://user:secret@host/x"], "holds a user, password or token"),
    ):
        assert run([*command, "--overwrite", *flags]) == 2
        assert said in capsys.readouterr().err and files(Path("run")) == before
    assert run([*command, "--phases.0.steps", "13"]) == 0 and "going on from step 12" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--seeds", "2"], "--seeds compares scores, and --task.dev names no rows"),
        (["--logging.mlflow", "https://user:secret@host/x"], "holds a user, password or token"),
        (["--task.train", "damaged.jsonl"], "damaged.jsonl, line 21 is not JSON"),
    ],
)
def test_a_run_stays_if_a_fine_tuning_cannot_be_prepared(tiny_run, tmp_path, monkeypatch, capsys, flags, said):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_run.path, "run")
    lines = [json.dumps({"sentence": f"The old cat {number}.", "label": number % 2}) for number in range(20)]
    Path("rows.jsonl").write_text("\n".join(lines))
    Path("damaged.jsonl").write_text("\n".join([*lines, '{"sentence": "broken']))
    task = "TaskConfig(name='task', kind='class', train='rows.jsonl', texts=('sentence',), max_length=32)"
    imports = "from bert_jax.config.finetune import FinetuneConfig\nfrom bert_jax.config.task import TaskConfig\n"
    Path("config.py").write_text(f"{imports}\nconfig = FinetuneConfig(init={str(tiny_run.path)!r}, task={task})\n")
    before = files(Path("run"))
    assert run(["finetune", "config.py", "--workdir", "run", "--overwrite", *flags]) == 2
    assert said in capsys.readouterr().err and files(Path("run")) == before


def test_after_a_kill_during_preparation_the_existing_run_goes_on(config_file, tiny_run, tmp_path, capsys):
    path = tmp_path / "run"
    shutil.copytree(tiny_run.path, path)
    before = files(path)
    other = ["pretrain", config_file, "--workdir", path, "--seed", "9"]
    process = started_until(lambda: any(path.glob(".prepared.*.tmp/tokenizer")), *other, "--overwrite")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert f"--overwrite: the run at {path} stays until the next one is prepared" in process.stdout.read()
    process.stdout.close()
    assert {name: content for name, content in files(path).items() if not name.startswith(".prepared")} == before
    assert run(list(map(str, other))) == 2
    assert "is another run: seed is 0 there and 9 now" in capsys.readouterr().err
    assert run(["pretrain", str(config_file), "--workdir", str(path)]) == 0
    assert "is finished: 12 steps" in capsys.readouterr().err and not list(path.glob("*.tmp"))


@pytest.mark.parametrize("before", ["one", "several"])
@pytest.mark.parametrize("after", ["one", "several"])
def test_one_run_or_several_are_replaced_by_one_or_several(tmp_path, before, after):
    path = tmp_path / "link"
    (tmp_path / "folder").mkdir()
    path.symlink_to(tmp_path / "folder")
    for child in ("",) if before == "one" else ("seed-0", "seed-1"):
        begun(path / child)
    shutil.copytree(path, tmp_path / "copy")
    (path / ".prepared.0123456789abcdef.tmp").mkdir()  # of a killed process
    with pytest.raises(UsageError, match="too little text"):
        overwrite(path, fails, [])
    assert files(path) == files(tmp_path / "copy") and not list(path.glob("*.tmp"))
    child = "" if after == "one" else "seed-5"
    for _ in range(2):
        overwrite(path, lambda place: prepare(place / child), [])
        names = {"config.json", "manifest.json", "data"} if after == "one" else {"seed-5"}
        assert {place.name for place in path.iterdir()} - {".lock"} == names
        assert read_config(path / child).seed == 9 and RunDirectory(path / child).newest_step is None
    assert path.is_symlink()


@pytest.mark.parametrize("moves", [0, 2, 5])
def test_a_run_whose_files_cannot_be_moved_stays(tmp_path, monkeypatch, moves):
    begun(tmp_path)
    before = files(tmp_path)
    rename_failing_after(moves, PermissionError(13, "Permission denied", "FILE"), monkeypatch)
    with pytest.raises(UsageError, match="can't move FILE .Permission denied., and the run is as it was; choose"):
        overwrite(tmp_path, prepare, [])
    assert files(tmp_path) == before and not list(tmp_path.glob("*.tmp"))


def test_a_run_killed_while_files_are_moved_begins_anew(tmp_path, monkeypatch):
    for moves in range(1, 7):
        path = tmp_path / str(moves)
        begun(path)
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr("bert_jax.run.overwriting.remove_directory", lambda directory: None)
            rename_failing_after(moves, Killed(), patched)
            overwrite(path, prepare, [])
        assert not RunDirectory(path).under_way
        RunDirectory(path).open(RunConfig(seed=9))
        assert read_config(path).seed == 9 and not list(path.glob("*.tmp"))
