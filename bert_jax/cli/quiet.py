"""Keeps libraries from printing tracebacks beside the one line that says what went wrong."""

import logging
import sys

from bert_jax.system import disk, interruption

_TALKATIVE = "absl", "asyncio"
"""Loggers to which Orbax, and tasks that it leaves behind, give the traceback of each failed write."""
_LATE = "Event loop is closed"
"""What tensorstore's threads meet that end a write after Orbax has given up the whole checkpoint."""


def quieten_libraries() -> None:
    """To be called once in a process. What a library raises is raised as ever."""
    for library in _TALKATIVE:
        logging.getLogger(library).setLevel(logging.CRITICAL)
    sys.unraisablehook = _print_unraisable


def _print_unraisable(unraisable) -> None:
    """What Python does with an exception that nothing can catch: it prints its traceback. Not of one that is known.

    An interruption is raised again, and a disk's failure is told by who waits for what was to be written.
    """
    error = unraisable.exc_value
    known = interruption.interrupted(error) or str(error) == _LATE or (error and disk.number_of(error))
    if not known:
        sys.__unraisablehook__(unraisable)
