import json
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


def test_a_run_that_goes_on_with_other_threads_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PJRT_NPROC", "3")
    mesh, file = make_mesh(MeshConfig()), tmp_path / "events.jsonl"
    before = module.environment(mesh)
    assert ", 3 threads; " in before and module.changed_threads(file, before) is None  # there is no journal
    with open(file, "w", encoding="utf-8") as lines:
        for event, message in (("environment", before.replace("3 threads", "9 threads")), ("environment", before)):
            lines.write(json.dumps({"time": "now", "event": event, "message": message}) + "\n")
        lines.write(json.dumps({"time": "now", "event": "stopped", "message": "step 3"}) + "\n")
    assert module.changed_threads(file, before) is None
    monkeypatch.setenv("PJRT_NPROC", "1")
    remark = module.changed_threads(file, module.environment(mesh))
    assert "computed with 3 threads of a CPU before, and here with 1" in remark and "PJRT_NPROC=3" in remark
    assert module.changed_threads(file, module.environment(mesh).replace("x cpu;", "x NVIDIA H200;")) is None
    file.write_text(file.read_text().replace("3 threads", "many"))  # as an earlier release noted it
    assert module.changed_threads(file, module.environment(mesh)) is None
    monkeypatch.setenv("PJRT_NPROC", "abc")
    assert module.changed_threads(file, module.environment(mesh)) is None
