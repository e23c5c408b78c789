from dataclasses import dataclass

import pytest

from bert_jax.cli.arguments import ConfigArguments, RunArguments, parse_config
from bert_jax.system.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Measure(ConfigArguments):
    """A command's arguments."""

    batch_size: int
    """Sequences a step."""
    warm_up: int = 3
    """Steps not counted."""


def test_a_commands_own_flags_stand_beside_those_of_the_config(config_file, tiny_config):
    flags = ["--batch-size", "4", "--model.num-layers", "1"]
    asked = parse_config(Measure, "measure", "Measures.", [str(config_file), *flags])
    assert isinstance(asked, Measure) and (asked.batch_size, asked.warm_up) == (4, 3)
    assert asked.config == tiny_config.replace(model=tiny_config.model.replace(num_layers=1))


def test_help_says_what_a_commands_own_flags_mean(config_file, capsys):
    with pytest.raises(SystemExit):
        parse_config(Measure, "measure", "Measures.", [str(config_file), "--help"])
    shown = capsys.readouterr().out
    for words in ("Measures.", "Sequences a step. (required)", "Steps not counted. (default: 3)", "(default: 2)"):
        assert words in shown


@pytest.mark.parametrize(
    "shape, usage", [(Measure, "--batch-size BATCH_SIZE"), (RunArguments, "--workdir WORKDIR"), (ConfigArguments, "")]
)
def test_without_a_config_file_the_line_says_what_is_needed(shape, usage):
    with pytest.raises(UsageError) as refusal:
        parse_config(shape, "measure", "Measures.", ["--seed", "3"])
    assert str(refusal.value) == f"give a config file first: bert-jax measure CONFIG.py {usage}".strip()
