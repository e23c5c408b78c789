"""A suite that is killed at any moment, or while it writes its files, ends as an undisturbed one.

launch/test.sh --tier slow tests/products/suite/test_suite_kills.py -s kills two models on two tasks with two seeds 40
times.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from conftest import NOUNS, program
from warm_process import COMMAND

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

KILLS_WHEN_SLOW, KILLS = 40, 2
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TASK = """
[[tasks]]
name = "{name}"
config = "sst2"
train = "{name}.tsv"
dev = "dev.tsv"
test = "test.tsv"
epochs = 1
batch_size = 8
max_length = 16
"""


def write_suite(folder: Path, run: Path, count: int) -> None:
    """A suite's file, with `count` models, tasks and seeds, and its rows; of several, minimal pairs are scored too."""
    rng = random.Random(0)
    models, names = ([f"{what}-{number}" for number in range(count)] for what in ("model", "task"))
    for model in models:
        shutil.copytree(run, folder / model)
    for name in (*names, "dev", "test"):
        rows = [f"{' '.join(rng.sample(NOUNS, 4))}\t{rng.randrange(2)}\n" for _ in range(16)]
        (folder / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    pairs = [{"sentence_good": f"the {noun} sees", "sentence_bad": f"sees {noun} the"} for noun in NOUNS]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    head = f'models = {models}\nseeds = {[*range(count)]}\nreport = "test"\n'
    tables = [TASK.format(name=name) for name in names] + ['[[tasks]]\npairs = "pairs.jsonl"\n'] * (count > 1)
    (folder / "suite.toml").write_text(head + "".join(tables))


def started(folder: Path, workdir: str) -> subprocess.Popen:
    words = ("suite", "suite.toml", "--workdir", workdir)
    with (folder / "log").open("a") as log:
        return program(COMMAND, *words, cwd=folder, stdout=log, stderr=log, start_new_session=True)


def published(folder: Path, workdir: str) -> str:
    """suite.json without the hashes in the names of runs, and without the seconds that they took."""
    text = re.sub(r'-[0-9a-f]{16}|"(work_)?seconds": [0-9.]+', "", (folder / workdir / "suite.json").read_text())
    return text.replace(f"/{workdir}/", "/W/")


def written_now(workdir: Path) -> str | None:
    """The kind of a file of the suite that is being written at this moment."""
    for path in workdir.glob("**/.*.tmp"):
        if "checkpoints" not in path.parts:
            return path.name[1:-21] if path.parent == workdir else path.parent.name
    return None


def child_of(pid: int) -> int:
    """A child of a process; without one, the process itself."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    children = [child for thread in threads for child in (thread / "children").read_text().split()]
    return int(children[0]) if children else pid


def test_a_suite_killed_at_any_moment_ends_as_an_undisturbed_one(tiny_run, tmp_path, slow):
    write_suite(tmp_path, tiny_run.path, count=2 if slow else 1)
    began = time.monotonic()
    assert started(tmp_path, "undisturbed").wait() == 0, (tmp_path / "log").read_text()
    window = time.monotonic() - began
    rng, kills, while_written = random.Random(0), Counter(), Counter()
    most, ended = KILLS_WHEN_SLOW if slow else KILLS, False
    while not ended:
        process, begun = started(tmp_path, "killed"), time.monotonic()
        done = kills.total()
        signal_sent, of_child, at_write = SIGNALS[done % 3], done % 4 == 3, done % 2 == 0
        moment, writes, seen = rng.uniform(1, 30 if slow else window), rng.randrange(1, 6), None
        while done < most and process.poll() is None:
            now = written_now(tmp_path / "killed") if at_write else None
            writes -= bool(now and now != seen)
            is_write = bool(now and writes <= 0)
            if is_write or time.monotonic() - begun > moment:
                os.kill(child_of(process.pid) if of_child else process.pid, signal_sent)
                kills[f"{'child' if of_child else 'suite'}, {signal_sent.name}"] += 1
                while_written.update([now] * is_write)
                break
            seen = now or seen
            time.sleep(0.001 if at_write else 0.02)
        code, said = process.wait(), (tmp_path / "log").read_text()
        assert "Traceback" not in said and "damaged" not in said, said
        ended = code == 0 and done >= most
        if code == 0 and not ended:
            shutil.rmtree(tmp_path / "killed")
    print(f"kills: {kills}; while written: {while_written}; {window:.0f} s undisturbed")
    assert published(tmp_path, "killed") == published(tmp_path, "undisturbed")
    assert not list((tmp_path / "killed").rglob("damaged-*"))
