"""launch/experiments.py: which runs are made, for how long, what is kept of them, and when a difference counts."""

import importlib.util
import json
import os
import sys
import threading
from pathlib import Path

import pytest

from bert_jax.system.errors import UsageError

SCRIPT = Path(__file__).parents[2] / "launch/experiments.py"
STEP_SECONDS = {"full_sentences": 0.05, "modern_muon": 0.1, "left_to_right": 0.2, "left_to_right_then_masked": 0.05}


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("experiments", SCRIPT)
    module = sys.modules["experiments"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["experiments"]


class Commands:
    """Stands in for the commands of bert-jax: knows which were given, and how long a step takes."""

    def __init__(self, script, monkeypatch, path, **options):
        self.given, self.calibrated = [], []
        monkeypatch.setattr(script, "command", self.command)
        monkeypatch.setattr(script, "_alone", self.alone)
        self.options = script.Options(output=path / "out.json", workdir=path / "runs", source=("text:some",), **options)
        self.script, self.path = script, path

    def alone(self, function, *arguments):
        if function is self.script._accuracy:
            return {"mlm_accuracy": 0.5, "mlm_loss": 3.0}
        assert function is self.script._step_times
        self.calibrated += arguments[0]
        return "a machine", {name: [3 * STEP_SECONDS[name], STEP_SECONDS[name]] for name in arguments[0]}

    def command(self, name, config, *flags):
        flags = list(map(str, flags))
        self.given.append((name, Path(config).name, flags))
        directory = Path(flags[flags.index("--workdir") + 1])
        if name == "prepare":
            (directory / "data" / "length-64").mkdir(parents=True)
            (directory / "data" / "length-64" / "prepared.json").touch()
        if name == "pretrain":
            losses = enumerate((7.0, 6.1, 5.9, 5.0), start=1)
            lines = [json.dumps({"step": 100 * n, "split": "train", "mlm_loss": loss}) + "\n" for n, loss in losses]
            (directory / "metrics.jsonl").write_text("".join(lines))
        if name == "finetune":
            directory.mkdir()
            (directory / "results.json").write_text(json.dumps({"score": 0.75}))
        return ""

    def run(self):
        self.script.experiment(self.options)
        return json.loads(self.options.output.read_text())


def test_each_recipe_has_the_steps_that_fit_into_the_time(script, monkeypatch, tmp_path):
    tasks = tmp_path / "tasks.json"
    tasks.write_text(json.dumps({"sst2": ["--task.train", "rows.tsv"]}))
    commands = Commands(
        script, monkeypatch, tmp_path, recipes=("full_sentences", "modern_muon"), seconds=60, tasks=tasks
    )
    result = commands.run()
    assert {name: row["steps"] for name, row in result["runs"].items()} == {
        "full_sentences 0": 1200,
        "modern_muon 0": 600,
    }
    assert [row["tasks"] for row in result["runs"].values()] == [{"sst2": 0.75}] * 2
    for name in ("full_sentences", "modern_muon"):
        written = script.load_config(str(tmp_path / f"runs/{name}-0.py"))
        assert written.phases[0].steps == result["runs"][f"{name} 0"]["steps"]
        assert written.optimizer == script.load_config(f"experiments/{name}").optimizer
    lines = (tmp_path / "out.md").read_text().splitlines()
    assert lines[0].startswith("a machine; 60 s of training, 1 at once")
    assert lines[-1] == "| modern_muon | 100.0 ms | 600 | 19,200 | 9,600 | 1 | 3.000 | 0.500 | no | 0.750 |"


def test_recipes_that_share_their_sequences_prepare_them_once(script, monkeypatch, tmp_path):
    monkeypatch.setitem(STEP_SECONDS, "bert", 0.05)
    commands = Commands(script, monkeypatch, tmp_path, recipes=("full_sentences", "modern_muon", "bert"))
    commands.run()
    prepared = [flags for name, _, flags in commands.given if name == "prepare"]
    assert len(prepared) == 3  # the one that makes the vocabulary, whole sentences, pairs
    assert ["--vocabulary.file" in flags for flags in prepared] == [False, True, True]


def test_what_was_done_is_not_done_again_and_more_is_added(script, monkeypatch, tmp_path):
    Commands(script, monkeypatch, tmp_path, recipes=("modern_muon",)).run()
    again = Commands(script, monkeypatch, tmp_path, recipes=("modern_muon",), seeds=(0, 1))
    assert list(again.run()["runs"]) == ["modern_muon 0", "modern_muon 1"]
    assert [name for name, _, _ in again.given] == ["prepare", "pretrain"]  # for the second seed
    assert again.calibrated == []
    with pytest.raises(UsageError, match="was measured with .*600.* and this would be .*10"):
        Commands(script, monkeypatch, tmp_path, recipes=("modern_muon",), seconds=10.0).run()


def test_a_recipe_that_starts_from_another_shares_the_time_with_it(script, monkeypatch, tmp_path):
    commands = Commands(script, monkeypatch, tmp_path, recipes=("left_to_right_then_masked",), seconds=100)
    result = commands.run()
    first, second = (flags for name, _, flags in commands.given if name == "pretrain")
    path = tmp_path / "runs/left_to_right_then_masked-0"
    assert first[:2] == ["--workdir", f"{path}-first"] and second[:4] == [
        "--workdir",
        str(path),
        "--init",
        f"{path}-first",
    ]
    assert script.load_config(f"{path}-first.py").phases[0].steps == 250
    assert result["runs"]["left_to_right_then_masked 0"]["steps"] == 1000


def test_runs_at_once_share_the_cores(script, monkeypatch, tmp_path):
    cores, seen = sorted(os.sched_getaffinity(0)), {}
    commands = Commands(
        script, monkeypatch, tmp_path, recipes=("full_sentences", "modern_muon"), seeds=(0, 1), at_once=1
    )
    assert len(commands.run()["runs"]) == 4
    if len(cores) < 2:
        return

    class Meeting(Commands):
        def command(self, name, config, *flags):
            if name == "pretrain":
                both_at_work.wait(timeout=60)
                seen[Path(config).name] = os.sched_getaffinity(0)
            return super().command(name, config, *flags)

    both_at_work = threading.Barrier(2)
    (folder := tmp_path / "both").mkdir()
    result = Meeting(script, monkeypatch, folder, recipes=("full_sentences", "modern_muon"), at_once=2).run()
    assert seen == {"full_sentences-0.py": set(cores[0::2]), "modern_muon-0.py": set(cores[1::2])} or seen == {
        "full_sentences-0.py": set(cores[1::2]),
        "modern_muon-0.py": set(cores[0::2]),
    }
    assert [row["steps"] for row in result["runs"].values()] == [12000, 6000]
    assert os.sched_getaffinity(0) == set(cores)  # of the thread that asked for them
    with pytest.raises(UsageError, match=f"--at-once 0: this process may use {len(cores)} cores"):
        Commands(script, monkeypatch, tmp_path / "none", at_once=0).run()


@pytest.mark.parametrize(
    "content, options, words",
    [
        (None, {}, "--tasks .*tasks.json can't be read .*; give a file that holds an object such as"),
        ("[", {}, "--tasks .*tasks.json can't be read"),
        ('{"sst3": []}', {}, "no config of that name"),
        ('{"sst2": "rows.tsv"}', {}, "sst2 has 'rows.tsv' for its flags; give"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_run(script, monkeypatch, tmp_path, content, options, words):
    if content:
        (tmp_path / "tasks.json").write_text(content)
    commands = Commands(script, monkeypatch, tmp_path, tasks=tmp_path / "tasks.json", **options)
    with pytest.raises(UsageError, match=words):
        commands.run()
    assert not commands.given and not commands.calibrated


def test_a_run_that_fails_ends_the_others_that_have_not_begun(script, monkeypatch, tmp_path):
    class Failing(Commands):
        def command(self, name, config, *flags):
            if name == "pretrain":
                raise UsageError("bert-jax pretrain ended with 1: no space left")
            return super().command(name, config, *flags)

    commands = Failing(script, monkeypatch, tmp_path, recipes=("full_sentences", "modern_muon"), seeds=(0, 1, 2))
    with pytest.raises(UsageError, match="no space left"):
        commands.run()
    assert json.loads((tmp_path / "out.json").read_text())["step_times"].keys() == {"full_sentences", "modern_muon"}


@pytest.mark.parametrize(
    "ours, theirs, counts",
    [
        ([0.50], [0.492], False),
        ([0.50], [0.489], True),
        ([0.50], [0.45, 0.46], True),
        ([0.50, 0.52], [0.49, 0.51], False),
        ([0.50, 0.52], [0.47, 0.49], True),  # the pooled deviation is 0.0141
        ([0.50, 0.52], [0.483, 0.503], False),
    ],
)
def test_a_difference_counts_by_the_rule(script, ours, theirs, counts):
    assert script.differ(ours, theirs) == script.differ(theirs, ours) == counts
