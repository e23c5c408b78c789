"""A run that is killed again and again ends as if nothing had happened."""

import os
import signal

from conftest import command_of_a_shell
from stages import parameters, stages_of, started_until


def test_a_run_killed_in_every_stage_ends_bit_for_bit_as_one_that_was_not(config_file, tiny_run, tmp_path):
    run = tmp_path / "run"
    arguments = ["pretrain", config_file, "--workdir", run]
    for reached in stages_of(run).values():
        process = started_until(reached, *arguments)
        os.killpg(process.pid, signal.SIGKILL)  # its workers with it
        process.wait()
        process.stdout.close()
    process = command_of_a_shell(*arguments)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert "going on from step" in output
    assert parameters(run) == parameters(tiny_run.path)
    assert not list(run.rglob("*tmp*"))
