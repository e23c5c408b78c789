import json
from pathlib import Path

import pytest

from bert_jax.config.data import DataConfig
from bert_jax.records import python_docs
from bert_jax.records.corpus import open_corpus

SOURCE = '''
"""Module with things.

It has a second paragraph."""

class Thing:
    """A thing.

    >>> Thing(1,
    ...       "red")
    Thing
    """

    def grow(self):
        """Makes the thing larger,
        and then larger again."""

        def inner():
            """Nobody sees
            this one."""

if True:
    def conditional():
        """Defined under
        a condition."""

def short():
    """One line."""

def again():
    """Makes the thing larger,
    and then larger again."""
'''


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr(python_docs, "available_cores", lambda: 1)


def documents_of(tmp_path, monkeypatch, **files):
    for name, source in files.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setattr(python_docs, "_module_paths", lambda: sorted(tmp_path.glob("*.py")))
    return list(open_corpus(DataConfig()).documents())


def test_a_docstring_of_several_lines_is_a_document_of_paragraphs(tmp_path, monkeypatch):
    assert documents_of(tmp_path, monkeypatch, one=SOURCE) == [
        ["Module with things.", "It has a second paragraph."],
        ["A thing.", '>>> Thing(1, ... "red") Thing'],
        ["Makes the thing larger, and then larger again."],
        ["Defined under a condition."],
    ]


def test_broken_files_and_lone_surrogates_do_no_harm(tmp_path, monkeypatch):
    documents = documents_of(tmp_path, monkeypatch, broken="def (", odd='"""A \\ud800\nsurrogate."""', empty="x = 1")
    assert documents == [["A ? surrogate."]]


def test_the_modules_of_a_folder_but_its_tests_give_text(monkeypatch):
    """As all of the installed Python does."""
    folder = Path(json.__file__).parents[1] / "unittest"
    monkeypatch.setattr(python_docs.sysconfig, "get_path", lambda name: str(folder))
    corpus = open_corpus(DataConfig())
    paths = corpus.parts[0].source.paths
    names = [path.name for path in paths]
    assert "mock.py" in names and len(set(names)) == len(names) == corpus.total
    assert not any("test" in path.relative_to(folder).parts[:-1] for path in paths)
    documents = [document for document in corpus.documents() if 0 < corpus.position <= corpus.total]
    assert sum(len(line) for document in documents for line in document) > 5_000
