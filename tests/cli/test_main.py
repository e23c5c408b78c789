"""The commands, as typed."""

import json
import os
import subprocess
import sys
from unittest.mock import Mock

import pytest
from conftest import program, stories
from warm_process import COMMAND

from bert_jax.cli.commands import COMMANDS, arguments_of
from bert_jax.cli.main import run
from bert_jax.instances.prepared_data import PreparedData

SHELL = [sys.executable, "-m", "bert_jax"]


@pytest.mark.long
def test_what_a_run_is_told_of_and_what_can_be_done_with_it(config_file, tiny_copy, tmp_path, done):
    workdir = tiny_copy.path
    printed = done("pretrain", config_file, "--workdir", workdir)
    for words in ("MLM accuracy", "NSP accuracy", "by frequency alone", "one word masked", "bert-jax fill-mask"):
        assert words in printed.out
    assert "is finished" in printed.err.replace("\n", "")

    shown = done("evaluate", workdir).out
    assert "held-out sequences" in shown and "MLM accuracy" in shown
    (tmp_path / "other.txt").write_text(stories(20, first=500))
    shown = "".join(done("evaluate", workdir, "--data", tmp_path / "other.txt", "--language", "de").out.split())
    assert f"sequencesof{tmp_path / 'other.txt'}" in shown and "held-out" not in shown and "MLMaccuracy" in shown

    assert done("fill-mask", workdir, "The old [MASK] sees the [MASK].", "--top", "3").out.count("0.") >= 6
    shown = done("inspect", workdir, "--rows", "2", "--step", "3").out
    assert "[CLS]" in shown and "[MASK]/" in shown and "second segment" in shown and "sequence 3" not in shown


@pytest.mark.long
def test_the_first_steps_alone_of_several_sources(config_file, corpus, tmp_path, done):
    (tmp_path / "b.txt").write_text(stories(30, first=200))
    flags = ["--workdir", tmp_path / "run", "--data.source", f"text:{corpus}", f"text:{tmp_path / 'b.txt'}"]
    flags += ["--data.weights", "2", "1", "--data.language", "en", "de"]
    assert "150 pieces" in done("vocab", config_file, *flags).out
    shown = done("prepare", config_file, *flags).out
    for words in ("documents", "sentences", "unknown pieces", "random second segments", "padding", "cut", "dropped"):
        assert words in shown
    assert "What the training draws" in shown and "66.7%" in shown and "33.3%" in shown
    prepared = PreparedData.open(tmp_path / "run" / "data" / "length-32")
    assert len(prepared.sources) == 2 and sum(prepared.sources) == prepared.train.instances
    done("inspect", tmp_path / "run", "--rows", "1")


def test_what_was_prepared_is_one_json_object(config_file, corpus, tmp_path, done):
    flags = ["--workdir", tmp_path / "run", "--data.packed", "--data.short-sequence-probability", "0.9"]
    flags += ["--phases.0.length", "128", "--model.max-positions", "128"]
    *_, last = done("prepare", config_file, *flags, "--json").out.splitlines()
    (found,) = json.loads(last).values()
    assert found["rows"] < found["sequences"] and found["fill"] == found["tokens"] / (found["rows"] * 128)
    assert found["units"]["word"]["units"] > 0 and found["units"]["word"]["longer"] == 0
    (source,) = found["sources"]
    counts = {name: found[name] for name in ("sequences", "tokens")}
    assert source.pop("epochs") > 0
    assert source == {"source": f"text:{corpus}", "language": "en", "unknown": 0.0, "share": 1.0, **counts}
    said = " ".join(done("pretrain", config_file, *flags, "--dry-run").out.replace("│", "").split())
    assert f"there: {found['rows']:,} packed training rows" in said
    assert "12 steps of 8 rows, packed with" in said


@pytest.mark.parametrize("arguments, code", [([], 2), (["--help"], 0)])
def test_the_command_alone_lists_the_commands(arguments, code, capsys):
    assert run(arguments) == code
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize("line", ["prepare x --workdir y", "pretrain --workdir=runs/a"])
def test_an_interruption_says_how_to_go_on_however_the_flag_is_written(monkeypatch, capsys, line):
    """A command without a run begins anew: tests/system/test_interruption.py."""
    name, *words = line.split()
    monkeypatch.setattr(arguments_of(name), "parse", Mock(side_effect=KeyboardInterrupt))
    assert run([name, *words]) == 143
    assert capsys.readouterr().err.strip().endswith("give the same command again to go on")


@pytest.mark.parametrize("first", ["", "import jax; "])
@pytest.mark.long
def test_with_libtpu_installed_nothing_complains_of_a_tpu_that_is_not_there(first, tiny_run):
    pytest.importorskip("libtpu")
    unset = ("JAX_PLATFORMS", "TPU_LIBRARY_PATH")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    script = f"{first}import bert_jax; bert_jax.load({str(tiny_run.path)!r}).encode(['a'])"
    dry_run = [*SHELL, "pretrain", tiny_run.path, "--workdir", tiny_run.path, "--dry-run"]
    line = [sys.executable, "-c", script] if first else dry_run
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and all("as recorded in" in line for line in done.stderr.splitlines())


def test_the_shell_command_gives_exit_codes_and_ends_quietly_with_its_reader(tmp_path):
    process = program(COMMAND, "evaluate", tmp_path, stderr=subprocess.PIPE, text=True)
    _, said = process.communicate()
    assert process.returncode == 2 and said.startswith("bert-jax: ") and "Traceback" not in said
    reader, writer = os.pipe()
    os.close(reader)
    process = program(COMMAND, "params", "tiny", stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (process.communicate()[1], process.returncode) == ("", 141)
