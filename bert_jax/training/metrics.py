"""metrics.jsonl and TensorBoard."""

import contextlib
import json
import math
import os
import time
from collections.abc import Sequence
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from bert_jax.system.bucket import Place
from bert_jax.system.copies import Publisher, worked_on
from bert_jax.system.disk import disk_explained
from bert_jax.system.files import write_text
from bert_jax.system.progress import say
from bert_jax.training.hosts import is_first
from bert_jax.training.tracking import Background


class MetricsLog:
    """One JSON object a line; after a restart the lines of steps that are done again are gone.

    A disk that takes no more ends no training: lines that couldn't be written are kept, and written once they can be.
    Of several processes the first alone writes.
    Nothing can be added to an object in a bucket: what is there is a copy, a minute old at most and as new as the
    newest checkpoint.
    """

    def __init__(self, directory: Place, step: int, tensorboard: bool, trackers: Sequence[Background] = ()):
        """Cuts what `directory` holds back to `step`, the one that training goes on from. Lines go to `trackers`, too,
        which whoever opened them closes."""
        self._trackers = trackers
        self.path = directory / "metrics.jsonl"
        kept = [line for line in read_metrics(self.path) if line["step"] <= step]
        self._last = {line["split"]: line["step"] for line in kept}
        self.scores = {line["step"]: _score(line) for line in kept if line["split"] == "eval" and "score" in line}
        """The score of a task at the steps at which it was evaluated."""
        self._file = self._tensorboard = self._events = None
        if not is_first():
            return
        file = worked_on(self.path)
        write_text(file, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = open(file, "ab", buffering=0)  # so that it is known what is written
        self._unwritten, self._failing = b"", False
        self._publisher = Publisher(self.path, directory / "tensorboard")
        if tensorboard:
            self._tensorboard = worked_on(directory / "tensorboard")
            with disk_explained(directory):
                self._tensorboard.mkdir(exist_ok=True)
                self._write_event(Event(step=step + 1, session_log=SessionLog(status=SessionLog.START)))

    def last_step(self, split: str) -> int:
        """Of the newest line of `split`; -1 where there is none."""
        return self._last.get(split, -1)

    def write(self, step: int, split: str, values: dict[str, float | None]) -> None:
        """Adds a line. What is not a finite number becomes null: JSON has no other."""
        finite = {name: value if value is not None and math.isfinite(value) else None for name, value in values.items()}
        self._last[split] = step
        if split == "eval" and "score" in finite:
            self.scores[step] = _score(finite)
        if not self._file:
            return
        self._unwritten += (json.dumps({"step": step, "split": split} | finite) + "\n").encode()
        named = {f"{split}/{name}": value for name, value in finite.items() if value is not None}
        for tracker in self._trackers:
            tracker.log(step, named)
        shown = [Summary.Value(tag=name, simple_value=value) for name, value in named.items()]
        try:
            self._write_lines()
            if self._tensorboard:
                self._write_event(Event(wall_time=time.time(), step=step, summary=Summary(value=shown)))
        except OSError as error:
            if not self._failing:
                say(f"WARNING: {self.path} can't be written ({error.strerror}); training goes on, its lines are kept")
            self._failing = True
        else:
            self._failing = False
        self._publisher.publish_if_due()

    def close(self) -> None:
        """Closes the files."""
        if not self._file:
            return
        try:
            self._write_lines()
        except OSError as error:
            say(f"WARNING: the last lines of {self.path} are lost ({error.strerror})")
        for file in filter(None, (self._file, self._events)):
            with contextlib.suppress(OSError):
                file.close()
        self._publisher.publish()

    def publish(self) -> None:
        """Before a checkpoint is written: a restart finds the lines up to its step, in a bucket too."""
        if self._file:
            self._publisher.publish()

    def _write_lines(self) -> None:
        while self._unwritten:
            self._unwritten = self._unwritten[self._file.write(self._unwritten) :]

    def _write_event(self, event: Event) -> None:
        """A file that a write failed in may end within an event: the next one goes to a new file."""
        try:
            # Not SummaryWriter: its thread dies of a full disk, and whoever writes next waits for it for ever.
            self._events = self._events or EventsWriter(os.fspath(self._tensorboard / "events"))
            self._events.write_event(event)
            self._events.flush()
        except OSError:
            failed, self._events = self._events, None
            if failed:
                with contextlib.suppress(OSError):
                    failed.close()
            raise


def _score(values: dict[str, Any]) -> float:
    """The score of an evaluation; the worst where it was no finite number."""
    score = values["score"]
    return score if isinstance(score, int | float) else -math.inf


def read_metrics(path: Place) -> list[dict[str, float | str | None]]:
    """The lines of a metrics.jsonl; [] where there is none. A line that is damaged or not whole is left out."""
    if not path.exists():
        return []
    read = []
    for line in path.read_bytes().decode(errors="replace").split("\n")[:-1]:
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict) and isinstance(value.get("step"), int) and isinstance(value.get("split"), str):
                read.append(value)
    return read
