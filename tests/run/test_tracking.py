"""Trackers: a stand-in for what each promises, and the real libraries where they are installed, without a network."""

import contextlib
import json
import subprocess
import sys
import time
from unittest.mock import Mock

import pytest
from extras import skip_without

from bert_jax.config.operation import LoggingConfig
from bert_jax.run import tracking
from bert_jax.run.metrics import MetricsLog
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.tracking import check_trackers, open_trackers
from bert_jax.system.errors import RunError, UsageError


class StandIn:
    """A tracker that keeps what it gets."""

    opened = []

    def __init__(self, run):
        self.run, self.id = run, run.id or "its-own"
        self.opened.append(self)
        self.lines, self.finished = [], None

    def log(self, step, values):
        self.lines.append((step, values))

    def close(self, finished):
        self.finished = finished


@pytest.fixture
def config(tiny_config):
    return tiny_config.replace(logging=LoggingConfig(wandb="project", tensorboard=False))


@pytest.fixture
def opened(monkeypatch):
    """The stand-ins that were opened, in order."""
    monkeypatch.setattr(StandIn, "opened", [])
    monkeypatch.setitem(tracking._TRACKERS, "wandb", StandIn)
    return StandIn.opened


def warnings(capsys):
    return " ".join(capsys.readouterr().err.split())


def test_lines_go_to_a_tracker_and_a_run_that_goes_on_has_its_id(tmp_path, config, opened):
    for step in (0, 10):
        [tracker] = open_trackers(config, tmp_path, step)
        with contextlib.suppress(RunError), tracker:
            log = MetricsLog(tmp_path, step, [tracker])
            log.write(step + 10, "train", {"loss": 1.5, "mfu": None})
            log.close()
            if step == 0:
                raise RunError("the run failed")
    first, second = opened
    assert first.lines == [(10, {"train/loss": 1.5})] and second.lines == [(20, {"train/loss": 1.5})]
    assert (first.run.id, second.run.id) == (None, "its-own") and (first.finished, second.finished) == (False, True)
    assert first.run.where == "project" and first.run.settings.model.num_layers == 2
    open_trackers(config.replace(logging=LoggingConfig(wandb="other", tensorboard=False)), tmp_path, 20)
    assert opened[2].run.id is None  # another project doesn't know it


def test_a_tracker_that_fails_is_one_warning_and_is_left_alone_for_a_time(
    tmp_path, config, opened, monkeypatch, capsys
):
    now = 100.0
    monkeypatch.setattr(tracking.time, "monotonic", lambda: now)

    def answers_after_a_minute(self, step, values):
        nonlocal now
        self.lines.append((step, values))
        now += 60
        raise ConnectionError("nobody answers\nand more")

    monkeypatch.setattr(StandIn, "log", answers_after_a_minute)
    [tracker] = open_trackers(config, tmp_path, 0)
    with tracker:
        for step, pause in ((1, 599), (2, 2), (3, 0)):
            tracker.log(step, {})
            now += pause
    assert [step for step, _ in opened[0].lines] == [1, 3] and opened[0].finished
    said = warnings(capsys)
    assert said.count("WARNING") == 1 and "wandb failed (nobody answers); training goes on" in said


def test_one_that_does_not_start_and_ids_that_cannot_be_read_or_written_are_said(
    tmp_path, config, monkeypatch, opened, capsys
):
    refuse = Mock(side_effect=RunError("no key"))
    (tmp_path / "trackers.json").write_text("[")
    with monkeypatch.context() as patched:
        patched.setitem(tracking._TRACKERS, "wandb", refuse)
        assert open_trackers(config, tmp_path, 0) == []
    said = warnings(capsys)
    assert "the run is tracked as a new one" in said and "wandb didn't start (no key); training goes on" in said
    with monkeypatch.context() as patched:
        patched.setattr(tracking, "write_json", refuse)
        assert open_trackers(config, tmp_path, 0)
    assert "trackers.json can't be written (no key)" in warnings(capsys)
    assert open_trackers(config, tmp_path, 0) and json.loads((tmp_path / "trackers.json").read_text())["wandb"]["id"]


def test_one_that_is_not_installed_is_refused(monkeypatch):
    monkeypatch.setattr("bert_jax.system.errors.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="--logging.wandb=mine needs wandb, which isn't installed; pip install"):
        check_trackers(LoggingConfig(wandb="mine"))
    check_trackers(LoggingConfig())


def test_a_wrong_setting_is_refused_before_a_package_is_looked_for(config, tmp_path, monkeypatch):
    monkeypatch.setattr("bert_jax.system.errors.find_spec", lambda name: None)
    for uri, said in (("https://user:secret@host/x", "holds a user"), ("https://host/x", "isn't installed")):
        with pytest.raises(UsageError, match=said):
            RunDirectory(tmp_path / "run").open(config.replace(logging=LoggingConfig(mlflow=uri)))
    assert not (tmp_path / "run").exists()


def test_weights_and_biases_offline(tmp_path, config, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for step in (10, 20):
        [tracker] = open_trackers(config, tmp_path, step - 10)
        with tracker:
            tracker.log(step, {"train/loss": 1.0})
    run_id = json.loads((tmp_path / "trackers.json").read_text())["wandb"]["id"]
    assert {file.stem for file in (tmp_path / "wandb").glob("offline-run-*/*.wandb")} == {f"run-{run_id}"}


def test_mlflow_in_a_folder(tmp_path, config):
    client = pytest.importorskip("mlflow.tracking").MlflowClient
    uri = f"file://{tmp_path / 'mlruns'}"
    config = config.replace(logging=LoggingConfig(mlflow=uri, tensorboard=False))
    for step in (10, 20):
        [tracker] = open_trackers(config, tmp_path, step - 10)
        with tracker:
            tracker.log(step, {"train/loss": step / 10, "eval/ndcg@10": 0.5})
    run = client(tracking_uri=uri).get_run(json.loads((tmp_path / "trackers.json").read_text())["mlflow"]["id"])
    history = client(tracking_uri=uri).get_metric_history(run.info.run_id, "train/loss")
    assert [(metric.step, metric.value) for metric in history] == [(10, 1.0), (20, 2.0)]
    assert run.data.metrics["eval/ndcg_at_10"] == 0.5
    assert run.info.status == "FINISHED" and run.data.params["model.num_layers"] == "2"


@pytest.mark.parametrize("entry", [{}, {"id": None}, {"id": 7}, {"id": "../x"}, "x"])
def test_an_entry_without_valid_id_is_a_new_run(tmp_path, config, opened, entry):
    known = entry if isinstance(entry, str) else {"where": "project", **entry}
    (tmp_path / "trackers.json").write_text(json.dumps({"wandb": known}))
    open_trackers(config, tmp_path, 0)
    assert opened[0].id == "its-own"


def test_events_of_tensorboard_go_to_a_new_file_after_a_write_that_failed(tmp_path, config, monkeypatch, capsys):
    [tracker], now = open_trackers(config.replace(logging=LoggingConfig()), tmp_path, 0), time.time()
    monkeypatch.setattr(time, "time", lambda: now + 10)  # a file is named by the second
    monkeypatch.setattr(tracking, "_PAUSE", 0)

    full = Mock(side_effect=OSError(28, "No space left on device"))
    tracker._tracker.log.__self__._writer.write_event = full
    with tracker:
        for step in (1, 2):
            tracker.log(step, {"train/loss": 1.0})
    assert len(list((tmp_path / "tensorboard").glob("events*"))) == 2
    assert "tensorboard failed (No space left on device); training goes on" in warnings(capsys)


def test_tensorboard_does_not_import_pytorch_and_leaves_it_to_others(tmp_path):
    skip_without("torch")
    code = (
        "import sys, pathlib; from bert_jax.run import tracking; "
        "run = tracking.TrackedRun(pathlib.Path(sys.argv[1]), '', None, 0, None); tracking._tensorboard(run); "
        "assert 'torch' not in sys.modules; import torch; torch.zeros(1)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    assert list((tmp_path / "tensorboard").glob("events*"))
