import subprocess

from bert_jax.config.operation import MeshConfig
from bert_jax.model.sharding import make_mesh
from bert_jax.run import environment as module


def test_versions_commit_and_machine_are_one_line(monkeypatch):
    monkeypatch.setattr(module, "commit", lambda: "abc-dirty")
    said = module.environment(make_mesh(MeshConfig()))
    assert said.startswith("bert_jax 0.1.0 (commit abc-dirty); jax ") and "1 x cpu" in said and "\n" not in said


def test_a_git_that_fails_or_hangs_gives_no_commit(monkeypatch):
    def hangs(*_, **__):
        raise subprocess.TimeoutExpired("git", 5)

    for run in (hangs, lambda *_, **__: subprocess.CompletedProcess([], 128, "", "dubious ownership")):
        module.commit.cache_clear()
        monkeypatch.setattr(module.subprocess, "run", run)
        assert module.commit() is None
    module.commit.cache_clear()
