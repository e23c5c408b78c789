import re

import pytest

from bert_jax.cli.arguments import Arguments
from bert_jax.cli.commands import COMMANDS, arguments_of
from bert_jax.cli.flags import short_help
from bert_jax.config.finetune import TaskRunConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.training import Phase
from bert_jax.system.errors import Setting, UsageError


class Measure(Arguments):
    """Measures."""

    LINE = "bert-jax measure"
    config: RunConfig = RunConfig()
    batch_size: int
    """Sequences a step."""
    warm_up: int = 3
    """Steps not counted."""


TASK_RUN = TaskRunConfig(
    task=TaskConfig(name="any", kind="class"), rows_hash="", phases=(Phase(steps=1, length=8, batch_size=2),)
)
WITH_SETTINGS = [name for name in COMMANDS if arguments_of(name).defaults()]


def test_a_commands_own_flags_stand_beside_those_of_the_config(config_file, tiny_config):
    flags = ["--batch-size", "4", "--model.num-layers=1", "--data.source", "text:a", "--data.language", "de"]
    asked = Measure.parse([str(config_file), *flags, "--logging.no-tensorboard"])
    assert isinstance(asked, Measure) and (asked.batch_size, asked.warm_up) == (4, 3)
    assert asked.config == tiny_config.replace(
        model=tiny_config.model.replace(num_layers=1),
        data=tiny_config.data.replace(source="text:a", language="de"),
        logging=tiny_config.logging.replace(tensorboard=False),
    )


def test_help_says_what_a_commands_own_flags_mean(config_file, capsys):
    with pytest.raises(SystemExit):
        Measure.parse([str(config_file), "--help"])
    shown = capsys.readouterr().out
    for words in ("Measures.", "Sequences a step. (required)", "Steps not counted. (default: 3)", "(default: 2)"):
        assert words in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_ends_with_its_sentence(name):
    command = arguments_of(name)
    for flag in command.flags():
        said = short_help([flag._replace(default=None)]).partition(" (default: ")[0]
        assert not re.search(r"\w\)?\. [a-z]", " ".join(said.split())), said


def test_needed_settings_stand_in_the_usage_line_and_an_example_in_the_text(done):
    assert "usage: bert-jax finetune CONFIG --init TEXT --workdir PATH [--NAME" in done("finetune", "--help").out
    assert "The TPU slice, like v5e:4x4" in done("plan", "--help").out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_short_and_has_no_marks_of_a_library(name, done, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    for arguments in ([name, "--help"], ["help", name], [name, "--help-all"]):
        shown = done(*arguments).out
        assert f"usage: bert-jax {name}" in shown
        assert not {"{None}", "INT", "STR", "[STR"} & set(shown.split()) and "(default: )" not in shown
        assert max(map(len, shown.splitlines())) <= 110 and " \n" not in shown
        if "--help-all" not in arguments:
            assert shown.count("\n") <= 50, "the short help is long"


@pytest.mark.parametrize("name", WITH_SETTINGS)
def test_the_settings_shown_first_and_those_read_exist(name, done):
    command = arguments_of(name)
    names = [flag.name for flag in command.flags()]
    if TaskRunConfig in command.config_kinds():
        names += [flag.name for flag in command.flags(TASK_RUN)]
    assert set(command.SHORT_HELP_SETTINGS) <= {flag.name for flag in command.used_flags()}
    assert len(re.findall("^  [-A-Z]", done(name, "--help").out, re.MULTILINE)) <= 20  # README's number
    for read in command.READS:
        assert any(f"{each}.".startswith(f"{read}.") for each in names), read


def test_help_all_shows_every_setting_that_the_command_reads(done):
    shown = {name: done(name, "--help-all").out for name in ("pretrain", "params", "bench", "finetune", "vocab")}
    for words in ("--model.num-layers N", "--data.source TEXT ...", "--phases.1.steps N", "--execution.remat none|f"):
        assert words in shown["pretrain"]
    for flag in arguments_of("pretrain").flags():
        assert flag.name.rpartition(".")[2] in shown["pretrain"]
    assert "--optimizer.name" not in shown["params"] and "--data.source" not in shown["bench"]
    assert "--task.kind" in shown["finetune"] and "--phases" not in shown["vocab"]


def test_a_setting_that_params_does_not_show_changes_nothing_that_it_counts(done):
    unread = ["--model.dropout", "0.5", "--data.source", "text:absent", "--logging.every", "3"]
    assert done("params", "tiny", *unread).out == done("params", "tiny").out


def test_the_version_is_told(done):
    assert done("--version").out == "bert-jax 0.1.0\n"


@pytest.mark.parametrize(
    "setting, shown",
    [
        (Setting("model.num_heads", 3), "--model.num-heads=3"),
        (Setting("data.packed", False), "--data.no-packed"),
        (Setting("data.packed", True), "--data.packed"),
        (Setting("phases.7.batch_size"), "--phases.7.batch-size"),
        (Setting("task.widths", (64, 32)), "--task.widths=64 32"),
        (Setting("init", "a\0model.seed=b\0"), r"--init=a\x00model.seed=b\x00"),
    ],
)
def test_a_message_names_the_flag_of_a_setting(setting, shown):
    assert str(UsageError(f"{setting} is wrong")) == f"{shown} is wrong"


def test_a_flag_that_a_message_names_can_be_given_to_a_command_that_has_a_shorter_one():
    evaluate = arguments_of("evaluate")
    full = "RUN --data.source F --task.format csv --task.columns a b --data.language de --objective.units word"
    short = "RUN --data F --format csv --columns a b --language de --units word"
    assert dict(evaluate.parse(full.split())) == dict(evaluate.parse(short.split()))
    assert evaluate.parse(["RUN", "--task.dev", "F"]).data == "F"
