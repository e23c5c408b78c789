"""The current activity of a process, and the journal of a run, RUN/events.jsonl: starts, stops, faults and where it
ran."""

import contextlib
import datetime
import json
import os
from pathlib import Path
from typing import Literal

from bert_jax.system.bucket import Place
from bert_jax.system.errors import without_passwords
from bert_jax.system.json_file import Shape, as_shape, parse_object, read_bytes

Event = Literal["begun", "resumed", "environment", "fault", "stopped", "failed", "finished"]
JOURNAL_FILE = "events.jsonl"
_MOST_READ = 4_000_000
"""Largest size in bytes of a journal that is read. A line has about a hundred bytes."""
_file: Path | None = None
"""The journal of the run that this process trains; None while there is none."""


def open_journal(file: Path | None) -> None:
    """From now on events are appended to `file`. With None they are dropped."""
    global _file
    _file = file


def note(event: Event, message: str) -> None:
    """Adds `time` (UTC), `event` and `message` to the journal, if one is open. A failed write is ignored."""
    if _file is None:
        return
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    line = json.dumps({"time": now, "event": event, "message": without_passwords(message)}, ensure_ascii=False) + "\n"
    with contextlib.suppress(OSError):
        line = "\n" * _ends_within_a_line(_file) + line
        # Opened without blocking, since the path may be a pipe.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW
        file = os.open(_file, flags, 0o666)
        try:
            os.write(file, line.encode(errors="replace"))
        finally:
            os.close(file)


def _ends_within_a_line(file: Path) -> bool:
    """Whether the last line is incomplete, because its process was killed or the disk was full."""
    if not file.is_file() or not file.stat().st_size:
        return False
    with open(file, "rb") as written:
        written.seek(-1, os.SEEK_END)
        return written.read() != b"\n"


class Noted(Shape):
    """A line of the journal."""

    time: str
    """UTC, in the form of ISO 8601."""
    event: str
    """One of the values of Event, or an event of another release."""
    message: str


def read_journal(file: Place) -> list[Noted]:
    """The lines of a journal, oldest first; [] if there is none. Lines that can't be read are left out. A journal
    larger than _MOST_READ gives []."""
    try:
        lines = read_bytes(file, _MOST_READ).splitlines()
    except (OSError, ValueError):
        return []
    noted = []
    for line in lines:
        with contextlib.suppress(ValueError):
            noted.append(as_shape(parse_object(line), Noted))
    return noted


_WIDTH = 200
"""Size in bytes of the file that another process reads."""


class Whereabouts:
    """The current activity of this process, for the message about a process that is stuck or was aborted."""

    def __init__(self):
        self.text = "starting"
        self.changes = 0
        self._file: int | None = None

    def at(self, text: str) -> None:
        """Reports a new activity, for example "computing step 12"."""
        self.text = text
        self.still()
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk loses only this report
                os.pwrite(self._file, text.encode(errors="replace")[:_WIDTH].ljust(_WIDTH), 0)

    def still(self) -> None:
        """Reports progress of the same activity."""
        self.changes += 1

    def written_to(self, file: int) -> None:
        """From now on also writes each activity to the open file with this descriptor."""
        self._file = file
        self.at(self.text)


here = Whereabouts()
"""The current activity of this process."""


def read_whereabouts(file: int) -> str:
    """The last activity that another process wrote to the file."""
    return os.pread(file, _WIDTH, 0).decode(errors="replace").strip() or "starting"
