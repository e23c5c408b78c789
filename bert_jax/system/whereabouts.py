"""What this process is doing: for the last words about one that is stuck, or is ended by others."""

import contextlib
import os

_WIDTH = 200
"""Bytes of the file that another process reads."""


class Whereabouts:
    """What this process is doing, told by whoever does it, and how often that has changed."""

    def __init__(self):
        self.text = "starting"
        self.changes = 0
        self._file: int | None = None

    def at(self, text: str) -> None:
        """From now on this process is doing `text`, for example "computing step 12"."""
        self.text = text
        self.still()
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk costs no more than these words
                os.pwrite(self._file, text.encode(errors="replace")[:_WIDTH].ljust(_WIDTH), 0)

    def still(self) -> None:
        """It is doing the same and gets on with it."""
        self.changes += 1

    def written_to(self, file: int) -> None:
        """From now on what it is doing is in the open file of this number as well."""
        self._file = file
        self.at(self.text)


here = Whereabouts()
"""Of this process, as there is one in each."""


def read_whereabouts(file: int) -> str:
    """What another process wrote last."""
    return os.pread(file, _WIDTH, 0).decode(errors="replace").strip() or "starting"
