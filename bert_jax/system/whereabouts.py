"""What this process is doing, for the message about a process that is stuck or was aborted."""

import contextlib
import os

_WIDTH = 200
"""Size in bytes of the file that another process reads."""


class Whereabouts:
    """What this process is doing, as its code reports it, and a counter of reports."""

    def __init__(self):
        self.text = "starting"
        self.changes = 0
        self._file: int | None = None

    def at(self, text: str) -> None:
        """Reports a new activity, for example "computing step 12"."""
        self.text = text
        self.still()
        if self._file is not None:
            with contextlib.suppress(OSError):  # on a full disk only this report is lost
                os.pwrite(self._file, text.encode(errors="replace")[:_WIDTH].ljust(_WIDTH), 0)

    def still(self) -> None:
        """Reports progress of the same activity."""
        self.changes += 1

    def written_to(self, file: int) -> None:
        """From now on also writes each activity to the open file with this descriptor."""
        self._file = file
        self.at(self.text)


here = Whereabouts()
"""The activity of this process."""


def read_whereabouts(file: int) -> str:
    """The last activity that another process wrote to the file."""
    return os.pread(file, _WIDTH, 0).decode(errors="replace").strip() or "starting"
