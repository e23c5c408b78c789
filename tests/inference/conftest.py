"""The model that most tests ask."""

import pytest

import bert_jax
from bert_jax.inference.bert import Bert


@pytest.fixture(scope="session")
def bert(tiny_run) -> Bert:
    """That of `tiny_run`. Programs that it has compiled serve all tests."""
    return bert_jax.load(tiny_run.path)
