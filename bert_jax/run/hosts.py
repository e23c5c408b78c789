"""Several processes as one run: their addresses, which of them writes, and the message when one is lost."""

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import PyTree
from orbax.checkpoint import multihost

from bert_jax.config.operation import HostsConfig
from bert_jax.system.errors import BertJaxError, HostLost, RunError, Setting, UsageError, first_line, is_out_of_memory
from bert_jax.system.journal import here
from bert_jax.system.machine import in_slurm_step
from bert_jax.system.progress import keep_quiet, say

_HEARTBEAT_S = 30
"""Seconds without a heartbeat after which JAX takes a process for dead and ends the others. JAX' default is 100."""
_HEARTBEAT = "BERT_JAX_HEARTBEAT_SECONDS"
"""Environment variable that replaces _HEARTBEAT_S, so that tests on one machine notice a dead process sooner."""
_LONGEST_WAIT_S = 7 * 24 * 3600
"""Seconds that the other processes wait while the first one prepares data. If the first one dies, its missing
heartbeats end the wait."""
_PARTING_S = 10
"""A process that fails or is stopped waits this many seconds for the others to end."""

_CALLS: Counter[str] = Counter()
"""Calls of `wait_for_all` by name, equal on all hosts."""


def check_connected(config: HostsConfig) -> None:
    """Raises UsageError if this process is one of several and isn't joined to the others. Commands call `connect`."""
    if (config.coordinator is not None or in_slurm_step()) and not jax.distributed.is_initialized():
        raise UsageError(
            "this process is one of several and not joined to the others; call jax.distributed.initialize() before "
            "JAX computes anything, or train by the command bert-jax"
        )


def connect(config: HostsConfig) -> None:
    """Joins this process to the others, before JAX computes anything. Afterwards only the first process prints.

    Raises UsageError if they can't be joined. (If they don't come in time, JAX ends this process.)
    """
    here.at("waiting for the other hosts")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        jax.distributed.initialize(
            coordinator_address=config.coordinator,
            num_processes=config.count,
            process_id=config.index,
            cluster_detection_method="deactivate" if config.coordinator else None,
            heartbeat_timeout_seconds=int(os.environ.get(_HEARTBEAT, _HEARTBEAT_S)),
            initialization_timeout=config.wait_seconds,
        )
    except (RuntimeError, ValueError) as error:
        if not config.coordinator and not in_slurm_step() and _is_single(error):
            say("this TPU's machine is in no cluster that JAX can find, as in Colab: it works alone")
            return
        raise UsageError(
            f"the hosts of this run can't be joined ({first_line(error)}); start the same command on all of them, with "
            f"{Setting('hosts.coordinator')}, {Setting('hosts.count')} and {Setting('hosts.index')} where they "
            "aren't found by themselves"
        ) from None
    if jax.process_count() == 1 and on_sigterm is not None:
        signal.signal(signal.SIGTERM, on_sigterm)  # JAX has replaced it, and tells only several processes of a signal
    if not is_first():
        keep_quiet()


def _is_single(error: Exception) -> bool:
    """Whether a TPU's machine for which JAX raised `error` is the only one: the environment names one machine, or none
    and JAX found no cluster. Another error of a machine of a slice must not make it train alone."""
    names = os.environ.get("TPU_PROCESS_ADDRESSES", os.environ.get("TPU_WORKER_HOSTNAMES", ""))
    return "," not in names and (bool(names) or "coordinator_address" in str(error))


def is_first() -> bool:
    """Whether this is the process that writes the files of the whole run: logs, results, manifests, data."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0


@contextlib.contextmanager
def first_alone(name: str) -> Iterator[None]:
    """The first process runs the block. Then the others run it and find its files. All leave together, because
    collectives of CPUs and GPUs give up waiting for a process that still copies data. If the block raises an exception
    on the first process, the others raise RunError and don't run it.
    """
    if not is_first():
        wait_for_all(f"{name} done")
        if agreed(0):
            raise RunError("the first host of this run failed and says why; mend that and start all hosts again")
    try:
        yield
    except Exception:
        if is_first():
            wait_for_all(f"{name} done")
            agreed(1)
        raise
    if is_first():
        wait_for_all(f"{name} done")
        agreed(0)
    wait_for_all(f"{name} seen")


def fails_together(failure: str | None, elsewhere: str) -> str | None:
    """Returns `failure` on a process that has one. If any process has one, the others return `elsewhere`."""
    if jax.process_count() == 1:
        return failure
    if not multihost_utils.process_allgather(np.int32(failure is not None)).any():
        return None
    return failure or elsewhere


def agreed(number: int) -> int:
    """Returns the first process' `number` on all processes."""
    return int(of_first(number))


def of_first(values: PyTree) -> PyTree:
    """Returns the first process' `values`, a tree of numbers and arrays, on all processes."""
    return multihost_utils.broadcast_one_to_all(values) if jax.process_count() > 1 else values


def text_of_first(text: str) -> str:
    """Returns the first process' `text`, which isn't empty, on all processes."""
    encoded = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
    sent = of_first(np.resize(encoded, agreed(len(encoded))))
    return np.asarray(sent).astype(np.uint8).tobytes().decode()


def compile_together(name: str, function: jax.stages.Wrapped, *arguments: PyTree) -> None:
    """Compiles a jitted `function` on all processes before any of them calls it with such `arguments`.

    The first call connects the devices. In that call CPUs wait 30 s for each other, but one may compile for longer.
    """
    if jax.process_count() > 1:
        function.lower(*arguments).compile()  # kept for the call
        wait_for_all(f"{name} compiled")


@contextlib.contextmanager
def ending_together() -> Iterator[None]:
    """The processes shut JAX down together after the block, also if it fails or is stopped on every process. Raises the
    error of the block; JAX's error about a process that is gone becomes HostLost.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1 or is_out_of_memory(error):
            raise
        raise HostLost(first_line(error), here.text) from None
    except BertJaxError:
        if jax.process_count() > 1:
            _part(_PARTING_S)
        raise
    if jax.distributed.is_initialized() and jax.process_count() > 1:
        _part(_LONGEST_WAIT_S)  # what the first process still does, such as a report, needs no other


def wait_for_all(name: str, seconds: int = _LONGEST_WAIT_S) -> None:
    """Returns once all processes have called this equally often with `name`. Raises if one doesn't in time."""
    _CALLS[name] += 1  # a barrier's name can be used once
    # The coordinator's barrier: JAX' own barrier is a sum over devices, which give up waiting after some seconds.
    multihost.sync_global_processes(
        f"bert_jax/{name} {_CALLS[name]}", timeout=seconds, processes=set(range(jax.process_count()))
    )


def _part(seconds: int) -> None:
    """Shuts JAX down on all processes at once, if all call this within `seconds`. Otherwise JAX aborts the remaining
    processes once the first one has ended, as if a host had been lost.
    """
    with contextlib.suppress(Exception):  # only this process ends, and the others will notice
        wait_for_all("parting", seconds)
        jax.distributed.shutdown()
