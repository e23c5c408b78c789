"""SIGTERM and Ctrl-C of a command: the first ends it in order, a second Ctrl-C at once."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

AT_ONCE = 130
"""Exit code after a second Ctrl-C: what a shell gives for a program that SIGINT (2) ends."""

_AGAIN_S = 0.5
"""After this time an interruption that was swallowed is raised again."""
_SOON_S = 0.05
"""After this time an interruption that came at a bad moment is raised."""
_SAME_S = 0.2
"""Signals this close together are one: a terminal, a launcher and `timeout` may each pass on the same Ctrl-C."""
_LONGEST_EXIT_S = 10.0
"""Time for the process to end once its command has; whatever holds it up then is left behind."""


class _Heard:
    """What has come so far. Signals belong to the process, and so does this."""

    watched = False
    """Whether a second Ctrl-C ends this process."""
    first: float | None = None
    """When the first signal was seen to."""
    calm = False
    """Whether KeyboardInterrupt is not to be raised any more."""
    deferred = False
    """Whether KeyboardInterrupt is not to be raised now."""
    raised = False
    told: Callable[[], str] = staticmethod(lambda: "give the same command again to go on")
    """What is left, for the last words."""


def listen() -> None:
    """From now on the first SIGTERM or Ctrl-C raises KeyboardInterrupt, and a second Ctrl-C ends this process.

    The second is seen by a thread, so that it works while the main thread computes, or waits for a dead disk.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, _interrupt)
    _Heard.watched = True
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()


def watched() -> bool:
    """Whether a second Ctrl-C ends this process without anybody's help: in a command, not in a notebook."""
    return _Heard.watched


@contextlib.contextmanager
def telling(told: Callable[[], str]) -> Iterator[None]:
    """Within the block a second Ctrl-C says at the end what `told` returns. It is called by another thread."""
    before, _Heard.told = _Heard.told, told
    try:
        yield
    finally:
        _Heard.told = before


def heed() -> None:
    """The first signal has come and is seen to: those that follow raise nothing."""
    _Heard.first = _Heard.first or time.monotonic()


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """An interruption that comes within the block, which must be short, is raised soon after it."""
    _Heard.deferred = True
    try:
        yield
    finally:
        _Heard.deferred = False


def interrupted(error: BaseException | None) -> bool:
    """Whether `error` is or came of a KeyboardInterrupt: a library may make one that is raised within it its own."""
    if error is None or isinstance(error, KeyboardInterrupt):
        return error is not None
    return interrupted(error.__cause__) or interrupted(error.__context__)


def raised() -> bool:
    """Whether KeyboardInterrupt was raised. Where C code was interrupted, as an extension module while it loads, the
    command may fail with another error, which doesn't tell its cause."""
    return _Heard.raised


def calm() -> None:
    """The command has heard of its interruption, or has ended: nothing is raised any more."""
    _Heard.calm = True
    signal.setitimer(signal.ITIMER_REAL, 0)


def over(code: int) -> None:
    """The command has ended with exit code `code`: no signal changes that any more, and nothing delays it for long."""
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    last = threading.Timer(_LONGEST_EXIT_S, os._exit, (code,))
    last.daemon = True
    last.start()


def _interrupt(number: int, frame) -> None:
    """Raises KeyboardInterrupt, so that a command ends in order and nothing half-written stays.

    What is raised in a callback of Python's garbage collector, as JAX has one, is swallowed: so it is raised again, by
    an alarm, until it is on its way up. A second SIGTERM changes nothing.
    """
    if _Heard.calm or number != signal.SIGALRM and _Heard.first is not None:
        return
    heed()
    if _Heard.deferred:
        signal.setitimer(signal.ITIMER_REAL, _SOON_S)
    elif not interrupted(sys.exc_info()[1]):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        _Heard.raised = True
        raise KeyboardInterrupt


def _watch(reader: int) -> None:
    """Ends the process at the second Ctrl-C. Python writes the number of each signal to the pipe, as it comes."""
    first = None
    while number := os.read(reader, 1):
        if number[0] not in (signal.SIGTERM, signal.SIGINT):
            continue
        first = first or time.monotonic()
        if number[0] == signal.SIGINT and time.monotonic() - first > _SAME_S:
            _end_at_once()


def _end_at_once() -> None:
    """Not by the console of rich: the main thread may hold its lock for ever."""
    shown_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar hides it
    with contextlib.suppress(Exception):
        os.write(2, f"{shown_cursor}\nbert-jax: ended at once by a second Ctrl-C; {_Heard.told()}\n".encode())
    for worker in multiprocessing.active_children():
        worker.kill()
    os._exit(AT_ONCE)
