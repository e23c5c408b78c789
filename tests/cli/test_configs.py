"""The list of configs and suites."""

import re

from bert_jax.cli.main import run
from bert_jax.run.config_files import suite_names


def test_each_config_and_suite_is_listed_with_its_summary_in_a_column_of_its_own(capsys):
    assert run(["configs"]) == 0
    listed = re.findall(r"^  (\S+)  +(\S.*)$", capsys.readouterr().out, re.M)
    assert {*suite_names(), "demo", "classes"} <= {name for name, _ in listed}
