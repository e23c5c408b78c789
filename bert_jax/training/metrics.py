"""metrics.jsonl and TensorBoard."""

import contextlib
import json
import math
import os
import time
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from bert_jax.system.files import full_disk_explained, write_text


class MetricsLog:
    """One JSON object a line; after a restart the lines of steps that are done again are gone."""

    def __init__(self, directory: Path, step: int, tensorboard: bool):
        """Cuts what `directory` holds back to `step`, the one that training goes on from."""
        self.path = directory / "metrics.jsonl"
        kept = [json.dumps(line) + "\n" for line in read_metrics(self.path) if line["step"] <= step]
        write_text(self.path, "".join(kept))
        self._file = open(self.path, "a", encoding="utf-8")
        self._events = None
        if tensorboard:
            with full_disk_explained(directory):
                (directory / "tensorboard").mkdir(exist_ok=True)
                # Not SummaryWriter: its thread dies of a full disk, and whoever writes next waits for it for ever.
                self._events = EventsWriter(os.fspath(directory / "tensorboard" / "events"))
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

    def close(self) -> None:
        """Closes the files. Every line was written out already, or its failure raised."""
        for file in filter(None, (self._file, self._events)):
            with contextlib.suppress(OSError):
                file.close()


def read_metrics(path: Path) -> list[dict[str, float | str | None]]:
    """The lines of a metrics.jsonl; [] where there is none. A line that is not whole is left out."""
    if not path.exists():
        return []
    read = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
        with contextlib.suppress(ValueError):
            read.append(json.loads(line))
    return read
