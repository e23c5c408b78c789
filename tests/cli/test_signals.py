"""SIGTERM and Ctrl-C at every stage of a run: it ends in time, by the exit code that is promised, and goes on."""

import os
import signal
import subprocess
import time

import pytest
from conftest import command, program
from stages import parameters, stages_of, started_until

from bert_jax.run.checkpoint_manifest import complete

LONGEST_S = 60
"""A stopped run may take so long to end, on a busy machine: it may have to compile its step first."""
LAST_WORDS = {143: "give the same command again", 130: "ended at once by a second Ctrl-C"}
WAYS = [(signal.SIGTERM,), (signal.SIGINT,), (signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGINT)]

SLOW_TO_END = """
import time

import bert_jax.training.loop as loop

loop._finish = lambda checkpoints, run: checkpoints.finish() or print("saved", flush=True) or time.sleep(60)
from bert_jax.cli.main import main

main()
"""
"""The command, held up after the checkpoint that a signal asked for."""


def signalled(process, numbers):
    """Sends `numbers` to a command; returns its exit code and what it said."""
    for number in numbers:
        os.kill(process.pid, number)
        time.sleep(0.3)  # as a person presses Ctrl-C twice; what comes together is one
        if process.poll() is not None:
            break
    said, _ = process.communicate(timeout=LONGEST_S)
    return process.returncode, said


def check(code, said, *promised):
    assert code in promised, said
    assert LAST_WORDS[code] in said.splitlines()[-1] and "Traceback" not in said, said


@pytest.mark.long
def test_a_run_stopped_in_every_stage_ends_as_promised_and_then_bit_for_bit(config_file, tiny_run, tmp_path, slow):
    """With --tier slow by each signal in each stage."""
    count = 0
    for turn in range(len(WAYS) if slow else 1):
        run = tmp_path / str(turn)
        arguments = ["pretrain", config_file, "--workdir", run]
        for number, reached in enumerate(stages_of(run).values()):
            numbers = WAYS[(number + turn) % len(WAYS)]
            code, said = signalled(started_until(reached, *arguments), numbers)
            # It may have ended in order before the second Ctrl-C comes.
            check(code, said, 143, *([130] if numbers == (signal.SIGINT, signal.SIGINT) else []))
            count += 1
        process = command(*arguments)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        assert parameters(run) == parameters(tiny_run.path)
        assert not list(run.rglob("*tmp*"))
    print(f"signals: {count} of {count} runs ended as promised")


@pytest.mark.long
def test_a_second_ctrl_c_in_training_names_the_newest_checkpoint(config_file, untrained):
    run = untrained.path
    line = ["pretrain", config_file, "--workdir", run, "--phases.0.steps", 10_000, "--checkpoints.every", 10_000]
    process = program(SLOW_TO_END, *line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not untrained.metrics_file.exists() or not untrained.metrics_file.stat().st_size:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "saved\n", process.communicate()
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=LONGEST_S)
    (path,) = complete(untrained.checkpoints)
    assert process.returncode == 130
    assert f"the newest checkpoint is the one from step {int(path.name):,};" in said.splitlines()[-1]
