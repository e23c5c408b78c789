"""Starts Python programs from a process that has imported the package and JAX, which saves the seconds of importing.

That process forks for each program. It has created no backend of JAX and runs one thread of Python, so a forked
program is as one that has just finished its imports. Programs are children of the caller: exit codes, signals, process
groups and sessions are those of `subprocess`.
"""

import contextlib
import ctypes
import gc
import json
import os
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping

COMMAND = """
import sys
import bert_jax.__main__
sys.modules["__main__"] = bert_jax.__main__  # what a spawned worker finds, as after python -m bert_jax
bert_jax.__main__.main()
"""
"""The program of `bert-jax ...`."""

_READ_BY_IMPORTS = ("JAX_", "FSSPEC_", "PYTHON", "MALLOC_", "LD_")
"""Beginnings of environment variables that are read before a program runs: all programs of a server share them."""
_LARGEST_REQUEST = 1 << 17
_PR_SET_CHILD_SUBREAPER = 36


class WarmProcess(subprocess.Popen):
    """A `subprocess.Popen` of `[program, *arguments]`, where the program is Python code, run as by `python -c`.

    Its environment may differ from this process's in variables that nothing reads while it is imported.
    """

    def _execute_child(self, line, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags,
                       shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid,
                       umask, start_new_session, process_group):  # fmt: skip
        """Called by Popen once it has made the pipes."""
        files = {number: file for number, file in enumerate((p2cread, c2pwrite, errwrite)) if file not in (-1, number)}
        request = {
            "line": list(map(str, line)),
            "environment": dict(os.environ if env is None else env),
            "folder": os.getcwd() if cwd is None else os.fspath(cwd),
            "leads": start_new_session,
            "files": list(files),
        }
        try:
            self.pid = _server().start(request, list(files.values()))
            self._child_created = True
        finally:
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


def can_be_warm(environment: Mapping[str, str]) -> bool:
    """Whether a program with these variables can be forked from the server."""
    return sys.platform == "linux" and _read_by_imports(environment) == _read_by_imports(os.environ)


def _read_by_imports(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_BY_IMPORTS)}


class _Server:
    """The process that forks."""

    def __init__(self, imported: dict[str, str]):
        """`imported`: the environment variables that it reads while it imports."""
        self.imported = imported
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            line = [sys.executable, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(line, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL)

    def start(self, request: dict, files: list[int]) -> int:
        """Starts a program; returns the number of its process, a child of this one."""
        with _adopting():
            socket.send_fds(self._connection, [json.dumps(request).encode()], files)
            return int(self._connection.recv(100))

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


_running: list[_Server] = []


def _server() -> _Server:
    """The server; another one where a variable that imports read has changed since the last was started."""
    imported = _read_by_imports(os.environ)
    if _running and _running[0].imported != imported:
        _running.pop().close()
    if not _running:
        _running.append(_Server(imported))
    return _running[0]


@contextlib.contextmanager
def _adopting():
    """Within the block descendants of this process whose parent ends become its children."""
    _set_adopting(1)
    try:
        yield
    finally:
        _set_adopting(0)


def _set_adopting(value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process can't adopt children")


def _serve(connection: socket.socket) -> str | None:
    """Forks a process for each request; returns its program in that process, and None in this one at the end."""
    while True:
        message, files, _, _ = socket.recv_fds(connection, _LARGEST_REQUEST, 3)
        if not message:
            return None
        if not os.fork():
            middle = os.getpid()
            if os.fork():
                os._exit(0)  # so that the program's process is adopted by the process that asked for it
            while os.getppid() == middle:
                time.sleep(0.0005)
            program = _become(json.loads(message), files)
            connection.send(str(os.getpid()).encode())
            connection.close()
            return program
        os.wait()
        for file in files:
            os.close(file)


def _become(request: dict, files: list[int]) -> str:
    """Gives this process all that was asked for; returns the program."""
    if request["leads"]:
        os.setsid()
    for number, file in zip(request["files"], files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]
    program, *arguments = request["line"]
    sys.argv[:] = ["-c", *arguments]
    return program


def _import_all() -> None:
    """What commands import, and no more: nothing here may create a backend of JAX or a thread."""
    import threading

    from jax._src import xla_bridge

    import bert_jax.cli.pretrain
    import bert_jax.cli.results_tables
    import bert_jax.cli.sequence_view
    import bert_jax.cli.supervision
    import bert_jax.pretraining.pretrain  # noqa: F401

    assert not xla_bridge.backends_are_initialized() and threading.active_count() == 1


if __name__ == "__main__":
    _import_all()
    gc.freeze()  # no collection, not even that at the end of each program, looks through all that was imported
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # by OpenBLAS
    program = _serve(socket.socket(fileno=int(sys.argv[1])))
    if program is not None:
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
