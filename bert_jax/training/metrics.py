"""metrics.jsonl and TensorBoard."""

import contextlib
import json
import math
import os
import time

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from bert_jax.system.bucket import Place
from bert_jax.system.copies import Publisher, worked_on
from bert_jax.system.files import full_disk_explained, write_text


class MetricsLog:
    """One JSON object a line; after a restart the lines of steps that are done again are gone.

    Nothing can be added to an object in a bucket: there a copy on this machine takes its place, a minute old at most.
    """

    def __init__(self, directory: Place, step: int, tensorboard: bool):
        """Cuts what `directory` holds back to `step`, the one that training goes on from."""
        self.path = directory / "metrics.jsonl"
        kept = [json.dumps(line) + "\n" for line in read_metrics(self.path) if line["step"] <= step]
        file, events = worked_on(self.path), worked_on(directory / "tensorboard")
        write_text(file, "".join(kept))
        self._file = open(file, "a", encoding="utf-8")
        self._publisher = Publisher(self.path, directory / "tensorboard")
        self._events = None
        if tensorboard:
            with full_disk_explained(directory):
                events.mkdir(exist_ok=True)
                # Not SummaryWriter: its thread dies of a full disk, and whoever writes next waits for it for ever.
                self._events = EventsWriter(os.fspath(events / "events"))
                self._events.write_event(Event(step=step + 1, session_log=SessionLog(status=SessionLog.START)))

    def write(self, step: int, split: str, values: dict[str, float | None]) -> None:
        """Adds a line. What is not a finite number becomes null: JSON has no other."""
        finite = {name: value if value is not None and math.isfinite(value) else None for name, value in values.items()}
        with full_disk_explained(self.path):
            self._file.write(json.dumps({"step": step, "split": split} | finite) + "\n")
            self._file.flush()
            if self._events:
                values = [
                    Summary.Value(tag=f"{split}/{name}", simple_value=value)
                    for name, value in finite.items()
                    if value is not None
                ]
                self._events.write_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
                self._events.flush()
        self._publisher.publish_if_due()

    def close(self) -> None:
        """Closes the files. Every line was written out already, or its failure raised."""
        for file in filter(None, (self._file, self._events)):
            with contextlib.suppress(OSError):
                file.close()
        self._publisher.close()


def read_metrics(path: Place) -> list[dict[str, float | str | None]]:
    """The lines of a metrics.jsonl; [] where there is none. A line that is not whole is left out."""
    if not path.exists():
        return []
    read = []
    for line in path.read_bytes().decode(errors="replace").split("\n")[:-1]:
        with contextlib.suppress(ValueError):
            read.append(json.loads(line))
    return read
