"""Every command takes a path however it is spelled: with .., ., ~, links, blanks, signs of a shell."""

import shlex
import shutil

import pytest

import bert_jax
from bert_jax.cli.results_tables import print_next_steps

NAME = "rü $(id) {step} s"
"""The name of a folder; shells, str.format and rich would each change it if they were given it as it is."""


@pytest.fixture
def home(tiny_run, corpus, tmp_path, monkeypatch):
    """A home with a copy of the tiny run, a link to it, text and rows; the current folder is one in it."""
    shutil.copytree(tiny_run.path, tmp_path / NAME)
    (tmp_path / "link").symlink_to(NAME)
    (tmp_path / "in put").mkdir()
    shutil.copy(corpus, tmp_path / "in put" / "é.txt")
    rows = "The cat sees the house.\t0\nThe dog sees the river.\t1\n" * 12
    (tmp_path / "in put" / "rows.tsv").write_text(f"sentence\tlabel\n{rows}")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("home")
@pytest.mark.long
def test_commands_take_paths_of_every_spelling(config_file, done, refused):
    done("inspect", f"../{NAME}", "--step", 3)
    done("verify", "../link")
    assert "finished" in done("pretrain", f"~/{NAME}", "--workdir", f"./../here/../{NAME}", "--dry-run").out
    assert bert_jax.load_tokenizer(f"./../here/../{NAME}").encode("house")
    for name in ("vocab", "prepare"):
        done(name, config_file, "--data.source", "text:~/in put/*.txt", "--workdir", f"./../here/../{NAME} new")
    done("fill-mask", f"../{NAME}", "The old [MASK] sees the house.")
    done("evaluate", f"~/{NAME}", "--data", "~/in put/*.txt")
    done("features", "../link", "../in put/é.txt", "./../in put/ü.npz")
    done("export", f"./../here/../{NAME}", "./ex pört")
    done("import", "../here/ex pört", "~/imp ört")
    flags = ("--task.train", "~/in put/rows.tsv", "--task.dev", "../in put/rows.tsv", "--task.epochs", 1)
    done("finetune", "sst2", "--init", f"~/{NAME}", "--workdir", f"../{NAME} tuned", *flags, "--task.max-length", 32)
    done("predict", f"~/{NAME} tuned", "../in put/rows.tsv", "~/pre dicted.tsv")
    assert "is the input" in refused("predict", f"~/{NAME} tuned", "~/in put/rows.tsv", "../in put/rows.tsv")


def test_printed_commands_can_be_pasted(tmp_path, capsys):
    commands = [("bert-jax", "inspect", tmp_path / NAME), ("python", "-P", "-c", 'print("$(id)")')]
    print_next_steps(tmp_path / NAME, commands)
    lines = capsys.readouterr().out.splitlines()[-2:]
    assert [shlex.split(line) for line in lines] == [list(map(str, words)) for words in commands]
