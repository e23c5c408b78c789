"""The process beside a run on several hosts: it passes on signals, and tells why the run ended."""

import os
import signal
import subprocess

import pytest
from conftest import program

SUPERVISING = """
import signal
import sys
from bert_jax.cli.supervision import supervise

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

sys.executable = sys.argv.pop(1)
supervise()
"""
RUN = """#!/bin/bash
sleep 0.5  # until the process beside it listens
sleep 60 &
trap "kill $!; exit 143" INT TERM
echo begun
wait
"""
"""Stands in for the run, which is stopped by each of both signals."""


@pytest.mark.parametrize("send, number", [(os.kill, signal.SIGTERM), (os.killpg, signal.SIGINT)])
def test_a_signal_reaches_the_run_from_the_system_or_a_terminal(tmp_path, send, number):
    """Ctrl-C of a terminal goes to all its processes."""
    (tmp_path / "run").write_text(RUN)
    (tmp_path / "run").chmod(0o755)
    process = program(SUPERVISING, tmp_path / "run", stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout.readline() == "begun\n"
    send(process.pid, number)
    assert process.wait(20) == 143
