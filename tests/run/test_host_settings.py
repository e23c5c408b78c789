import json

import pytest

from bert_jax.config.run import RunConfig
from bert_jax.run import host_settings
from bert_jax.run.host_settings import check_same_settings
from bert_jax.system.errors import UsageError


@pytest.fixture
def first(monkeypatch):
    """Makes this process the second of two, whose first has such a config."""

    def joined(config: RunConfig, version: str = host_settings.__version__) -> None:
        theirs = {name: value for name, value in config.flat().items() if not name.startswith("hosts.")}
        monkeypatch.setattr(host_settings, "text_of_first", lambda text: json.dumps([version, theirs]))
        monkeypatch.setattr(host_settings, "wait_for_all", lambda name: None)
        monkeypatch.setattr(host_settings, "fails_together", lambda failure, elsewhere: failure)
        monkeypatch.setattr(host_settings.jax.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(host_settings.jax, "process_count", lambda: 2)

    return joined


def test_the_settings_that_differ_are_named(first):
    first(RunConfig(hosts={"coordinator": "a:1", "count": 2, "index": 0}))
    mine = {"coordinator": "a:1", "count": 2, "index": 1}
    check_same_settings(RunConfig(hosts=mine))
    with pytest.raises(UsageError, match="--seed is 0 there and 1 now; start the same command on all hosts"):
        check_same_settings(RunConfig(hosts=mine, seed=1))


def test_another_version_is_refused(first):
    first(RunConfig(), version="9.9")
    with pytest.raises(UsageError, match="this host has bert_jax 0.1.0, and the first host of this run 9.9"):
        check_same_settings(RunConfig())
