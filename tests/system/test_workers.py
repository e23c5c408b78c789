import contextlib
import errno
import functools
import importlib
import inspect
import multiprocessing
import os
import pickle
import pkgutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import bert_jax
from bert_jax.config.settings import SettingsError
from bert_jax.system import workers
from bert_jax.system.errors import BertJaxError, HostLost, RunError, UsageError
from bert_jax.system.workers import in_own_process, map_in_processes


def test_results_come_in_order_from_workers_that_start_while_the_first_item_is_made():
    def items():
        assert multiprocessing.active_children()
        yield from range(-5, 0)

    assert list(map_in_processes(abs, items(), processes=2, items_at_once=2)) == [5, 4, 3, 2, 1]
    assert none_left()


def test_workers_that_are_stopped_or_busy_hold_nobody_up():
    def items():
        yield signal.SIGSTOP
        until = time.monotonic() + 30
        while "T (stopped)" not in "".join(map(_state, multiprocessing.active_children())):
            assert time.monotonic() < until
            time.sleep(0.01)
        nonlocal began
        began = time.monotonic()
        raise KeyboardInterrupt

    began = 0.0
    with pytest.raises(KeyboardInterrupt):
        list(map_in_processes(signal.raise_signal, items(), processes=2))
    assert time.monotonic() - began < 10 and none_left()


PARENT = """
import multiprocessing, signal, time
from bert_jax.system.workers import map_in_processes

def items():
    print(*(worker.pid for worker in multiprocessing.active_children()), flush=True)
    yield signal.SIGSTOP
    time.sleep(60)
    yield 0

if __name__ == "__main__":
    list(map_in_processes(signal.raise_signal, items(), processes=2))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux'")
def test_a_stopped_worker_ends_when_its_parent_is_killed(tmp_path):
    (tmp_path / "parent.py").write_text(PARENT, encoding="utf-8")
    parent = subprocess.Popen([sys.executable, tmp_path / "parent.py"], stdout=subprocess.PIPE, text=True)
    workers = [Path(f"/proc/{pid}/status") for pid in parent.stdout.readline().split()]
    try:
        wait_for(lambda: any("T (stopped)" in worker.read_text() for worker in workers))
    finally:
        parent.kill()
        parent.wait()
    assert len(workers) == 2
    wait_for(lambda: not any(map(is_running, workers)))


def is_running(status):
    try:
        return "Z (zombie)" not in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def none_left():
    """Whether all workers are gone, which their pool may find out a moment later."""
    until = time.monotonic() + 5
    while multiprocessing.active_children() and time.monotonic() < until:
        time.sleep(0.01)
    return not multiprocessing.active_children()


def _state(process):
    with open(f"/proc/{process.pid}/status") as status:
        return status.read()


def test_a_script_without_a_guard_runs_once(tmp_path):
    """Workers don't import it, although they are spawned."""
    script = tmp_path / "script.py"
    script.write_text(
        "from bert_jax.system.workers import map_in_processes\n"
        "print('begun')\n"
        "print(list(map_in_processes(abs, [1, -2, 3], 2)), __file__, flush=True)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"begun\n[1, 2, 3] {script}\n", done.stderr


def killed_by(number):
    os.kill(os.getpid(), number)


class ForeignError(Exception):
    """As the errors of many libraries: it can be pickled, and not be read back."""

    def __init__(self, name, place):
        super().__init__(f"{name} at {place}")


def raising(error, *arguments):
    raise error(*arguments)


def panicking(item):
    raise type("PanicException", (BaseException,), {})("out of range")


def test_a_panic_of_a_library_is_one_line():
    """Its class is none of Exception's, and no other process knows it."""
    with pytest.raises(RunError, match="^PanicException: out of range$"):
        list(map_in_processes(panicking, [1], 2))


@pytest.mark.parametrize(
    "error, arguments, kind, text",
    [
        (HostLost, ("no answer", "training"), HostLost, "no answer"),
        (SettingsError, ("--", ["a conflict"], {"seed": "=-1: expected 0"}), SettingsError, "--seed=-1"),
        (FileNotFoundError, (errno.ENOENT, "absent", "/x/y"), RunError, "/x/y can't be read or written"),
        (ForeignError, ("a", "b"), RunError, "ForeignError: a at b"),
        (KeyError, ("field",), KeyError, "field"),
    ],
)
def test_an_error_of_another_process_arrives_as_itself(error, arguments, kind, text):
    with pytest.raises(kind, match=text) as raised:
        in_own_process(raising, error, *arguments)
    assert type(raised.value) is kind and "\n" not in str(raised.value)
    assert kind is not KeyError or "in raising" in raised.value.__notes__[0]


def test_a_result_is_dropped_without_a_word_if_the_calling_process_has_ended(capfd):
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    receiver.close()
    process = context.Process(target=workers._call_alone, args=(sender, abs, (-1,)))
    process.start()
    process.join()
    assert process.exitcode == 0 and not capfd.readouterr().err


def test_an_error_of_a_worker_arrives_too():
    with pytest.raises(RunError, match="ForeignError: a at b"):
        list(map_in_processes(functools.partial(raising, ForeignError, "a"), ["b", "b"], processes=2))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_killed_process_is_told_by_its_signal(number):
    with pytest.raises(RunError, match=f"a process was killed by {number.name}.*; give the same command again") as told:
        in_own_process(killed_by, number)
    assert ("memory" in str(told.value)) == (number == signal.SIGKILL)


def test_a_killed_worker_is_told_by_its_signal():
    with pytest.raises(RunError, match="a worker process was killed by SIGSEGV, as when a library fails; give"):
        list(map_in_processes(killed_by, [signal.SIGSEGV] * 3, processes=2))


def test_a_process_that_ends_by_itself_is_told_by_its_code():
    with pytest.raises(RunError, match="a process ended with 3;"):
        in_own_process(os._exit, 3)


def all_errors():
    for module in pkgutil.walk_packages(bert_jax.__path__, "bert_jax."):
        with contextlib.suppress(ImportError):  # an extra that isn't installed
            importlib.import_module(module.name)
    found, waiting = [], [BertJaxError]
    while waiting:
        found.append(waiting.pop())
        waiting += found[-1].__subclasses__()
    return [kind for kind in found if kind.__module__.startswith("bert_jax.")]


def test_every_error_survives_pickling():
    """Whatever its constructor takes, also where a line adds an attribute later."""
    samples = {str: "text", int: 5, Path: Path("/a"), "Place": Path("/a")}
    kinds = all_errors()
    assert {HostLost, SettingsError, UsageError} < set(kinds) and len(kinds) >= 8
    for kind in kinds:
        own = inspect.isfunction(kind.__init__)  # otherwise Exception's, which takes a message
        parameters = list(inspect.signature(kind.__init__).parameters.values())[1:] if own else []
        special = {"conflicts": ["a"], "problems": {"x": "=1"}}
        values = [special.get(each.name, samples.get(each.annotation, "text")) for each in parameters]
        error = kind(*(values or ["text"]))
        error.added = {"at": 1}
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind and str(again) == str(error) and again.args == error.args
        assert vars(again) == vars(error) and again.exit_code == error.exit_code
