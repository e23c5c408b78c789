"""Maps a function over worker processes, with ordered results and bounded memory."""

import contextlib
import ctypes
import gc
import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from bert_jax.system.errors import RunError, Setting, disk_failure, first_line
from bert_jax.system.interruption import deferred
from bert_jax.system.machine import prepare_to_compute

Item = TypeVar("Item")
Result = TypeVar("Result")


_SAFE_PATH = "PYTHONSAFEPATH"
_STARTED_AHEAD = 2
"""Number of workers that start, and import the module of their function, while the first item is produced; the others
start when there are items for them."""
_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG."""
_ENDING_S = 2.0
"""Seconds that workers have to end before they are killed."""
_CAUSES = {"SIGKILL": ", as when memory runs out"} | dict.fromkeys(
    ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"), ", as when a library fails"
)
"""What commonly sends a signal, for messages."""
_starting = threading.Lock()
"""Held while an `OwnProcess` starts: several threads may start one, and each start changes the environment for a
moment."""


def available_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """Keeps interpreters that the block starts from importing modules of the current folder. `python -c` and `python
    -m`, which multiprocessing and Spark use, look there first. A worker of multiprocessing takes over the import path
    of this process afterwards."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        os.environ.pop(_SAFE_PATH)
        if before is not None:
            os.environ[_SAFE_PATH] = before


@contextlib.contextmanager
def _without_main_module() -> Iterator[None]:
    """Keeps workers that the block starts from importing the main module: a script that trains would train again."""
    main = sys.modules["__main__"]
    file, spec, main.__spec__ = main.__dict__.pop("__file__", None), main.__spec__, None
    try:
        with safe_path():
            yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file


def map_in_processes(
    function: Callable[[Item], Result], items: Iterable[Item], processes: int, items_at_once: int = 1
) -> Iterator[Result]:
    """`map` with up to `processes` workers. A worker takes a group of `items_at_once` items at a time. At most
    `processes` + 1 groups are unfinished, so one group waits while all workers are busy.

    With one process, no worker is started. `function` must be defined in a module that workers can import. Raises what
    `function` raises, and RunError if a worker dies.
    """
    if processes == 1:
        yield from map(function, items)
        return
    with safe_path():  # the pool starts multiprocessing's resource tracker
        # Spawned, not forked: the parent may hold threads of JAX or of a tokenizer.
        pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin_worker, (os.getpid(),))
    workers = pool._processes  # a dict that the pool fills later
    running: deque[Future[list[Result]]] = deque()
    try:
        with deferred(), _without_main_module():  # otherwise a worker that is just being started would be left behind
            for _ in range(min(processes, _STARTED_AHEAD)):
                pool.submit(_apply, function, ())
        items = iter(items)
        while group := tuple(itertools.islice(items, items_at_once)):
            with deferred(), _without_main_module():
                running.append(pool.submit(_apply, function, group))
            if len(running) > processes:
                yield from running.popleft().result()
        while running:
            yield from running.popleft().result()
    except BrokenProcessPool:
        _end(pool)
        codes = [worker.exitcode for worker in workers.values()]  # the pool sends SIGTERM to the others
        code = next((code for code in codes if code not in (0, None, -signal.SIGTERM)), None)
        raise RunError(
            f"a worker process {death(code)}; give the same command again with fewer "
            f"{Setting('preparation.processes')}: finished chunks are kept"
        ) from None
    finally:
        _end(pool)


class OwnProcess(Generic[Result]):
    """A call in a process of its own, which is prepared to compute as a command is. The process ends after the call or,
    on Linux, with the thread that began it."""

    def __init__(self, function: Callable[..., Result], *arguments: Any):
        """Begins the call."""
        context = multiprocessing.get_context("spawn")
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_call_alone, args=(sender, function, arguments))
        with _starting, safe_path():
            self._process.start()
        sender.close()

    def result(self) -> Result:
        """Waits for the call's result. Raises what it raises, and RunError if the process dies."""
        try:
            result, error = pickle.loads(self._receiver.recv_bytes())
        except EOFError:
            self._process.join()
            raise RunError(f"a process {death(self._process.exitcode)}; give the same command again") from None
        except BaseException:
            self._process.terminate()
            raise
        self._process.join()
        if error:
            raise error
        return result


def in_own_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Calls `function` in a process of its own: this one would keep the devices' memory. Raises what
    `OwnProcess.result` does."""
    return OwnProcess(function, *arguments).result()


def _call_alone(sender: Connection, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Sends the pickled result of `function`, or its error, unless the process that called has ended."""
    prepare_to_compute()
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    try:
        content = pickle.dumps((function(*arguments), None))
    except Exception as error:
        content = pickle.dumps((None, _sendable(disk_failure(error) or error)))
    with contextlib.suppress(BrokenPipeError):
        sender.send_bytes(content)


def _sendable(error: BaseException) -> BaseException:
    """`error`, or a RunError with its text if another process couldn't read it: some libraries' errors can't be
    pickled."""
    error.add_note(traceback.format_exc())  # shown with the error if nothing catches it
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return disk_failure(error) or RunError(f"{type(error).__name__}: {first_line(error)}")


def death(code: int | None) -> str:
    """How a process with the exit code `code` ended: "was killed by SIGKILL, as when memory runs out"."""
    if code is None or code >= 0:
        return f"ended with {'an unknown code' if code is None else code}"
    name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
    return f"was killed by {name}{_CAUSES.get(name, '')}"


def _end(pool: ProcessPoolExecutor) -> None:
    """Ends the workers within seconds, also workers that are suspended or wait for a disk that is gone. Workers delete
    their unfinished files if they can in time. The next command repeats unfinished items."""
    workers = list((pool._processes or {}).values())  # public from Python 3.14 on, as kill_workers
    manager: Any = pool._executor_manager_thread
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    until = time.monotonic() + _ENDING_S
    for worker in workers:
        worker.join(max(until - time.monotonic(), 0))
        worker.kill()
    if manager:
        # The manager thread closes the pipe by which the interpreter's end would wake it; in Python 3.11 both may
        # happen together.
        manager.join(_ENDING_S)


class _Ended(BaseException):
    """Ends the function of a worker that got SIGTERM."""


_at_work = False
"""Whether this worker is in `_apply`. Outside of it, a worker has no unfinished files."""


def _apply(function: Callable[[Item], Result], group: tuple[Item, ...]) -> list[Result]:
    global _at_work
    _at_work = True
    try:
        return [function(item) for item in group]
    except _Ended:
        os._exit(0)
    except BaseException as error:  # a library in Rust panics with a class of its own
        raise _sendable(error) from error
    finally:
        _at_work = False


def die_with_parent() -> None:
    """On Linux, this process is killed when its parent dies, even while it is stopped (PR_SET_PDEATHSIG of prctl)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _begin_worker(parent: int) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    signal.signal(signal.SIGTERM, _leave)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread a worker
    gc.disable()  # a worker makes many lists and few cycles; garbage collection would take a tenth of its time
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()


def _leave(number: int, frame) -> None:
    """Signal handler that ends this worker, by an exception if there are unfinished files to delete."""
    signal.signal(number, signal.SIG_IGN)
    if _at_work:
        raise _Ended
    os._exit(0)


def _die_with(parent: int) -> None:
    """Ends this worker when its parent has died, on systems other than Linux and before `die_with_parent`."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
