"""The stages of a run, for tests that befall it in each of them."""

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from conftest import command, faked_devices, program

from bert_jax.config.operation import MeshConfig
from bert_jax.config.run import RunConfig
from bert_jax.inference.bert import load
from bert_jax.run.recorded_config import write_config
from bert_jax.system.errors import Interrupted
from bert_jax.training import loop


def stages_of(run: Path) -> dict[str, Callable[[], bool]]:
    """Each stage of a run of `tiny_config` by its name, with a function that tells whether the run has got there."""
    metrics, shards = run / "metrics.jsonl", run / "data" / "length-32"
    return {
        "the run directory": run.exists,
        "the vocabulary": (run / "tokenizer").exists,
        "the first chunk of text": (shards / "train-00000.array_record").exists,
        "the metadata of the data": (shards / "features.json").exists,
        "a step of training": lambda: metrics.exists() and metrics.read_text().count("train") == 1,
        "a checkpoint being written": lambda: any((run / "checkpoints").glob("00000008*")),
    }


def started_until(reached: Callable[[], bool], *arguments):
    """Starts a command; returns its process as soon as `reached()`."""
    process = command(*arguments)
    until = time.monotonic() + 120
    while not reached():
        assert process.poll() is None, f"ended too early: {process.stdout.read()}"
        assert time.monotonic() < until, "took too long to get there"
        time.sleep(0.001)
    return process


@contextlib.contextmanager
def stopped_at(step: int, begun: int = 0) -> Iterator[None]:
    """Within the block, the first training in this process, which goes on from step `begun`, gets a SIGTERM in `step`,
    after which it raises."""
    wait, steps = jax.block_until_ready, itertools.count(begun + 1)

    def wait_and_stop(*arguments):
        if next(steps) == step:
            signal.raise_signal(signal.SIGTERM)
        return wait(*arguments)

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Interrupted, match=f"stopped at step {step} of"):
        patched.setattr(loop.jax, "block_until_ready", wait_and_stop)
        yield


def parameters(run: Path) -> list[bytes]:
    """All parameters of the run's newest checkpoint, bit for bit."""
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(load(run).params)]


def train_on_eight(config: RunConfig, run: Path) -> None:
    """Pretrains `run` in a process for which the CPU is eight devices, on a mesh of 2 x 2 x 2."""
    settings = run.with_name(f"{run.name}-config")
    settings.mkdir()
    write_config(settings / "config.json", config.replace(mesh=MeshConfig(data=2, fsdp=2, tensor=2)))
    code = """
import sys
import bert_jax
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles
bert_jax.pretrain(RunFiles(RunDirectory(sys.argv[1]).path).pretraining_config, sys.argv[2])
"""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = program(code, settings, run, env=os.environ | faked_devices(8), **pipes)
    _, said = process.communicate()
    assert process.returncode == 0, said
