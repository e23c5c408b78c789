"""Keeps libraries from printing tracebacks in addition to our one-line error message."""

import logging
import sys

from bert_jax.system import disk, interruption

_TALKATIVE = "absl", "asyncio"
"""Loggers that get a traceback for each failed write, from Orbax and from tasks that it leaves running."""
_LATE = "Event loop is closed"
"""Error of a tensorstore thread that finishes a write after Orbax has given up the checkpoint."""


def quieten_libraries() -> None:
    """Silences those loggers and known unraisable exceptions; to be called once in a process."""
    for library in _TALKATIVE:
        logging.getLogger(library).setLevel(logging.CRITICAL)
    sys.unraisablehook = _print_unraisable


def _print_unraisable(unraisable) -> None:
    """Prints the traceback of an exception that nothing can catch, as Python does, except for known ones.

    An interruption is raised again, and the code that waits for a write reports the failure of a disk.
    """
    error = unraisable.exc_value
    known = interruption.interrupted(error) or str(error) == _LATE or (error and disk.number_of(error))
    if not known:
        sys.__unraisablehook__(unraisable)
