"""The model that most tests ask."""

import pytest

import bert_jax
from bert_jax.batching.grouping import WINDOW_GROUPS
from bert_jax.inference.bert import Bert


@pytest.fixture(scope="session")
def bert(tiny_run) -> Bert:
    """That of `tiny_run`. Programs that it has compiled serve all tests."""
    return bert_jax.load(tiny_run.path)


@pytest.fixture
def small_windows(monkeypatch) -> int:
    """The number of tokens in a window of texts that are read ahead: an eighth of the usual one."""
    monkeypatch.setattr("bert_jax.inference.features.tokens_at_once", lambda: 256)
    return WINDOW_GROUPS * 256
