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
from pathlib import Path

import pytest
from conftest import NOUNS, program
from warm_process import COMMAND

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

KILLS_WHEN_SLOW, KILLS = 40, 3
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


def write_suite(folder: Path, run: Path, models: int, tasks: int, seeds: int) -> None:
    """A suite's file, with its models and rows."""
    rng = random.Random(0)
    for number in range(models):
        shutil.copytree(run, folder / f"model-{number}")
    names = [f"task-{number}" for number in range(tasks)]
    for name in (*names, "dev", "test"):
        rows = [f"{' '.join(rng.sample(NOUNS, 4))}\t{rng.randrange(2)}\n" for _ in range(16)]
        (folder / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    pairs = [{"sentence_good": f"the {noun} sees", "sentence_bad": f"sees {noun} the"} for noun in NOUNS]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    head = f'models = {[f"model-{number}" for number in range(models)]}\nseeds = {[*range(seeds)]}\nreport = "test"\n'
    tables = [TASK.format(name=name) for name in names]
    (folder / "suite.toml").write_text(head + "".join(tables) + '[[tasks]]\npairs = "pairs.jsonl"\n')


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


def kill_of(pid: int, number: int, of_child: bool) -> str:
    """Sends a signal to a suite, or to one of its children."""
    target = pid
    if of_child:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        every = [
            child
            for thread in Path(f"/proc/{pid}/task").iterdir()
            for child in (thread / "children").read_text().split()
        ]
        target = int((every or children or [pid])[0])
    os.kill(target, number)
    return "child" if target != pid else "suite"


def test_a_suite_killed_at_any_moment_ends_as_an_undisturbed_one(tiny_run, tmp_path, slow):
    write_suite(tmp_path, tiny_run.path, *((2, 2, 2) if slow else (1, 1, 1)))
    began = time.monotonic()
    assert started(tmp_path, "undisturbed").wait() == 0, (tmp_path / "log").read_text()
    window = time.monotonic() - began
    rng, counts, while_written = random.Random(0), dict[str, int](), dict[str, int]()
    kills = KILLS_WHEN_SLOW if slow else KILLS
    ends, done = 0, 0
    while done < kills or not ends:
        process, begun = started(tmp_path, "killed"), time.monotonic()
        number, of_child, at_write = SIGNALS[done % 3], done % 4 == 3, done % 2 == 0
        moment, wanted = rng.uniform(1, 30 if slow else window), rng.randrange(1, 6)
        seen = None
        while done < kills and process.poll() is None:
            now = written_now(tmp_path / "killed") if at_write else None
            if now and now != seen:
                wanted -= 1
            if time.monotonic() - begun > moment or now and wanted <= 0:
                kind = kill_of(process.pid, number, of_child)
                counts[f"{kind}, {number.name}"] = counts.get(f"{kind}, {number.name}", 0) + 1
                if now and wanted <= 0:
                    while_written[now] = while_written.get(now, 0) + 1
                done += 1
                break
            seen = now or seen
            time.sleep(0.001 if at_write else 0.02)
        code = process.wait()
        said = (tmp_path / "log").read_text()
        assert "Traceback" not in said and "damaged" not in said, said
        if code == 0 and done >= kills:
            ends += 1
            assert published(tmp_path, "killed") == published(tmp_path, "undisturbed")
        elif code == 0:
            shutil.rmtree(tmp_path / "killed")
    print(f"kills: {done}, {counts}; while written: {while_written}; {window:.0f} s undisturbed")
    assert not list((tmp_path / "killed").rglob("damaged-*"))
