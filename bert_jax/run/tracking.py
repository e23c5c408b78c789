"""Sends measurements to TensorBoard, Weights & Biases and MLflow."""

import contextlib
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bert_jax.config.operation import LoggingConfig
from bert_jax.config.training import TrainingConfig
from bert_jax.run.hosts import is_first
from bert_jax.system.bucket import Place
from bert_jax.system.copies import local_path
from bert_jax.system.errors import RunError, Setting, check_installed, failure_reason
from bert_jax.system.files import write_json
from bert_jax.system.json_file import read_object
from bert_jax.system.progress import warn

_PAUSE = 10
"""After a failed call, a tracker isn't called for this many times the duration of that call. So a server that doesn't
answer costs a tenth of the training's time at most."""
_ID = re.compile(r"[\w-]{1,128}", re.ASCII)
"""Pattern of a tracker's id of a run."""
_PARAMETERS_AT_ONCE = 100
"""Maximum number of parameters that MLflow's server accepts in one request."""


class TrackedRun(NamedTuple):
    """A run as a tracker needs it to start."""

    path: Place
    where: str
    """The tracker's project, the server's URI, or the folder."""
    settings: TrainingConfig
    step: int
    """The last step done before this process."""
    id: str | None
    """The tracker's id of a resumed run; None for a new one."""


class Tracker(NamedTuple):
    """A run in a tracker. Any call may raise any error."""

    log: Callable[[int, Mapping[str, float]], None]
    """Adds measurements of a step, such as `train/loss`. After a restart some steps are added a second time, with the
    same values."""
    close: Callable[[bool], None]
    """Sends the remaining values, and whether the run is finished or was stopped."""
    id: str | None = None
    """The tracker's id of the run, by which a resumed run is opened; None if it needs none."""


class _EventFiles:
    """TensorBoard's event files in a folder. After a failed write the next event goes to a new file."""

    # The SummaryWriter of tensorboardX isn't used: its thread ends when the disk is full, and the next write waits for
    # it for ever.

    def __init__(self, folder: Path):
        folder.mkdir(exist_ok=True)
        self._prefix, self._writer = os.fspath(folder / "events"), None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self.add(wall_time=time.time(), step=step, summary=summary)

    def add(self, **fields: object) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event

        writer, self._writer = self._writer or EventsWriter(self._prefix), None
        try:
            writer.write_event(Event(**fields))
            writer.flush()
        except OSError:
            with contextlib.suppress(OSError):
                writer.close()  # the file may end within an event
            raise
        self._writer = writer

    def close(self, finished: bool) -> None:
        if self._writer:
            self._writer.close()


@contextlib.contextmanager
def _absent(module: str) -> Iterator[None]:
    """Makes the import of a module fail during the block, unless it is imported already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # as the documentation of `import` says
    try:
        yield
    finally:
        sys.modules.pop(module, None)


def _tensorboard(run: TrackedRun) -> Tracker:
    with _absent("torch"):  # tensorboardX would import PyTorch if it is installed, which takes over a second
        from tensorboardX.proto.event_pb2 import SessionLog

    events = _EventFiles(local_path(run.path / "tensorboard"))
    # TensorBoard hides older events of steps after the restored one.
    events.add(step=run.step + 1, session_log=SessionLog(status=SessionLog.START))
    return Tracker(events.log, events.close)


def _weights_and_biases(run: TrackedRun) -> Tracker:
    """A run in Weights & Biases. Offline (WANDB_MODE=offline) its files are in the run's wandb/."""
    import wandb

    run_id = run.id or uuid.uuid4().hex[:8]
    tracked = wandb.init(
        project=run.where,
        name=run.path.name,
        id=run_id,
        resume="allow",
        config=run.settings.model_dump(mode="json"),
        dir=os.environ.get("WANDB_DIR") or os.fspath(local_path(run.path)),
        settings=wandb.Settings(console="off"),  # or it would copy the progress bar
    )
    # wandb's counter of steps can't go back, but a resumed run may repeat some steps.
    tracked.define_metric("*", step_metric="step")
    return Tracker(
        lambda step, values: tracked.log({"step": step, **values}),
        lambda finished: tracked.finish(exit_code=0 if finished else 1),
        run_id,
    )


def _mlflow(run: TrackedRun) -> Tracker:
    """`run.where` is a server or a folder."""
    # By default MLflow waits minutes for a server that doesn't answer.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    client, run_id = MlflowClient(tracking_uri=run.where), run.id
    if run_id:
        client.update_run(run_id, status="RUNNING")
    else:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "bert_jax")
        experiment = client.get_experiment_by_name(name)
        experiment_id = experiment.experiment_id if experiment else client.create_experiment(name)
        run_id = client.create_run(experiment_id, run_name=run.path.name).info.run_id
        parameters = [Param(setting, str(value)) for setting, value in run.settings.flat().items()]
        for begin in range(0, len(parameters), _PARAMETERS_AT_ONCE):
            client.log_batch(run_id, params=parameters[begin : begin + _PARAMETERS_AT_ONCE])

    def log(step: int, values: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        # MLflow takes no @ in a name, as in ndcg@10.
        metrics = [Metric(name.replace("@", "_at_"), value, now, step) for name, value in values.items()]
        client.log_batch(run_id, metrics)

    return Tracker(log, lambda finished: client.set_terminated(run_id, "FINISHED" if finished else "KILLED"), run_id)


class GuardedTracker:
    """A tracker whose failures don't end the training: the first one prints a warning. It is closed at the end of a
    `with` block."""

    def __init__(self, name: str, tracker: Tracker):
        self._name, self._tracker, self._failed, self._paused_until = name, tracker, False, 0.0

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Adds measurements of a step, unless a call failed just before."""
        if time.monotonic() >= self._paused_until:
            self._call(partial(self._tracker.log, step, values))

    def __enter__(self) -> "GuardedTracker":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Ends the run in the tracker; it is finished if nothing was raised."""
        self._call(partial(self._tracker.close, kind is None))

    def _call(self, send: Callable[[], None]) -> None:
        began = time.monotonic()
        try:
            send()
        except Exception as error:  # of any library
            now = time.monotonic()
            self._paused_until = now + _PAUSE * (now - began)
            if not self._failed:
                warn(
                    f"{self._name} failed ({failure_reason(error)}); training goes on, and metrics.jsonl has every line"
                )
            self._failed = True


_TRACKERS: dict[str, Callable[[TrackedRun], Tracker]] = {
    "tensorboard": _tensorboard,
    "wandb": _weights_and_biases,
    "mlflow": _mlflow,
}
"""The function that opens a tracker, by the setting of LoggingConfig that asks for it."""


def check_trackers(logging: LoggingConfig) -> None:
    """Raises UsageError if a tracker in the settings isn't installed."""
    for name, where in logging.trackers.items():
        check_installed(f"{Setting(f'logging.{name}', where)} needs {name}", name, name)


def open_trackers(config: TrainingConfig, path: Place, step: int) -> list[GuardedTracker]:
    """Starts the trackers in `config.logging` for the run at `path`, which goes on after `step`; [] on processes other
    than the first. If a tracker doesn't start, prints a warning and leaves it out. The run's trackers.json keeps each
    tracker's id of the run.
    """
    if not is_first():
        return []
    file, wanted = path / "trackers.json", config.logging.trackers
    ids = _read_ids(file) if wanted else {}
    if config.logging.tensorboard:
        wanted = {"tensorboard": os.fspath(path / "tensorboard")} | wanted
    trackers = []
    for name, where in wanted.items():
        try:
            tracker = _TRACKERS[name](TrackedRun(path, where, config, step, _known_id(ids, name, where, file)))
        except Exception as error:  # of any library
            warn(f"{name} didn't start ({failure_reason(error)}); training goes on without it")
            continue
        trackers.append(GuardedTracker(name, tracker))
        if tracker.id:
            ids[name] = {"where": where, "id": tracker.id}
    try:
        if ids:
            write_json(file, ids)
    except (OSError, RunError) as error:
        warn(f"{file} can't be written ({failure_reason(error)}); the run is tracked as another one when it goes on")
    return trackers


def _read_ids(file: Place) -> dict[str, object]:
    try:
        return read_object(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        warn(f"{file} can't be read ({error}); the run is tracked as a new one")
        return {}


def _known_id(ids: dict[str, object], name: str, where: str, file: Place) -> str | None:
    """The tracker's id of the run, if `ids` has one for the same project or server `where`; None for a new run."""
    entry = ids.get(name)
    if not isinstance(entry, dict) or entry.get("where") != where or entry.get("id") is None:
        return None
    if isinstance(entry["id"], str) and _ID.fullmatch(entry["id"]):
        return entry["id"]
    warn(f"{file} has no valid id for {name}; the run is tracked as a new one")
    return None
