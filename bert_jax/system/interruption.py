"""Handles SIGTERM and Ctrl-C: the first signal ends a command cleanly, a second Ctrl-C ends it at once."""

import contextlib
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

AT_ONCE = 130
"""Exit code after a second Ctrl-C. A shell reports the same code for a program that SIGINT (2) ends: 128 + 2."""

_AGAIN_S = 0.2
"""Seconds after which a KeyboardInterrupt that was deferred, or swallowed by a callback, is raised again."""
_SAME_S = 0.2
"""Signals this close together count as one: a terminal, a launcher and `timeout` may each pass on the same Ctrl-C."""
_LONGEST_EXIT_S = 10.0
"""Maximum seconds between the end of the command and the end of the process."""


class _State:
    """The state of signal handling. Signals belong to the process, so there is one state for each process."""

    watched = False
    """Whether a second Ctrl-C ends this process: `listen` was called."""
    due = False
    """Whether a signal requests a KeyboardInterrupt."""
    settled = False
    """Whether signals raise no (further) KeyboardInterrupt, because one is being handled, the training loop acts on the
    signal itself, or the command has ended."""
    deferred = False
    """Whether the main thread is in a `deferred` block."""
    raised = False
    """Whether KeyboardInterrupt was raised at least once."""
    advice: Callable[[], str] = staticmethod(lambda: "give the same command again to go on")
    """Returns what a second Ctrl-C prints about the remaining work."""


def listen() -> None:
    """From now on the first SIGTERM or Ctrl-C raises KeyboardInterrupt, and a second Ctrl-C ends this process. A thread
    handles the second Ctrl-C, so that it works while the main thread computes or waits for a disk that is gone."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    _State.watched = True
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()


def watched() -> bool:
    """Whether a second Ctrl-C ends this process: True in a command, False in a notebook."""
    return _State.watched


@contextlib.contextmanager
def advising(advice: Callable[[], str]) -> Iterator[None]:
    """Within the block, a second Ctrl-C prints what `advice` returns. Another thread calls it."""
    before, _State.advice = _State.advice, advice
    try:
        yield
    finally:
        _State.advice = before


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """A signal within the block raises KeyboardInterrupt only after the block, which must be short."""
    _State.deferred = True
    try:
        yield
    finally:
        _State.deferred = False


@contextlib.contextmanager
def after_block() -> Iterator[None]:
    """A Ctrl-C within the block, which imports modules, raises KeyboardInterrupt after the block: modules whose import
    is interrupted can't be imported again before Python is restarted."""
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():  # a handler of other code
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


def interrupted(error: BaseException | None) -> bool:
    """Whether `error` is a KeyboardInterrupt or was caused by one: libraries may wrap it in an error of their own."""
    if error is None or isinstance(error, KeyboardInterrupt):
        return error is not None
    return interrupted(error.__cause__) or interrupted(error.__context__)


def raised() -> bool:
    """Whether KeyboardInterrupt was raised at least once. C code that is interrupted, such as the loading of an
    extension module, may fail with another error that doesn't name its cause."""
    return _State.raised


def stop_raising() -> None:
    """From now on signals raise nothing. To be called at the command's end, or by code that acts on signals itself."""
    _State.settled = True


def exit_soon(code: int) -> None:
    """From now on signals are ignored, and the process exits with `code` within seconds. To be called at the end of the
    process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    last = threading.Timer(_LONGEST_EXIT_S, os._exit, (code,))
    last.daemon = True
    last.start()


def _interrupt(number: int, frame) -> None:
    """Signal handler: raises KeyboardInterrupt, so that the command cleans up and leaves nothing half-written.

    Python swallows exceptions in a callback of its garbage collector, and JAX has such a callback. So `_watch` sends
    the signal again until a KeyboardInterrupt is being handled.
    """
    if _State.settled:
        return
    _State.due = True
    if _State.deferred:
        return
    if interrupted(sys.exc_info()[1]):
        _State.settled = True
        return
    _State.raised = True
    raise KeyboardInterrupt


def _watch(reader: int) -> None:
    """Ends the process at the second Ctrl-C, and repeats a signal whose KeyboardInterrupt was deferred or swallowed.
    Python writes the number of each signal to the pipe `reader` as soon as it arrives."""
    first = None
    while True:
        unsettled = first is not None and not _State.settled
        if not select.select([reader], [], [], _AGAIN_S if unsettled else None)[0]:
            if _State.due and not _State.settled:
                # SIGTERM is sent, because SIGINT would count as the second Ctrl-C. It goes to the main thread, to
                # interrupt its system call.
                main_thread = threading.main_thread().ident
                assert main_thread is not None, "a thread that runs has a number"
                signal.pthread_kill(main_thread, signal.SIGTERM)
            continue
        number = os.read(reader, 1)[0]
        if number not in (signal.SIGTERM, signal.SIGINT):
            continue
        now = time.monotonic()  # read once: on a busy machine the first signal itself may take longer than _SAME_S
        first = first or now
        if number == signal.SIGINT and now - first > _SAME_S:
            _end_at_once()


def _end_at_once() -> None:
    """Ends the process. The message doesn't go through rich's console: the main thread may hold its lock for ever."""
    shown_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar hides it
    with contextlib.suppress(Exception):
        os.write(2, f"{shown_cursor}\nbert-jax: ended at once by a second Ctrl-C; {_State.advice()}\n".encode())
    for worker in multiprocessing.active_children():
        worker.kill()
    os._exit(AT_ONCE)
