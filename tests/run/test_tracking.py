"""Trackers: a stand-in for what each promises, and the real libraries where they are installed, without a network."""

import json
import threading

import pytest

from bert_jax.config.operation import LoggingConfig
from bert_jax.run import tracking
from bert_jax.run.metrics import MetricsLog
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.tracking import Background, check_trackers, open_trackers
from bert_jax.system.errors import RunError, UsageError


class StandIn:
    """A tracker that notes what it is told."""

    told = []

    def __init__(self, run):
        self.run, self.id = run, run.id or "its-own"
        self.told.append(self)
        self.lines, self.finished = [], None

    def log(self, step, values):
        self.lines.append((step, values))

    def close(self, finished):
        self.finished = finished


class Failing(StandIn):
    def log(self, step, values):
        raise ConnectionError("nobody answers\nand more")


@pytest.fixture
def config(tiny_config):
    return tiny_config.replace(logging=LoggingConfig(wandb="project", tensorboard=False))


@pytest.fixture
def stand_in(monkeypatch):
    """What was opened, in order."""
    monkeypatch.setattr(StandIn, "told", [])
    monkeypatch.setitem(tracking._TRACKERS, "wandb", StandIn)
    return StandIn.told


def test_lines_go_to_a_tracker_and_a_run_that_goes_on_has_its_id(tmp_path, config, stand_in):
    for step, finished in ((0, False), (10, True)):
        trackers = open_trackers(config, tmp_path)
        log = MetricsLog(tmp_path, step, False, trackers)
        log.write(step + 10, "train", {"loss": 1.5, "mfu": None})
        log.close()
        for tracker in trackers:
            tracker.close(finished)
    first, second = stand_in
    assert first.lines == [(10, {"train/loss": 1.5})] and second.lines == [(20, {"train/loss": 1.5})]
    assert (first.run.id, second.run.id) == (None, "its-own") and (first.finished, second.finished) == (False, True)
    assert first.run.where == "project" and first.run.settings.model.num_layers == 2
    open_trackers(config.replace(logging=LoggingConfig(wandb="other")), tmp_path)
    assert stand_in[2].run.id is None  # another project doesn't know it


def test_a_tracker_that_fails_is_said_once_and_delays_nothing(capsys):
    tracker = Background("wandb", Failing(tracking.Tracked(None, "", {}, None)))
    for step in range(3):
        tracker.log(step, {})
    tracker.close(True)
    said = capsys.readouterr().err
    assert said.count("WARNING") == 1 and "wandb failed (nobody answers); training goes on" in " ".join(said.split())


def test_a_tracker_that_hangs_is_left_behind(capsys):
    class Hanging(StandIn):
        def log(self, step, values):
            threading.Event().wait(60)

    tracker = Background("mlflow", Hanging(tracking.Tracked(None, "", {}, None)))
    tracker.log(1, {})
    tracker.close(True, wait_s=0.2)
    assert "its last lines may be missing there" in " ".join(capsys.readouterr().err.split())


def test_one_that_does_not_start_and_ids_that_cannot_be_read_are_said(tmp_path, config, monkeypatch, stand_in, capsys):
    def refuse(run):
        raise ValueError("no key")

    (tmp_path / "trackers.json").write_text("[")
    with monkeypatch.context() as patched:
        patched.setitem(tracking._TRACKERS, "wandb", refuse)
        assert open_trackers(config, tmp_path) == []
    said = " ".join(capsys.readouterr().err.split())
    assert "the run is tracked as a new one" in said and "wandb didn't start (no key); training goes on" in said
    assert open_trackers(config, tmp_path) and json.loads((tmp_path / "trackers.json").read_text())["wandb"]["id"]


def test_ids_that_cannot_be_written_end_nothing(tmp_path, config, monkeypatch, stand_in, capsys):
    def full(path, value):
        raise RunError("no space left on the device")

    monkeypatch.setattr(tracking, "write_json", full)
    (tracker,) = open_trackers(config, tmp_path)
    tracker.close(finished=True)
    said = " ".join(capsys.readouterr().err.split())
    assert "trackers.json can't be written (no space left on the device)" in said and stand_in[0].finished


def test_one_that_is_not_installed_is_refused(monkeypatch):
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="logging.wandb=mine needs wandb, which isn't installed; pip install .*wandb"):
        check_trackers(LoggingConfig(wandb="mine"))
    check_trackers(LoggingConfig())


def test_a_wrong_setting_is_refused_before_a_package_is_looked_for(config, tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    for uri, said in (("https://user:secret@host/x", "holds a user"), ("https://host/x", "isn't installed")):
        with pytest.raises(UsageError, match=said):
            RunDirectory(tmp_path / "run").open(config.replace(logging=LoggingConfig(mlflow=uri)))
    assert not (tmp_path / "run").exists()


def test_weights_and_biases_offline(tmp_path, config, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for step in (10, 20):
        [tracker] = open_trackers(config, tmp_path)
        tracker.log(step, {"train/loss": 1.0})
        tracker.close(True)
    run_id = json.loads((tmp_path / "trackers.json").read_text())["wandb"]["id"]
    files = [file for file in (tmp_path / "wandb").glob("offline-run-*/*.wandb")]
    assert files and {file.stem for file in files} == {f"run-{run_id}"}


def test_mlflow_in_a_folder(tmp_path, config):
    client = pytest.importorskip("mlflow.tracking").MlflowClient
    uri = f"file://{tmp_path / 'mlruns'}"
    config = config.replace(logging=LoggingConfig(mlflow=uri))
    for step in (10, 20):
        [tracker] = open_trackers(config, tmp_path)
        tracker.log(step, {"train/loss": step / 10})
        tracker.close(step == 20)
    run = client(tracking_uri=uri).get_run(json.loads((tmp_path / "trackers.json").read_text())["mlflow"]["id"])
    history = client(tracking_uri=uri).get_metric_history(run.info.run_id, "train/loss")
    assert [(metric.step, metric.value) for metric in history] == [(10, 1.0), (20, 2.0)]
    assert run.info.status == "FINISHED" and run.data.params["model.num_layers"] == "2"


@pytest.mark.parametrize("entry", [{}, {"id": None}, {"id": 7}, {"id": "../x"}, "x"])
def test_an_entry_without_valid_id_is_a_new_run(tmp_path, config, stand_in, entry):
    known = entry if isinstance(entry, str) else {"where": "project", **entry}
    (tmp_path / "trackers.json").write_text(json.dumps({"wandb": known}))
    (tracker,) = open_trackers(config, tmp_path)
    tracker.close(finished=True)
    assert stand_in[0].id == "its-own"
