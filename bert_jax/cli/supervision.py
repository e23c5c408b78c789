"""A process beside one of several that are one run: it says what happened when JAX ends that one."""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile

from bert_jax.system.errors import HostLost
from bert_jax.system.progress import complain
from bert_jax.system.whereabouts import here, read_whereabouts

_SUPERVISED = "BERT_JAX_SUPERVISED"
"""Environment variable of the child: the number of the open file in which it notes what it is doing; or any other value
where it has no process beside it."""
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux' prctl."""


def supervise() -> None:
    """Runs this command again as a child process and ends as it ends; returns in the child.

    When another process of a run is gone, JAX aborts those that are left from a thread of its own: none of them has a
    chance to say anything, or to choose its exit code.
    """
    if told := os.environ.get(_SUPERVISED):
        if told.isdigit() and int(told) > 2:
            here.written_to(int(told))
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        return
    # What the child is doing, which it can't say when JAX ends it.
    told = tempfile.TemporaryFile()
    line = [sys.executable, "-P", "-m", "bert_jax.cli.main", *sys.argv[1:]]
    child = subprocess.Popen(line, env=os.environ | {_SUPERVISED: str(told.fileno())}, pass_fds=[told.fileno()])
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which sends it to the child as well
    code = child.wait()
    if code == -signal.SIGABRT:
        complain(str(HostLost("what JAX said of it stands above", read_whereabouts(told.fileno()))))
    sys.stdout.flush()
    os._exit(code if code >= 0 else 128 - code)
