import multiprocessing
import signal
import time

import pytest

from bert_jax.system.workers import map_in_processes


def test_results_come_in_order():
    assert list(map_in_processes(abs, range(-5, 0), processes=2, items_at_once=2)) == [5, 4, 3, 2, 1]
    assert none_left()


def test_workers_start_while_the_first_item_is_made():
    def items():
        assert multiprocessing.active_children()
        yield -1

    assert list(map_in_processes(abs, items(), processes=3)) == [1]
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


def none_left():
    """Whether all workers are gone, which their pool may find out a moment later."""
    until = time.monotonic() + 5
    while multiprocessing.active_children() and time.monotonic() < until:
        time.sleep(0.01)
    return not multiprocessing.active_children()


def _state(process):
    with open(f"/proc/{process.pid}/status") as status:
        return status.read()
