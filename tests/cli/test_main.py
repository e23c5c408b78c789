"""The commands, as typed."""

import json
import os
import subprocess
import sys

import pytest
from conftest import program, stories
from warm_process import COMMAND

from bert_jax.cli.commands import COMMANDS, arguments_of
from bert_jax.cli.main import _failed, run
from bert_jax.instances.prepared_data import PreparedData

SHELL = [sys.executable, "-m", "bert_jax.cli.main"]
CONFIG = """
from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.training import Phase
from bert_jax.config.run import RunConfig
from bert_jax.config.data import VocabularyConfig

config = RunConfig(
    model=ModelConfig(num_layers=2, hidden_size=32, num_heads=2, max_positions=32),
    vocabulary=VocabularyConfig(size=120),
    data=DataConfig(source="text:{corpus}", held_out=0.2),
    phases=(Phase(steps=4, length=32, batch_size=8),),
)
"""


@pytest.fixture
def config(tmp_path):
    (tmp_path / "corpus.txt").write_text(stories(40))
    path = tmp_path / "config.py"
    path.write_text(CONFIG.format(corpus=tmp_path / "corpus.txt"))
    return path


def refused(capsys, *arguments) -> str:
    """The one line that a refusal prints."""
    assert run(list(map(str, arguments))) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("bert-jax: ")
    return lines[0]


@pytest.mark.long
def test_what_a_run_is_told_of_and_what_can_be_done_with_it(config_file, tiny_copy, tmp_path, capsys):
    workdir = str(tiny_copy.path)
    assert run(["pretrain", str(config_file), "--workdir", workdir]) == 0
    printed = capsys.readouterr()
    for words in ("MLM accuracy", "NSP accuracy", "by frequency alone", "one word masked", "bert-jax fill-mask"):
        assert words in printed.out
    assert "is finished" in printed.err.replace("\n", "")

    assert run(["evaluate", workdir]) == 0
    assert "held-out sequences" in (shown := capsys.readouterr().out) and "MLM accuracy" in shown
    (tmp_path / "other.txt").write_text(stories(20, first=500))
    assert run(["evaluate", workdir, "--data", str(tmp_path / "other.txt"), "--language", "de"]) == 0
    shown = "".join(capsys.readouterr().out.split())
    assert f"sequencesof{tmp_path / 'other.txt'}" in shown and "held-out" not in shown and "MLMaccuracy" in shown

    assert run(["fill-mask", workdir, "The old [MASK] sees the [MASK].", "--top", "3"]) == 0
    assert capsys.readouterr().out.count("0.") >= 6

    assert run(["inspect", workdir, "--rows", "2", "--step", "3"]) == 0
    shown = capsys.readouterr().out
    assert "[CLS]" in shown and "[MASK]/" in shown and "second segment" in shown and "sequence 3" not in shown


@pytest.mark.long
def test_the_first_steps_alone_of_several_sources(config, tmp_path, capsys):
    (tmp_path / "b.txt").write_text(stories(30, first=100))
    sources = [f"text:{tmp_path / 'corpus.txt'}", f"text:{tmp_path / 'b.txt'}"]
    flags = ["--workdir", str(tmp_path / "run"), "--preparation.processes", "1", "--data.source", *sources]
    flags += ["--data.weights", "2", "1", "--data.language", "en", "de"]
    assert run(["vocab", str(config), *flags]) == 0
    assert "120 pieces" in capsys.readouterr().out
    assert run(["prepare", str(config), *flags]) == 0
    shown = capsys.readouterr().out
    for words in ("documents", "sentences", "unknown pieces", "random second segments", "padding", "cut", "dropped"):
        assert words in shown
    assert "What the training draws" in shown and "66.7%" in shown and "33.3%" in shown
    prepared = PreparedData.open(tmp_path / "run" / "data" / "length-32")
    assert len(prepared.sources) == 2 and sum(prepared.sources) == prepared.train.instances
    assert run(["inspect", str(tmp_path / "run"), "--rows", "1"]) == 0


@pytest.mark.parametrize(
    "text, words",
    [
        ("One document.", "holds 1 document and next sentence prediction needs two"),
        ("\n", "holds no text; give another"),
    ],
)
def test_text_that_cannot_be_measured_on_is_one_line(tiny_run, tmp_path, capsys, text, words):
    (tmp_path / "some.txt").write_text(text)
    assert run(["evaluate", str(tiny_run.path), "--data", str(tmp_path / "some.txt")]) == 2
    *what_was_read, last = capsys.readouterr().err.splitlines()
    assert words in last and last.startswith("bert-jax: ") and len(what_was_read) in (0, 8)


def test_what_was_prepared_is_one_json_object(config, tmp_path, capsys):
    flags = ["--workdir", str(tmp_path / "run"), "--preparation.processes", "1", "--data.packed"]
    flags += ["--data.short-sequence-probability", "0.9"]
    flags += ["--phases.0.length", "128", "--model.max-positions", "128", "--json"]
    assert run(["prepare", str(config), *flags]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    (found,) = json.loads(last).values()
    assert found["rows"] < found["sequences"] and found["fill"] == found["tokens"] / (found["rows"] * 128)
    assert found["units"]["word"]["units"] > 0 and found["units"]["word"]["longer"] == 0
    (source,) = found["sources"]
    assert source == {
        "source": f"text:{tmp_path / 'corpus.txt'}",
        "language": "en",
        "sequences": found["sequences"],
        "tokens": found["tokens"],
        "unknown": 0.0,
        "share": 1.0,
        "epochs": pytest.approx(source["epochs"]),
    }
    assert run(["pretrain", str(config), *flags[:-1], "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", "").split())
    assert f"there: {found['rows']:,} packed training rows" in said
    assert "4 steps of 8 rows, packed with" in said


@pytest.mark.parametrize("arguments, code", [([], 2), (["--help"], 0)])
def test_the_command_alone_lists_the_commands(arguments, code, capsys):
    assert run(arguments) == code
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize(
    "content, words",
    [
        ("config = 3", "builds no RunConfig named `config`"),
        ("conf = 3", "builds no RunConfig named `config`"),
        (
            "from bert_jax.config.model import ModelConfig\nModelConfig(num_layer=3)",
            "--model.num-layer: there is no such setting; did you mean num_layers?",
        ),
        ("config = (", "SyntaxError"),
        ("import absent_module", "ModuleNotFoundError: No module named 'absent_module'"),
    ],
)
def test_a_wrong_config_file_is_one_line(tmp_path, capsys, content, words):
    (tmp_path / "config.py").write_text(content)
    assert words in refused(capsys, "pretrain", tmp_path / "config.py", "--workdir", tmp_path / "run")


@pytest.mark.parametrize(
    "line, words", [(["params", "x"], "to do it from its beginning"), (["prepare", "x", "--workdir", "y"], "to go on")]
)
def test_an_interruption_is_one_line(monkeypatch, capsys, line, words):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(arguments_of(line[0]), "parse", interrupted)
    assert run(line) == 143 and capsys.readouterr().err.strip().endswith(f"give the same command again {words}")


@pytest.mark.parametrize(
    "command, words",
    [
        (["inspect", "RUN", "--rows", "0"], "--rows 0: expected a whole number above 0"),
        (["fill-mask", "RUN", "a [MASK]", "--top", "-1"], "top=-1 asks for no pieces"),
    ],
)
def test_counts_below_one_are_one_line(tiny_run, capsys, command, words):
    assert words in refused(capsys, *(tiny_run.path if word == "RUN" else word for word in command))


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


@pytest.mark.parametrize("words", [["--workdir", "runs/a"], ["--workdir=runs/a"]])
def test_an_interrupted_run_goes_on_however_its_flag_is_written(words, capsys, monkeypatch):
    monkeypatch.setattr("bert_jax.system.interruption._State.settled", False)
    assert _failed(KeyboardInterrupt(), "pretrain", words) == 143
    assert "give the same command again to go on" in capsys.readouterr().err
