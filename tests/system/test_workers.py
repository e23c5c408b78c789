import multiprocessing
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bert_jax.system.workers import map_in_processes


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
