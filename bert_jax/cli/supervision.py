"""How a command trains on one host or several: supervised by a parent process that explains why JAX aborted it."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from bert_jax.config.operation import HostsConfig
from bert_jax.run.hosts import connect, ending_together
from bert_jax.system.errors import HostLost
from bert_jax.system.journal import here, read_whereabouts
from bert_jax.system.machine import may_be_one_of_several
from bert_jax.system.progress import complain
from bert_jax.system.workers import die_with_parent

_SUPERVISED = "BERT_JAX_SUPERVISED"
"""Environment variable of the child: the number of the open file to which it writes its whereabouts. With any other
value, the process runs without a supervisor."""


@contextlib.contextmanager
def on_all_hosts(hosts: HostsConfig) -> Iterator[None]:
    """If there are several hosts, supervises this process and connects it to the others. All end together."""
    if may_be_one_of_several(hosts.coordinator):
        supervise()
        connect(hosts)
    with ending_together():
        yield


def supervise() -> None:
    """Runs this command again as a child process and exits with its exit code; returns only in the child.

    When a process of a multi-host run is lost, JAX aborts the others from its own thread. They can't print a message or
    choose their exit code, so the parent does.
    """
    if supervised := os.environ.get(_SUPERVISED):
        if supervised.isdigit() and int(supervised) > 2:
            here.written_to(int(supervised))
        die_with_parent()
        return
    line = [sys.executable, "-P", "-m", "bert_jax", *sys.argv[1:]]
    # The child writes its whereabouts to a file, since it can't print them when JAX aborts it.
    with tempfile.TemporaryFile() as whereabouts:
        number = whereabouts.fileno()
        child = subprocess.Popen(line, env=os.environ | {_SUPERVISED: str(number)}, pass_fds=[number])
        signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the child as well
        code = child.wait()
        if code == -signal.SIGABRT:
            complain(str(HostLost("see JAX' message above", read_whereabouts(number))))
    sys.stdout.flush()
    os._exit(code if code >= 0 else 128 - code)
