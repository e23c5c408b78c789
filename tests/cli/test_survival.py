"""A run that is killed again and again ends as if nothing had happened."""

import os
import signal
import time

import jax
import numpy as np
from conftest import command

from bert_jax.inference.bert import load


def killed_when(reached, *arguments) -> None:
    """Starts the command and kills it, its workers with it, as soon as `reached()`."""
    process = command(*arguments)
    until = time.monotonic() + 120
    while not reached():
        assert process.poll() is None, f"ended before it could be killed: {process.stdout.read()}"
        assert time.monotonic() < until, "took too long to get there"
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def values(path):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(load(path).params)]


def test_a_run_killed_in_every_stage_ends_bit_for_bit_as_one_that_was_not(config_file, tiny_run, tmp_path):
    run = tmp_path / "run"
    arguments = ["pretrain", config_file, "--workdir", run]
    metrics, shards = run / "metrics.jsonl", run / "data" / "length-32"
    stages = {
        "the run directory": run.exists,
        "the vocabulary": (run / "tokenizer").exists,
        "the first chunk of text": (shards / "train-00000.array_record").exists,
        "the metadata of the data": (shards / "features.json").exists,
        "a step of training": lambda: metrics.exists() and metrics.read_text().count("train") == 1,
        "a checkpoint being written": lambda: any((run / "checkpoints").glob("00000008*")),
    }
    for reached in stages.values():
        killed_when(reached, *arguments)
    process = command(*arguments)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert "going on from step" in output
    assert values(run) == values(tiny_run.path)
    assert not list(run.rglob("*tmp*"))
