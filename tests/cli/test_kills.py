"""A run killed in each of its stages loses the steps since its newest checkpoint and nothing else.

launch/test.sh --tier slow tests/cli/test_kills.py -s kills it 100 times at random moments too and prints how that
went; with BERT_JAX_KILLS=1000, which takes a night, as often as you like.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time

import pytest
from conftest import command_of_a_shell, program
from stages import parameters, stages_of, started_until
from warm_process import COMMAND

from bert_jax.run.checkpoint_manifest import Manifest, complete
from bert_jax.run.metrics import read_metrics
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.verification import verify
from bert_jax.system.errors import UsageError

pytestmark = pytest.mark.long

KILLS_WHEN_SLOW = 100
PARTS, STRIDE = 6, 5
"""The time in which it is killed has so many parts; each kill is in the part so many after that of the kill before."""
SAVE_EVERY = 4


def measured(run):
    """All lines of its metrics but for what depends on the clock."""
    lines = read_metrics(run / "metrics.jsonl")
    return [{name: value for name, value in line.items() if not name.endswith("_per_second")} for line in lines]


def check(run, undisturbed, saved, said, orderly=False):
    """What there is of a run that was killed, whose newest checkpoint was of step `saved` when it was started."""
    assert "damaged" not in said, said
    assert "going on" not in said or f"going on from step {saved:,}" in said, said
    lines, expected = measured(run), measured(undisturbed)
    assert lines == expected[: len(lines)]
    with contextlib.suppress(UsageError):  # before there is anything to verify
        assert not [verdict for verdict in verify(RunDirectory(run)) if verdict.damage]
    # One checkpoint may be under way while the steps up to the next one are done.
    lost = lines[-1]["step"] - newest_step(run) if lines else 0
    assert lost <= (0 if orderly else 2 * SAVE_EVERY)


def newest_step(run):
    return int(complete(run / "checkpoints")[-1].name) if complete(run / "checkpoints") else 0


def check_end(run, undisturbed):
    """What there is of a run that got to its end, bit for bit."""
    assert measured(run) == measured(undisturbed)
    ours, theirs = (Manifest.at(complete(path / "checkpoints")[-1]) for path in (run, undisturbed))
    assert (ours.step, ours.bits) == (theirs.step, theirs.bits)  # of all that training changes
    assert parameters(run) == parameters(undisturbed)
    assert not list(run.rglob("*tmp*"))


def test_nothing_is_lost_but_the_steps_since_the_newest_checkpoint(config_file, tiny_run, tmp_path, slow):
    run, line = tmp_path / "run", ["pretrain", config_file, "--workdir", tmp_path / "run"]
    for reached in stages_of(run).values():
        saved = newest_step(run)
        process = started_until(reached, *line)
        os.killpg(process.pid, signal.SIGKILL)  # its workers with it
        said, _ = process.communicate()
        check(run, tiny_run.path, saved, said)
    process = command_of_a_shell(*line)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and "going on from step" in output, output
    check_end(run, tiny_run.path)
    times = int(os.environ.get("BERT_JAX_KILLS", KILLS_WHEN_SLOW if slow else 0))
    if times:
        assert kill_at_random(times, tiny_run.path, tmp_path, *line)


def kill_at_random(times, undisturbed, folder, *line):
    """Kills the run so many times within the time that all of it takes, a third of the times by SIGTERM, beginning anew
    where it gets to its end; returns how often that was."""
    run, log, kills, ends, rng, window = folder / "run", folder / "log", 0, 0, random.Random(0), 60.0
    while kills < times or not ends:
        saved = newest_step(run)
        number = signal.SIGTERM if kills % 3 == 2 else signal.SIGKILL
        moment = (kills * STRIDE % PARTS + rng.random()) / PARTS * window
        began = time.monotonic()
        code = ended(log, moment if kills < times else None, number, *line)
        said = log.read_text()
        assert code in (0, 143 if number == signal.SIGTERM else -number), said
        check(run, undisturbed, saved, said, "stopped at step" in said)
        kills += code != 0
        if code and kills % 50 == 0:
            print(f"kills: {kills} of {kills} survived", flush=True)
        if code == 0:
            check_end(run, undisturbed)
            ends += 1
            if not saved:  # so long takes all of it
                window = min(window, time.monotonic() - began)
            shutil.rmtree(run / "checkpoints")
            for name in ("metrics.jsonl", "manifest.json", "results.json"):
                (run / name).unlink()
    print(f"kills: {kills} of {kills} survived, {ends} times to the run's end")
    return ends


def ended(log, after, number, *line):
    """The exit code of a command, which gets signal `number` where it hasn't ended after so many seconds."""
    with log.open("w") as written:
        process = program(COMMAND, *line, stdout=written, stderr=subprocess.STDOUT)
    try:
        return process.wait(after)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        return process.wait()
