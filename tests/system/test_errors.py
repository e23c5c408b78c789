import pickle
from types import SimpleNamespace

import pytest

from bert_jax.system import errors, progress
from bert_jax.system.errors import RunError, Setting, UsageError, listed, quoted


@pytest.mark.parametrize(
    "part", ["a\nb", "a\r\nb", "\x85", "\u2028", "\t", "\x1b[31m", "\ud83d", "x" * 5000, "x y " * 1250]
)
@pytest.mark.parametrize("kind", [UsageError, RunError])
def test_a_message_is_one_line_and_cut_whatever_name_is_in_it(part, kind, capsys):
    error = kind(f"{part}/config.json lacks {part}; put it there")
    for again in (error, pickle.loads(pickle.dumps(error))):
        text = str(again)
        assert len(text.splitlines()) == 1 and len(text) < 2100 and text.isprintable()
        assert text.endswith("; put it there")
    progress.say(str(error))
    progress.warn(f"{Setting('data.source', part)} is wrong")
    first, second = capsys.readouterr().err.splitlines()
    assert first == str(error) and second.startswith("WARNING: --data.source=") and second.endswith("is wrong")


def test_a_long_name_is_cut_where_it_stands():
    text = str(UsageError(f"{'d' * 3000}/a lacks config.json, and {'e' * 3000} has it"))
    assert "/a lacks config.json, and eee" in text and text.endswith("e has it") and len(text) < 800


def test_values_without_a_repr_are_shown_by_their_type():
    inside: list = []
    inside.append(inside)
    assert quoted(inside) == "[[...]]"
    assert quoted(10**5000) == "<int>" and quoted({"label": 10**5000}) == "<dict>"
    assert listed([10**5000]) == "<int>"


def test_sixty_characters_of_a_text_are_quoted():
    assert quoted("d" * 60) == f"'{'d' * 60}'" and quoted("d" * 61) == f"'{'d' * 60}'..."


OF_GIT = '{"url": "https://host/bert_jax.git", "vcs_info": {"vcs": "git", "commit_id": "ab"}}'


@pytest.mark.parametrize(
    "note, command",
    [
        ('{"url": "file:///a.whl", "archive_info": {}}', 'pip install "bert_jax[tasks] @ file:///a.whl"'),
        (OF_GIT, 'pip install "bert_jax[tasks] @ git+https://host/bert_jax.git@ab"'),
        (None, 'pip install "bert_jax[tasks]"'),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(monkeypatch, tmp_path, note, command):
    assert errors.install_extra("tasks") == 'pip install -c launch/constraints.txt -e ".[tasks]"'  # of a checkout
    notes = {"direct_url.json": note}
    monkeypatch.setattr(errors, "_CONSTRAINTS", tmp_path / "constraints.txt")
    monkeypatch.setattr(errors, "distribution", lambda name: SimpleNamespace(read_text=notes.__getitem__))
    assert errors.install_extra("tasks") == command
