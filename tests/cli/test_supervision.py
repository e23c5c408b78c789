"""The process beside a run on several hosts: it passes on signals, and tells why the run ended."""

import os
import signal
import subprocess
from unittest.mock import Mock

import pytest
from conftest import program

from bert_jax.cli import supervision
from bert_jax.system.errors import UsageError

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


def test_a_host_that_misses_its_model_joins_the_others_first(tmp_path, monkeypatch, refused):
    monkeypatch.setattr(supervision, "on_all_hosts", Mock(side_effect=UsageError("joined the others")))
    line = ["finetune", "sst2", "--init", str(tmp_path / "absent"), "--workdir", str(tmp_path / "run")]
    host = "--hosts.coordinator 127.0.0.1:1 --hosts.count 2 --hosts.index 1".split()
    assert "joined the others" in refused(*line, *host)
    assert "absent; give a run" in refused(*line)
