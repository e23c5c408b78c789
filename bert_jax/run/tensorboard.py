"""TensorBoard's events. A module of its own, since tensorboardX imports PyTorch wherever that is installed."""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary


class EventFiles:
    """Event files in a directory. Methods raise OSError; after a failed write the next event goes to a new file."""

    def __init__(self, directory: Path, step: int):
        """`step`: the last step done before this process. TensorBoard hides older events of later steps."""
        directory.mkdir(exist_ok=True)
        self._prefix = os.fspath(directory / "events")
        # Not SummaryWriter: its thread ends when the disk is full, and the next write waits for it for ever.
        self._writer: EventsWriter | None = None
        self._add(Event(step=step + 1, session_log=SessionLog(status=SessionLog.START)))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds measurements of a step, such as `train/loss`."""
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._add(Event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        """Closes the file."""
        if self._writer:
            self._writer.close()

    def _add(self, event: Event) -> None:
        try:
            self._writer = self._writer or EventsWriter(self._prefix)
            self._writer.write_event(event)
            self._writer.flush()
        except OSError:
            failed, self._writer = self._writer, None  # its file may end within an event
            if failed:
                with contextlib.suppress(OSError):
                    failed.close()
            raise
