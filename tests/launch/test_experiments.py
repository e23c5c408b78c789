"""launch/experiments.py: which runs are made, for how long, what is kept of them, and when a difference counts."""

import json
import os
import threading
from pathlib import Path

import pytest

from bert_jax.system.errors import UsageError

STEP_SECONDS = {
    **dict.fromkeys(("full_sentences", "bert", "left_to_right_then_masked"), 0.05),
    "modern_muon": 0.1,
    "left_to_right": 0.2,
}


class Commands:
    """Stands in for the commands of bert-jax: knows which were given, and how long a step takes."""

    def __init__(self, script, monkeypatch, path, **options):
        self.given, self.calibrated, self.measured = [], [], []
        monkeypatch.setattr(script, "command", self.command)
        monkeypatch.setattr(script, "in_own_process", self.alone)
        self.options = script.Options(output=path / "out.json", workdir=path / "runs", source=("text:some",), **options)
        self.script, self.path = script, path

    def alone(self, function, *arguments):
        if function is self.script._accuracy:
            run, held_out, units = arguments
            self.measured.append((run.name, held_out))
            return {"mlm_accuracy": 0.5, "mlm_loss": 3.0} | {f"mlm_accuracy/{kind}": 0.25 for kind in units[1:]}
        assert function is self.script._step_times
        self.calibrated += arguments[0]
        return "a machine", {name: [3 * STEP_SECONDS[name], STEP_SECONDS[name]] for name in arguments[0]}

    def command(self, name, config, *flags):
        flags = list(map(str, flags))
        self.given.append((name, config, flags))
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
        """The content of the file of results."""
        self.script.Experiment(self.options).run()
        return json.loads(self.options.output.read_text())


@pytest.fixture
def commands(script, monkeypatch, tmp_path):
    """Makes stand-ins that work in the test's folder."""

    def made(kind=Commands, path=tmp_path, **options):
        return kind(script, monkeypatch, path, **options)

    return made


def test_each_recipe_has_the_steps_that_fit_into_the_time(commands, tmp_path):
    tasks = tmp_path / "tasks.json"
    tasks.write_text(json.dumps({"sst2": ["--task.train", "rows.tsv"]}))
    stand_in = commands(recipes=("full_sentences", "modern_muon"), seconds=60, tasks=tasks)
    result = stand_in.run()
    steps = {"full_sentences 0": 1200, "modern_muon 0": 600}
    assert {name: row["steps"] for name, row in result["runs"].items()} == steps
    assert [row["tasks"] for row in result["runs"].values()] == [{"sst2": 0.75}] * 2
    trained = {config: flags[2:4] for name, config, flags in stand_in.given if name == "pretrain"}
    assert trained == {f"experiments/{name[:-2]}": ["--phases.0.steps", str(count)] for name, count in steps.items()}
    lines = (tmp_path / "out.md").read_text().splitlines()
    assert lines[0].startswith("a machine; 60 s of training, 1 at once")
    assert lines[-1] == "| modern_muon | 100.0 ms | 600 | 19,200 | 9,600 | 1 | 3.000 | 0.500 | no | 0.750 |"


def test_recipes_that_share_their_sequences_prepare_them_once(commands):
    stand_in = commands(recipes=("full_sentences", "modern_muon", "bert"))
    stand_in.run()
    prepared = [flags for name, _, flags in stand_in.given if name == "prepare"]
    assert len(prepared) == 3  # the one that makes the vocabulary, whole sentences, pairs
    assert ["--vocabulary.file" in flags for flags in prepared] == [False, True, True]


def test_what_was_done_is_not_done_again_and_more_is_added(commands):
    commands(recipes=("modern_muon",)).run()
    again = commands(recipes=("modern_muon",), seeds=(0, 1))
    assert list(again.run()["runs"]) == ["modern_muon 0", "modern_muon 1"]
    assert [name for name, _, _ in again.given] == ["prepare", "pretrain"]  # for the second seed
    assert again.calibrated == []
    with pytest.raises(UsageError, match="was measured with .*600.* and this would be .*10"):
        commands(recipes=("modern_muon",), seconds=10.0).run()


def test_a_recipe_that_starts_from_another_shares_the_time_with_it(commands, tmp_path):
    stand_in = commands(recipes=("left_to_right_then_masked",), seconds=100)
    result = stand_in.run()
    first, second = (flags for name, _, flags in stand_in.given if name == "pretrain")
    path = tmp_path / "runs/left_to_right_then_masked-0"
    assert first[:4] == ["--workdir", f"{path}-first", "--phases.0.steps", "250"] and "--init" not in first
    assert second[:2] == ["--workdir", str(path)] and second[second.index("--init") + 1] == f"{path}-first"
    assert result["runs"]["left_to_right_then_masked 0"]["steps"] == 1000


def test_recipes_with_phases_have_their_shares_of_the_given_steps(commands, tmp_path):
    recipes = ("zh_characters", "zh_stages")
    stand_in = commands(recipes=recipes, steps=1000, measured_as="zh_characters", units=("piece", "word"))
    result = stand_in.run()
    trained = [flags for name, _, flags in stand_in.given if name == "pretrain"]
    assert [flags[: flags.index("--evaluation.every")][2:] for flags in trained] == [
        ["--phases.0.steps", "1000"],
        ["--phases.0.steps", "400", "--phases.1.steps", "300", "--phases.2.steps", "300"],
    ]
    assert stand_in.calibrated == [] and len({directory for _, directory in stand_in.measured}) == 1
    assert [row["steps"] for row in result["runs"].values()] == [1000, 1000]
    lines = (tmp_path / "out.md").read_text().splitlines()
    assert lines[0].startswith("1,000 steps of training, 1 at once")
    assert lines[-1] == "| zh_stages | 1,000 | 32,000 | 9,600 | 1 | 3.000 | 0.500 | no | 0.250 |"


def test_runs_at_once_share_the_cores(commands, tmp_path):
    cores, seen = sorted(os.sched_getaffinity(0)), {}
    stand_in = commands(recipes=("full_sentences", "modern_muon"), seeds=(0, 1), at_once=1)
    assert len(stand_in.run()["runs"]) == 4
    if len(cores) < 2:
        return

    class Meeting(Commands):
        def command(self, name, config, *flags):
            if name == "pretrain":
                both_at_work.wait(timeout=60)
                seen[config] = os.sched_getaffinity(0)
            return super().command(name, config, *flags)

    both_at_work = threading.Barrier(2)
    (folder := tmp_path / "both").mkdir()
    result = commands(Meeting, folder, recipes=("full_sentences", "modern_muon"), at_once=2).run()
    assert sorted(seen.values(), key=min) == [set(cores[0::2]), set(cores[1::2])]
    assert [row["steps"] for row in result["runs"].values()] == [12000, 6000]
    assert os.sched_getaffinity(0) == set(cores)  # of the thread that asked for them
    with pytest.raises(UsageError, match=f"--at-once 0: this process may use {len(cores)} cores"):
        commands(path=tmp_path / "none", at_once=0).run()


@pytest.mark.parametrize(
    "content, words",
    [
        (None, "--tasks .*tasks.json can't be read .*; give a file that holds an object such as"),
        ("[", "--tasks .*tasks.json can't be read"),
        ('{"sst3": []}', "no config of that name"),
        ('{"sst2": "rows.tsv"}', "sst2 has 'rows.tsv' for its flags; give"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_run(commands, tmp_path, content, words):
    if content:
        (tmp_path / "tasks.json").write_text(content)
    stand_in = commands(tasks=tmp_path / "tasks.json")
    with pytest.raises(UsageError, match=words):
        stand_in.run()
    assert not stand_in.given and not stand_in.calibrated


def test_a_run_that_fails_ends_the_others_that_have_not_begun(commands, tmp_path):
    class Failing(Commands):
        def command(self, name, config, *flags):
            if name == "pretrain":
                raise UsageError("bert-jax pretrain ended with 1: no space left")
            return super().command(name, config, *flags)

    stand_in = commands(Failing, recipes=("full_sentences", "modern_muon"), seeds=(0, 1, 2))
    with pytest.raises(UsageError, match="no space left"):
        stand_in.run()
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
