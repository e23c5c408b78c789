"""Commands as typed."""

import pytest

from bert_jax.cli.main import run


@pytest.fixture
def done(capsys):
    """Runs a command, which must succeed; returns what it printed to standard output, and to standard error."""

    def run_it(*words):
        capsys.readouterr()
        assert run([*map(str, words)]) == 0, words
        return capsys.readouterr()

    return run_it


@pytest.fixture
def refused(capsys):
    """Runs a command, which must refuse; returns its one line, before which remarks may stand."""

    def run_it(*words):
        capsys.readouterr()
        assert run([*map(str, words)]) == 2, words
        shown = capsys.readouterr()
        *remarks, last = shown.err.splitlines()
        assert last.startswith("bert-jax: ") and not [line for line in remarks if line.startswith("bert-jax: ")]
        assert not shown.out
        return last

    return run_it
