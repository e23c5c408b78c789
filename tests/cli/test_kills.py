"""A run killed at random moments loses the steps since its newest checkpoint and nothing else; terminated, no step.

launch/test.sh --slow tests/cli/test_kills.py -s kills it 100 times and prints how that went; with BERT_JAX_KILLS=1000,
which takes a night, as often as you like.
"""

import os
import random
import shutil
import signal
import subprocess
import time

from conftest import program
from warm_process import COMMAND

from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.phase import Phase
from bert_jax.run.manifest import Manifest, complete
from bert_jax.run.metrics import read_metrics
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.verification import verify

KILLS, KILLS_WHEN_SLOW = 3, 100
PARTS, STRIDE = 6, 5
"""The time in which it is killed has so many parts; each kill is in the part so many after that of the kill before."""
SAVE_EVERY = 7
STEPS = 42


class Starter:
    """Starts `bert-jax`, and sends it a signal."""

    def __init__(self, log):
        self.log = log

    def run(self, *arguments, after=None, number=signal.SIGKILL):
        """The exit code, where it hasn't ended after so many seconds that upon signal `number`."""
        with self.log.open("a") as log:
            process = program(COMMAND, *arguments, stdout=log, stderr=subprocess.STDOUT)
        try:
            return process.wait(after)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            return process.wait()


def measured(run):
    """All lines of its metrics but for what depends on the clock."""
    lines = read_metrics(run / "metrics.jsonl")
    return [{name: value for name, value in line.items() if not name.endswith("_per_second")} for line in lines]


def test_nothing_is_lost_but_the_steps_since_the_newest_checkpoint(tiny_config, tiny_run, tmp_path, slow):
    times = int(os.environ.get("BERT_JAX_KILLS", KILLS_WHEN_SLOW if slow else KILLS))
    config = tiny_config.replace(
        model=tiny_config.model.replace(dropout=0.1, attention_dropout=0.1),
        execution=ExecutionConfig(accumulation=2),
        phases=(Phase(steps=STEPS, length=32, batch_size=8),),
        evaluation=tiny_config.evaluation.replace(every=STEPS, max_sequences=8),
        checkpoints=tiny_config.checkpoints.replace(every=SAVE_EVERY),
        logging=tiny_config.logging.replace(every=1),
    )
    file = tmp_path / "config.py"
    values = config.model_dump(mode="json")
    file.write_text(f"from bert_jax.config.run import RunConfig\n\nconfig = RunConfig(**{values!r})\n")
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    for path in (undisturbed, run):
        for name in ("tokenizer", "data"):
            shutil.copytree(tiny_run.path / name, path / name)
    starter = Starter(tmp_path / "log")
    began = time.monotonic()
    assert starter.run("pretrain", file, "--workdir", undisturbed) == 0, starter.log.read_text()
    assert check_kills(times, starter, run, undisturbed, time.monotonic() - began, "pretrain", file, "--workdir", run)


def check_kills(times, starter, run, undisturbed, window, *arguments):
    """Kills the run so many times within `window` seconds, beginning anew where it gets to its end; returns how often
    that was."""
    kills, ends, rng = 0, 0, random.Random(0)
    expected = measured(undisturbed)
    while kills < times or not ends:
        saved = [int(path.name) for path in complete(run / "checkpoints")][-1:]
        starter.log.write_text("")
        began = time.monotonic()
        number = signal.SIGTERM if kills % 3 == 2 else signal.SIGKILL
        moment = (kills * STRIDE % PARTS + rng.random()) / PARTS * window
        code = starter.run(*arguments, after=moment if kills < times else None, number=number)
        said, lines = starter.log.read_text(), measured(run)
        assert code in (0, 143 if number == signal.SIGTERM else -number) and "damaged" not in said, said
        assert "going on" not in said or f"going on from step {saved[0]:,}" in said, said
        assert lines == expected[: len(lines)]
        assert run_is_whole(run)
        kills += code != 0
        if code and kills % 50 == 0:
            print(f"kills: {kills} of {kills} survived", flush=True)
        newest = complete(run / "checkpoints")[-1:]
        # One checkpoint may be under way while the steps up to the next one are done.
        lost = lines[-1]["step"] - (int(newest[0].name) if newest else 0) if lines else 0
        assert lost <= (0 if "stopped at step" in said else 2 * SAVE_EVERY)
        if code == 0:
            ends += 1
            if not saved:  # so long takes all of it
                window = min(window, time.monotonic() - began)
            assert len(lines) == len(expected)
            last = complete(undisturbed / "checkpoints")[-1]
            assert newest[0].name == last.name
            assert Manifest.at(newest[0]).bits == Manifest.at(last).bits  # of all that training changes
            shutil.rmtree(run / "checkpoints")
            for name in ("metrics.jsonl", "manifest.json", "results.json"):
                (run / name).unlink()
    print(f"kills: {kills} of {kills} survived, {ends} times to the run's end")
    return ends


def run_is_whole(run):
    """Whether all that is there is as its noted checksum says, whenever the run was killed."""
    return not [verdict for verdict in verify(RunDirectory(run)) if verdict.damage]
