import re

import pytest

from bert_jax.cli.arguments import Arguments
from bert_jax.cli.commands import COMMANDS, arguments_of
from bert_jax.cli.flags import short_help
from bert_jax.cli.main import run
from bert_jax.config.finetune import TaskRunConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.training import Phase
from bert_jax.config.wording import first_sentence
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


@pytest.mark.parametrize("name, usage", [("plan", " --topology TEXT"), ("vocab", " --workdir PATH"), ("bench", "")])
def test_without_a_config_the_line_says_what_is_needed(name, usage):
    with pytest.raises(UsageError) as refusal:
        arguments_of(name).parse(["--seed", "3"])
    assert str(refusal.value).startswith(f"give a config first: bert-jax {name} CONFIG{usage}; bert-jax configs")


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_ends_with_its_sentence(name):
    command = arguments_of(name)
    for flag in command.flags():
        said = short_help([flag._replace(default=None)]).partition(" (default: ")[0]
        assert not re.search(r"\w\)?\. [a-z]", " ".join(said.split())), said


def test_needed_settings_stand_in_the_usage_line_and_an_example_in_the_text(capsys):
    assert run(["finetune", "--help"]) == 0
    assert "usage: bert-jax finetune CONFIG --init TEXT --workdir PATH [--NAME" in capsys.readouterr().out
    assert run(["plan", "--help"]) == 0
    assert "The TPU slice, like v5e:4x4" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_short_and_has_no_marks_of_a_library(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    for arguments in ([name, "--help"], ["help", name], [name, "--help-all"]):
        assert run(arguments) == 0
        shown = capsys.readouterr().out
        assert f"usage: bert-jax {name}" in shown
        assert not {"{None}", "INT", "STR", "[STR"} & set(shown.split()) and "(default: )" not in shown
        assert max(map(len, shown.splitlines())) <= 110 and " \n" not in shown
        if "--help-all" not in arguments:
            assert shown.count("\n") <= 50, "the short help is long"


@pytest.mark.parametrize("name", WITH_SETTINGS)
def test_the_settings_shown_first_and_those_read_exist(name, capsys):
    command = arguments_of(name)
    names = [flag.name for flag in command.flags()]
    if TaskRunConfig in command.config_kinds():
        names += [flag.name for flag in command.flags(TASK_RUN)]
    assert set(command.SHORT_HELP_SETTINGS) <= {flag.name for flag in command.used_flags()}
    run([name, "--help"])
    assert len(re.findall("^  [-A-Z]", capsys.readouterr().out, re.MULTILINE)) <= 20  # README's number
    for read in command.READS:
        assert any(f"{each}.".startswith(f"{read}.") for each in names), read


def test_help_all_shows_every_setting_that_the_command_reads(capsys):
    shown = {}
    for name in WITH_SETTINGS:
        run([name, "--help-all"])
        shown[name] = capsys.readouterr().out
    for words in ("--model.num-layers N", "--data.source TEXT ...", "--phases.1.steps N", "--execution.remat none|f"):
        assert words in shown["pretrain"]
    for flag in arguments_of("pretrain").flags():
        assert flag.name.rpartition(".")[2] in shown["pretrain"]
    assert "--optimizer.name" not in shown["params"] and "--data.source" not in shown["bench"]
    assert "--task.kind" in shown["finetune"] and "--phases" not in shown["vocab"]


def test_a_setting_that_params_does_not_show_changes_nothing_that_it_counts(capsys):
    printed = []
    for flags in ([], ["--model.dropout", "0.5", "--data.source", "text:absent", "--logging.every", "3"]):
        assert run(["params", "tiny", *flags]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_the_version_is_told(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == "bert-jax 0.1.0\n"


@pytest.mark.parametrize(
    "setting, shown",
    [
        (Setting("model.num_heads", 3), "--model.num-heads=3"),
        (Setting("data.packed", False), "--data.no-packed"),
        (Setting("data.packed", True), "--data.packed"),
        (Setting("data.packed"), "--data.packed"),
        (Setting("phases.7.batch_size"), "--phases.7.batch-size"),
        (Setting("seed", 3), "--seed=3"),
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
    assert evaluate.parse(full.split()) == evaluate.parse(short.split())
    assert evaluate.parse(["RUN", "--task.dev", "F"]).data == "F"


def test_values_that_look_like_settings_stay_as_they_are(tmp_path, capsys):
    source = f"text:{tmp_path}/seed=1.txt"
    flags = ["--data.source", source, "data.packed=False model.num_heads", source]
    assert run(["pretrain", "demo", "--workdir", str(tmp_path / "run"), *flags]) == 2
    said = capsys.readouterr().err
    assert f"--data.source={source} data.packed=False model.num_heads {source} names a source twice" in said
    assert "use --data.weights to see it more" in said


def test_a_sentence_does_not_end_at_the_names_of_authors():
    assert first_sentence("AdamW, or LAMB (You et al. 2020). Next.") == "AdamW, or LAMB (You et al. 2020)."
    assert first_sentence("One. Two.") == "One."
