"""Experiment trackers that get the measurements besides metrics.jsonl: Weights & Biases and MLflow."""

import contextlib
import os
import queue
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol, runtime_checkable

from bert_jax.config.operation import LoggingConfig
from bert_jax.config.training import TrainingConfig
from bert_jax.run.hosts import is_first
from bert_jax.system.bucket import Place
from bert_jax.system.copies import worked_on
from bert_jax.system.disk import reason
from bert_jax.system.errors import RunError, UsageError, install_extra
from bert_jax.system.files import write_json
from bert_jax.system.json_file import read_object
from bert_jax.system.progress import warn

_MOST_WAITING = 10_000
"""Maximum number of lines that wait for a tracker slower than training; later ones are dropped."""
_CLOSE_S = 60.0
"""Seconds that the end of training waits for a tracker to send its lines."""
_ID = re.compile(r"[\w-]{1,128}", re.ASCII)
"""Pattern of a tracker's id of a run."""
_PARAMETERS_AT_ONCE = 100
"""Maximum number of parameters that MLflow's server accepts in one request."""


@runtime_checkable
class Tracker(Protocol):
    """A run in an experiment tracker. Any method may raise any error or take long; `Background` guards against both."""

    id: str
    """The tracker's id of the run; a resumed run is opened with the same id."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Adds measurements of a step, such as `train/loss`. After a restart some steps come a second time, with the
        same values."""

    def close(self, finished: bool) -> None:
        """Sends the remaining values, and whether the run is finished or was stopped."""


class Tracked(NamedTuple):
    """The facts of a run that a tracker starts with."""

    path: Place
    where: str
    """The project, or the server's URI."""
    settings: TrainingConfig
    id: str | None
    """The tracker's id of a resumed run; None for a new one."""


class WeightsAndBiases:
    """A run of Weights & Biases. Offline (WANDB_MODE=offline) its files lie in the run's wandb/."""

    def __init__(self, run: Tracked):
        import wandb

        self.id = run.id or uuid.uuid4().hex[:8]
        self._run = wandb.init(
            project=run.where,
            name=run.path.name,
            id=self.id,
            resume="allow",
            config=run.settings.model_dump(mode="json"),
            dir=os.environ.get("WANDB_DIR") or os.fspath(worked_on(run.path)),
            settings=wandb.Settings(console="off"),  # or it would copy the progress bar
        )
        # Its own counter of steps only rises; a resumed run may do some steps again.
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Adds measurements of a step."""
        self._run.log({"step": step, **values})

    def close(self, finished: bool) -> None:
        """Ends the run with exit code 0 if it is finished, otherwise 1."""
        self._run.finish(exit_code=0 if finished else 1)


class MLflow:
    """A run of MLflow, on a server or in a folder."""

    def __init__(self, run: Tracked):
        # By default it waits minutes for a server that doesn't answer.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self._client, self._metric = MlflowClient(tracking_uri=run.where), Metric
        if run.id:
            self.id = run.id
            self._client.update_run(self.id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "bert_jax")
        experiment = self._client.get_experiment_by_name(name)
        experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self.id = self._client.create_run(experiment_id, run_name=run.path.name).info.run_id
        parameters = [Param(setting, str(value)) for setting, value in run.settings.flat().items()]
        for begin in range(0, len(parameters), _PARAMETERS_AT_ONCE):
            self._client.log_batch(self.id, params=parameters[begin : begin + _PARAMETERS_AT_ONCE])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Adds measurements of a step."""
        now = int(1000 * time.time())
        self._client.log_batch(self.id, [self._metric(name, value, now, step) for name, value in values.items()])

    def close(self, finished: bool) -> None:
        """Ends the run as FINISHED or KILLED."""
        self._client.set_terminated(self.id, "FINISHED" if finished else "KILLED")


class Background:
    """Runs a tracker in a thread, so that one that fails or hangs neither ends nor delays training.

    Prints a warning of the first failure, in one line.
    """

    def __init__(self, name: str, tracker: Tracker):
        self._name, self._tracker, self._failed = name, tracker, False
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Queues measurements of a step for the thread; returns at once."""
        try:
            self._waiting.put_nowait(partial(self._tracker.log, step, values))
        except queue.Full:
            self._warn(f"it is {_MOST_WAITING:,} lines behind")

    def close(self, finished: bool, wait_s: float = _CLOSE_S) -> None:
        """Has the thread send the queued lines and end the run; waits `wait_s` seconds at most."""
        began = time.monotonic()
        with contextlib.suppress(queue.Full):
            self._waiting.put(partial(self._tracker.close, finished), timeout=wait_s)
            self._waiting.put(None, timeout=wait_s)
        self._thread.join(max(0.0, wait_s - (time.monotonic() - began)))
        if self._thread.is_alive():
            self._warn(f"it took more than {wait_s:.0f} s, and its last lines may be missing there")

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Ends as `close` does; the run is finished if nothing was raised."""
        self.close(finished=kind is None)

    def _work(self) -> None:
        while send := self._waiting.get():
            try:
                send()
            except Exception as error:  # of whatever library
                self._warn(_first_line(error))

    def _warn(self, reason: str) -> None:
        if not self._failed:
            warn(f"{self._name} failed ({reason}); training goes on, and metrics.jsonl has every line")
        self._failed = True


_TRACKERS: dict[str, Callable[[Tracked], Tracker]] = {"wandb": WeightsAndBiases, "mlflow": MLflow}
"""By the setting of LoggingConfig that asks for each."""


def check_trackers(logging: LoggingConfig) -> None:
    """Raises UsageError if a tracker in the settings isn't installed."""
    for name, where in logging.trackers.items():
        spec = find_spec(name)
        if spec is None or spec.origin is None:  # a folder of that name, as wandb makes, has no origin
            raise UsageError(f"logging.{name}={where} needs {name}, which isn't installed; {install_extra(name)}")


def open_trackers(config: TrainingConfig, path: Place) -> list[Background]:
    """Starts the trackers in `config.logging` for the run at `path`; [] on processes other than the first.

    Warns of one that doesn't start, and leaves it out. The run's trackers.json keeps each tracker's id of the run.
    """
    if not config.logging.trackers or not is_first():
        return []
    known, trackers = _read_ids(path / "trackers.json"), []
    for name, where in config.logging.trackers.items():
        before = known.get(name)
        run_id = before.get("id") if isinstance(before, dict) and before.get("where") == where else None
        if run_id is not None and not (isinstance(run_id, str) and _ID.fullmatch(run_id)):
            warn(f"{path / 'trackers.json'} has no valid id for {name}; the run is tracked as a new one")
            run_id = None
        try:
            tracker = _TRACKERS[name](Tracked(path, where, config, run_id))
        except Exception as error:  # of whatever library
            warn(f"{name} didn't start ({_first_line(error)}); training goes on without it")
            continue
        trackers.append(Background(name, tracker))
        known[name] = {"where": where, "id": tracker.id}
    file = path / "trackers.json"
    try:
        if trackers:
            write_json(file, known)
    except (OSError, RunError) as error:
        warn(f"{file} can't be written ({reason(error)}); the run is tracked as another one when it goes on")
    return trackers


def _read_ids(file: Place) -> dict[str, Any]:
    try:
        return read_object(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        warn(f"{file} can't be read ({error}); the run is tracked as a new one")
        return {}


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300] or type(error).__name__
