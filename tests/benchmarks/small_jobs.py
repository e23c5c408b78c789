"""Seconds of whole small jobs from the command to the result, beside transformers' Trainer.

    pip install torch transformers accelerate
    python tests/benchmarks/small_jobs.py --init FOLDER --train sst2/train.tsv --dev sst2/dev.tsv

FOLDER is a Hugging Face directory with weights that both read. The jobs are one epoch of fine-tuning on `--train` with
a measurement on `--dev` (columns `sentence` and `label`; batches of 32, 64 pieces at most), and the prediction of the
dev rows by the fine-tuned model. Ours runs with empty caches and again with full ones. Trainer is at its best: rows
grouped by length. Every job is a process of its own, imports included, and the programs take turns.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

from finetuning import BATCH, LENGTH, Theirs
from finetuning import Options as SpeedOptions

from bert_jax.cli.arguments import Arguments

PEER = "peer"
"""First argument of a process that does a job with Trainer."""
MANUAL = __doc__
"""Text of --help; `__doc__` within a class is that of the class."""


class Options(Arguments):
    """What is measured."""

    LINE = "python tests/benchmarks/small_jobs.py"
    TEXT = MANUAL

    init: str
    """A Hugging Face directory with weights."""
    train: str
    """Rows to learn from."""
    dev: str
    """Rows to measure on and to predict."""
    rounds: int = 3
    """Turns of each."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the matrix products; of Trainer's by autocast."""


def seconds_of(command: list[str], cache: Path) -> float:
    """Seconds of a command that keeps its caches below `cache`. If it fails, the benchmark ends with its error's last
    line."""
    begin = time.perf_counter()
    done = subprocess.run(command, env=os.environ | {"XDG_CACHE_HOME": str(cache)}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip().rpartition("\n")[2])
    return time.perf_counter() - begin


def our_commands(options: Options, run: Path) -> dict[str, list[str]]:
    """The commands of the two jobs, by name."""
    program = [sys.executable, "-c", "from bert_jax.cli.main import main; main()"]
    rows = ["--task.train", options.train, "--task.dev", options.dev]
    shape = ["--task.batch-size", str(BATCH), "--task.max-length", str(LENGTH), "--task.epochs", "1"]
    learn = ["finetune", "sst2", "--init", options.init, "--workdir", str(run), *rows, *shape]
    predicted = str(run.parent / f"{run.name}.jsonl")
    return {
        "fine-tuning": [*program, *learn, "--compute-dtype", options.dtype],
        "predicting": [*program, "predict", str(run), options.dev, predicted],
    }


def peers_job(options: Options, job: str) -> None:
    """Does a job with Trainer in this process."""
    speed = SpeedOptions(init=options.init, train=options.train, dev=options.dev, dtype=options.dtype)
    theirs = Theirs(speed)
    if job == "fine-tuning":
        theirs.train_an_epoch()
    theirs.predict()


def compare(options: Options) -> None:
    """Takes turns and prints medians and ratios."""
    taken: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.rounds):
            cache = Path(folder) / f"cache-{turn}"
            for caches in ("empty", "full"):
                for job, command in our_commands(options, Path(folder) / f"run-{turn}-{caches}").items():
                    taken.setdefault((job, f"ours, caches {caches}"), []).append(seconds_of(command, cache))
            for job in ("fine-tuning", "predicting"):
                command = [sys.executable, __file__, PEER, options.model_dump_json(exclude={"config"}), job]
                taken.setdefault((job, "transformers"), []).append(seconds_of(command, cache))
    for (job, side), seconds in taken.items():
        ratio = statistics.median(taken[job, "transformers"]) / statistics.median(seconds)
        turns = ", ".join(f"{one:.1f}" for one in seconds)
        print(f"{job}, {side}: {statistics.median(seconds):.1f} s ({turns}), {ratio:.2f} times as fast")


if __name__ == "__main__":
    if sys.argv[1:2] == [PEER]:
        peers_job(Options.model_validate_json(sys.argv[2]), sys.argv[3])
    else:
        compare(Options.parse(sys.argv[1:]))
