"""Checkpoints of a folder, and a small run of which anything may be changed."""

import pytest

from bert_jax.run.checkpoint import Checkpoints


@pytest.fixture
def run(tiny_copy):
    """One with checkpoints of steps 8 and 12."""
    return tiny_copy


@pytest.fixture
def carried(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "vocab.txt").write_text("[PAD]\n")
    return tmp_path / "config.json", tmp_path / "tokenizer"


@pytest.fixture
def checkpoints(tmp_path, carried):
    made = Checkpoints(tmp_path / "checkpoints", carried, keep=2)
    yield made
    made.close()
