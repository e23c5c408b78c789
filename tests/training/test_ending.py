import os
import signal
import subprocess
import time

import pytest
from conftest import program

from bert_jax.config.operation import ExecutionConfig

STUCK = """
import sys, threading, time
from pathlib import Path

from bert_jax.system.journal import here
from bert_jax.training.ending import Watchdog

def a_step_that_sleeps():
    time.sleep(60)

with Watchdog(float(sys.argv[2]), Path(sys.argv[1]), tick=0.1) as watchdog:
    watchdog.step = 7
    here.at("computing step 7 of 12")
    print("begun", flush=True)
    for _ in range(20):  # an evaluation: each batch is progress
        time.sleep(0.1)
        here.still()
    print("evaluated", flush=True)
    a_step_that_sleeps()
"""


def start(run, minutes):
    return program(STUCK, run, minutes, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_step_that_never_ends_is_written_down_and_ends_the_process(tmp_path):
    process = start(tmp_path, 1 / 60)
    said, complained = process.communicate(timeout=50)
    assert process.returncode == 124 and said == "begun\nevaluated\n"
    (line,) = complained.split("\n")[1:-1]
    assert "no progress for 0.0166667 minutes while computing step 7 of 12" in line
    assert str(tmp_path / "stuck-7.txt") in line and "--execution.stuck-after-minutes" in line
    written = (tmp_path / "stuck-7.txt").read_text()
    assert "a_step_that_sleeps" in written and "computing step 7 of 12" in written and "_watch" in written


def test_a_run_that_is_not_there_any_more_ends_all_the_same(tmp_path):
    process = start(tmp_path / "absent", 1 / 60)
    assert process.communicate(timeout=50)[1] and process.returncode == 124


@pytest.mark.parametrize("minutes", [0, 0.05])
@pytest.mark.long
def test_a_process_that_is_stopped_for_longer_is_not_stuck_and_none_where_it_is_not_asked_for(tmp_path, minutes):
    process = start(tmp_path, minutes)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(3.5 if minutes else 0.1)
    process.send_signal(signal.SIGCONT)
    assert process.stdout.readline() == "evaluated\n"
    time.sleep(0.5)
    assert process.poll() is None
    process.kill()
    process.communicate()
    assert not os.listdir(tmp_path)


def test_it_is_on_by_itself():
    assert ExecutionConfig().stuck_after_minutes == 30
