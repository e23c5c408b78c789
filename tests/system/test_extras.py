"""The command that installs an extra fits the way in which the package was installed."""

import pytest

from bert_jax.system import errors


class Installed:
    def __init__(self, note):
        self.note = note

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.note


@pytest.mark.parametrize(
    "note, command",
    [
        (
            '{"url": "file:///tmp/bert_jax-0.1.0-py3-none-any.whl", "archive_info": {}}',
            'pip install "bert_jax[tasks] @ file:///tmp/bert_jax-0.1.0-py3-none-any.whl"',
        ),
        (
            '{"url": "https://host/bert_jax.git", "vcs_info": {"vcs": "git", "commit_id": "ab"}}',
            'pip install "bert_jax[tasks] @ git+https://host/bert_jax.git@ab"',
        ),
        (None, 'pip install "bert_jax[tasks]"'),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(monkeypatch, tmp_path, note, command):
    monkeypatch.setattr(errors, "_CONSTRAINTS", tmp_path / "constraints.txt")
    monkeypatch.setattr(errors, "distribution", lambda name: Installed(note))
    assert errors.install_extra("tasks") == command


def test_an_extra_of_a_checkout():
    assert errors.install_extra("tasks") == 'pip install -c launch/constraints.txt -e ".[tasks]"'
