"""Which runs of a suite are made, for how long, with which settings, and what a kill leaves to do."""

import itertools
import json
import operator
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
from suite_cases import TASK_TEXT

from bert_jax.products.suite import job, measuring
from bert_jax.products.suite.job import Job
from bert_jax.products.suite.suite_file import read_suite
from bert_jax.products.suite.summary import Summary
from bert_jax.products.suite.verdict_sentences import verdict_sentences
from bert_jax.products.suite.work import SuiteWork
from bert_jax.run.config_files import catalogue
from bert_jax.system.errors import RunError, UsageError
from bert_jax.text.vocabulary import VocabularySizeError

RECIPES = """
source = "text:some"
[[models]]
config = "experiments/full_sentences"
[[models]]
config = "experiments/modern_muon"
"""
TRAINED = f"""
models = ["one", "two"]
seeds = [0, 1]
{TASK_TEXT}
[[tasks]]
name = "twice"
config = "sst2"
train = "train.tsv"
dev = "dev.tsv"
test = "test.tsv"
epochs = 2
[grid]
"optimizer.peak-learning-rate" = [1e-4, 3e-4]
"""
PAIRS = '[[tasks]]\npairs = "pairs.jsonl"\n'


def pretrained(stand_ins):
    return [call for call in stand_ins.given if call.name == "pretrain"]


def test_each_recipe_has_the_steps_that_fit_into_the_time(stand_ins):
    summary = stand_ins.run(f"{RECIPES}{TASK_TEXT}[budget]\nseconds = 60\n")
    steps = {row["model"]: row["steps"] for row in summary.content["pretrained"]}
    assert steps == {"full_sentences": 1200, "modern_muon": 600}
    assert [row["plateau"] for row in summary.content["pretrained"]] == [300 * 32] * 2
    assert [call.steps for call in pretrained(stand_ins)] == [[1200], [600]]
    assert [call.config.checkpoints.every for call in pretrained(stand_ins)] == [300, 150]
    assert [row["score"] for row in summary.runs if row["task"] == "held-out tokens"] == [0.5, 0.5]
    assert len({sequences for _, sequences in stand_ins.measured[2:]}) == 1  # the same for every model


def test_steps_are_measured_with_the_vocabulary_of_the_first_recipe(stand_ins):
    first, second = RECIPES.split("[[models]]")[1:]
    sized = f'source = "text:some"\n[budget]\nseconds = 60\n[[models]]{first}set = {{ "vocabulary.size" = 500 }}\n'
    stand_ins.run(f"{sized}[[models]]{second}")
    assert [config.vocabulary.size for config in stand_ins.timed.values()] == [500, 500]


@pytest.mark.parametrize("budget, steps", [("steps = 1000", 1000), ("flops = 5e9", 5000)])
def test_a_budget_of_steps_or_flops_measures_no_time(stand_ins, budget, steps):
    stand_ins.run(f"{RECIPES}[budget]\n{budget}\n")
    assert [call.steps for call in pretrained(stand_ins)] == [[steps]] * 2
    assert not {"full_sentences", "modern_muon"} & {each for each in stand_ins.measured if isinstance(each, str)}


def test_without_a_budget_a_recipe_takes_the_steps_of_its_config(stand_ins):
    stand_ins.run(RECIPES)
    configs = [catalogue()[f"experiments/{name}"].config for name in ("full_sentences", "modern_muon")]
    assert [call.config.phases for call in pretrained(stand_ins)] == [config.phases for config in configs]


@pytest.mark.parametrize(
    "vocabulary, file",
    [('"vocabulary.size" = 500', "vocab.txt"), ('"vocabulary.kind" = "unigram"', "tokenizer.model")],
)
def test_all_recipes_have_the_vocabulary_that_is_made_first_and_clean_text_alike(stand_ins, vocabulary, file):
    first = f'full_sentences"\nset = {{ {vocabulary}, "vocabulary.lowercase" = false }}'
    recipes = RECIPES.replace('full_sentences"', first)
    stand_ins.run(f'{recipes}[[models]]\nconfig = "experiments/bert"\n')
    made, *trained = stand_ins.given
    assert made.name == "prepare" and {call.name for call in trained} == {"pretrain"}
    assert made.config.vocabulary.file is None and (made.config.vocabulary.size == 500) == ("500" in vocabulary)
    assert [call.config.vocabulary.file for call in trained] == [f"{made.path}/tokenizer/{file}"] * 3
    assert not any(call.config.vocabulary.lowercase for call in trained if file == "vocab.txt")


def test_a_recipe_may_start_from_a_model(stand_ins, monkeypatch):
    (stand_ins.folder / "started.py").write_text(
        "from bert_jax.run.config_files import find_config\n"
        "config = find_config('experiments/bert').config.set({'init': 'one'})\n"
    )
    monkeypatch.setattr("bert_jax.products.suite.recipes.model_hash", lambda place: "hash")
    stand_ins.run(f'{RECIPES}[[models]]\nconfig = "started.py"\n')
    *_, trained = stand_ins.given
    assert trained.config.init == "one" and trained.config.vocabulary.file.endswith("/vocab.txt")


def test_what_was_done_is_not_done_again_and_more_is_added(stand_ins):
    text = f"{RECIPES}[budget]\nseconds = 60\n"
    stand_ins.run(text)
    stand_ins.given.clear()
    stand_ins.measured.clear()
    summary = stand_ins.run(text, seeds=(0, 1))
    assert [call.config.seed for call in pretrained(stand_ins)] == [1, 1]
    assert [row["seed"] for row in summary.content["pretrained"]] == [0, 0, 1, 1]
    assert not [each for each in stand_ins.measured if isinstance(each, str)]  # no step time again


def test_a_recipe_that_begins_with_another_shares_the_budget_with_it(stand_ins):
    text = """
source = "text:some"
[[models]]
name = "left"
config = "experiments/left_to_right"
[[models]]
name = "masked"
config = "experiments/left_to_right_then_masked"
begin = "left"
[budget]
seconds = 100
"""
    summary = stand_ins.run(text)
    _, first, second = pretrained(stand_ins)
    assert first.config.model.causal and first.steps == [250]
    assert second.steps == [1000] and second.config.init == str(first.path)
    masked = summary.content["pretrained"][1]
    assert (masked["steps"], masked["sequences"], masked["plateau"]) == (1000, 1250 * 32, 250 * 32)


def test_recipes_with_phases_have_their_shares_of_the_steps(stand_ins):
    recipe = 'source = "text:some"\n[budget]\nsteps = 1000\n[[models]]\nconfig = "experiments/zh_stages"\n'
    (row,) = stand_ins.run(recipe).content["pretrained"]
    (call,) = pretrained(stand_ins)
    assert call.steps == [400, 300, 300]
    sizes = [phase.batch_size for phase in call.config.phases]
    assert row["sequences"] == sum(map(operator.mul, call.steps, sizes)) and row["plateau"] == 300 * sizes[0]


def test_every_model_is_tuned_for_every_task_with_every_setting_and_seed(stand_ins):
    summary = stand_ins.run(TRAINED)
    tuned = [call.config for call in stand_ins.given if call.name == "finetune"]
    assert len(tuned) == len(summary.runs) == 2 * 2 * 2 * 2
    named = {(config.init, config.seed, config.optimizer.peak_learning_rate, config.task.epochs) for config in tuned}
    assert len(named) == 16 and all(os.path.isabs(model) for model, *_ in named)
    assert {config.task.train for config in tuned} == {f"{stand_ins.folder}/train.tsv"}
    cell = summary.cells["sst2"]["one"]
    by_setting = {
        rate: [row["score"] for row in summary.runs if (row["model"], row["task"]) == ("one", "sst2")
               and row["setting"] == {"optimizer.peak-learning-rate": rate}]
        for rate in (1e-4, 3e-4)
    }  # fmt: skip
    assert cell.setting == {"optimizer.peak-learning-rate": max(by_setting, key=lambda rate: sum(by_setting[rate]))}
    assert cell.scores == {0: 0.7, 1: 0.7}  # of the answers that are compared, not of the training
    kept = [run for run in (stand_ins.folder / "W/runs").iterdir() if (run / "checkpoints").exists()]
    assert len(kept) == 8  # those of the best settings
    answers = {path.read_bytes() for path in (stand_ins.folder / "W/answers").iterdir()}
    assert len(answers) == len(stand_ins.answered) == 8  # each in a file of its own
    content = summary.content
    assert json.loads(json.dumps(content)) == json.loads(json.dumps(content, allow_nan=False))
    assert {"suite", "runs", "table", "winners", "missing", "failed", "pretrained"} == content.keys()
    rows = {(row["task"], row["model"]): row for row in content["table"]}
    assert rows.keys() == set(itertools.product(("sst2", "twice", "average"), ("one", "two")))
    assert all(row["seeds"] == [0, 1] for row in content["table"])
    assert {"mean", "spread", "verdict", "p", "rank", "setting", "share_seen"} <= rows["sst2", "two"].keys()


def test_test_rows_are_measured_by_the_best_setting_alone(stand_ins):
    text = TRAINED.replace(TASK_TEXT, f'{TASK_TEXT}test = "test.tsv"\n')
    summary = stand_ins.run(text, report="test")
    assert all(cell.mean == pytest.approx(0.7) for cell in summary.cells["sst2"].values())
    measured = [source for _, source in stand_ins.answered]
    assert measured == [str(stand_ins.folder / "test.tsv")] * 8  # of 16 trained models


def test_pairs_and_judged_texts_are_measured_once_for_a_trained_model(stand_ins):
    stand_ins.judged("scifact")
    tasks = '[[tasks]]\npairs = "pairs.jsonl"\n[[tasks]]\nbeir = "scifact"\n'
    summary = stand_ins.run(f'models = ["one", "two"]\nseeds = [0, 1]\n{tasks}')
    folder = stand_ins.folder
    assert sorted(call[:2] for call in stand_ins.given) == [
        (kind, folder / name) for kind in ("beir", "pairs") for name in ("one", "two")
    ]
    assert {task: cells["one"].text for task, cells in summary.cells.items()} == {
        "pairs": "0.600 (25.0% seen)",
        "scifact": "0.400 (25.0% seen)",
        "average": "0.500",
    }


def test_a_text_that_is_here_in_part_has_at_least_the_rows_found_in_it(stand_ins):
    stand_ins.unread = "W/one began with another program's model"
    summary = stand_ins.run(TRAINED)
    assert "(at least 25.0% seen)" in summary.cells["sst2"]["one"].text
    said = [text for _, text in verdict_sentences(summary) if text.startswith("Seen: only a part of one's")]
    assert said == [f"Seen: only a part of one's pretraining text was looked through, as {stand_ins.unread}."]


def test_an_average_is_not_judged_if_a_task_shows_no_chance(stand_ins):
    stand_ins.judged("scifact")
    summary = stand_ins.run(f'{TRAINED}[[tasks]]\nbeir = "scifact"\n')
    assert "average" in summary.cells and ("two", "average") not in summary.differences
    assert ("two", "sst2") in summary.differences
    assert any("as there is no verdict on scifact" in text for _, text in verdict_sentences(summary))


def test_a_model_that_is_measured_once_is_compared_with_all_seeds_of_a_recipe(stand_ins):
    summary = stand_ins.run(f'seeds = [0, 1, 2]\n{RECIPES}[[models]]\npath = "one"\n{PAIRS}')
    assert len(summary.cells["pairs"]["one"].scores) == 1
    assert summary.differences["one", "pairs"].seeds == 3


def test_a_recipe_that_lost_seeds_gets_no_verdict(stand_ins):
    """One run that went well says nothing of a recipe that failed twice."""

    def failing(call):
        if call.name == "pretrain" and call.config.seed and call.config.optimizer.name == "muon":
            raise RunError("the loss is infinite")

    stand_ins.before = failing
    stand_ins.outcomes = {"one": "11------01"}  # pairs that a model can't score are left out for all
    summary = stand_ins.run(f'seeds = [0, 1, 2]\n{RECIPES}[[models]]\npath = "one"\n{PAIRS}')
    assert summary.cells["pairs"]["modern_muon"].text == "0.750 (1 of 3 seeds) (25.0% seen)"
    found = summary.differences["modern_muon", "pairs"]
    assert not found.is_significant and found.obstacle == "modern_muon has 1 of 3 seeds"
    assert ("modern_muon", "average") not in summary.differences


def test_the_best_is_not_named_where_nothing_shows_chance(stand_ins, monkeypatch):
    stand_ins.judged("scifact")
    scores = {"one": 0.1, "two": 0.4, "three": 0.65}
    monkeypatch.setattr(stand_ins, "called", lambda call: {"ndcg@10": scores[call.path.name]})
    summary = stand_ins.run('models = ["one", "two", "three"]\n[[tasks]]\nbeir = "scifact"\n')
    assert not summary.winners


def test_runs_at_once_share_the_cores(stand_ins):
    cores, seen, called = sorted(os.sched_getaffinity(0)), {}, stand_ins.called
    if len(cores) < 2:
        pytest.skip("one core can't be shared")
    both_at_work = threading.Barrier(2)

    def meeting(call):
        if call.name == "pretrain":
            both_at_work.wait(timeout=60)
            seen[call.path] = os.sched_getaffinity(0)
        return called(call)

    stand_ins.called = meeting
    stand_ins.run(RECIPES, at_once=2)
    assert sorted(seen.values(), key=min) == [set(cores[0::2]), set(cores[1::2])]
    assert os.sched_getaffinity(0) == set(cores)  # of the thread that asked for them
    with pytest.raises(UsageError, match=f"--at-once 0: this process may use {len(cores)} cores"):
        stand_ins.run(RECIPES, at_once=0)


def test_jobs_at_once_make_their_folder(tmp_path):
    """Without a lock: asking whether it exists before making it failed about once in five trials."""
    together = threading.Barrier(4)

    def finish(path):
        job = Job("one", "labels", {}, 0, path, lambda: {"score": 0.5}, {})
        together.wait(timeout=60)
        job.finish()
        return job.measured

    for trial in map(str, range(50)):
        (tmp_path / trial).mkdir()
        paths = [tmp_path / trial / "figures" / f"{number}.json" for number in range(4)]
        with ThreadPoolExecutor(4) as pool:
            assert [*pool.map(finish, paths)] == 4 * [{"score": 0.5}]
    (tmp_path / "figures").touch()
    with pytest.raises(RunError, match="figures is no folder; move it away, and give the same command again"):
        Job("one", "labels", {}, 0, tmp_path / "figures" / "0.json", dict, {}).finish()


def test_failed_runs_are_told_and_the_others_go_on(stand_ins):
    """A run fails by an error of ours or of a library, or ends without results."""
    called = stand_ins.called

    def failing(call):
        if call.name != "finetune" or call.config.task.epochs != 2 or call.config.seed != 1:
            return called(call)
        if call.config.optimizer.peak_learning_rate == 1e-4:
            raise RunError("the loss is infinite")
        if call.config.init.endswith("one"):
            raise VocabularySizeError.too_large(16_384, 900)
        return {}

    stand_ins.called = failing
    work = SuiteWork(stand_ins.suite(TRAINED), stand_ins.folder / "W", 1)
    work.run(lambda: None)
    summary = Summary(work)
    size, empty, *infinite = sorted(failure.partition("seed 1: ")[2] for failure in work.failures)
    assert infinite == ["the loss is infinite"] * 2 and size.startswith("--vocabulary.size=16,384 is more than")
    assert empty.startswith("it ended without an error and left no") and empty.endswith("results.json")
    assert len(summary.runs) == 12 and "twice" not in summary.cells and "sst2" in summary.cells
    assert sum(text.startswith("Failed: ") for _, text in verdict_sentences(summary)) == 4
    stand_ins.called = called  # the same command does what is missing
    assert len(stand_ins.run(TRAINED).runs) == 16


def test_wrong_use_ends_the_suite(stand_ins):
    def wrong(call):
        raise UsageError("no such column")

    stand_ins.before = wrong
    with pytest.raises(UsageError, match=r"^\w+, \w+, peak-learning-rate 0.000[13], seed [01]: no such column"):
        stand_ins.run(TRAINED)


def test_two_suites_do_not_work_in_one_directory(stand_ins):
    refused = []

    def meanwhile(call):
        if not refused:
            refused.append(True)
            with pytest.raises(UsageError, match="another process runs a suite in .*W; wait until it ends, or"):
                stand_ins.run(TRAINED)

    stand_ins.before = meanwhile
    stand_ins.run(TRAINED)
    assert refused


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def test_a_suite_goes_on_in_its_own_folder_alone(stand_ins):
    def checked(text, file="suite.toml", **changes):
        (stand_ins.folder / file).write_text(text)
        suite = read_suite(stand_ins.folder / file, **changes)
        SuiteWork(suite, stand_ins.folder / "W", changes.pop("at_once", 1)).check()

    checked(TRAINED)
    assert not (stand_ins.folder / "W").exists()
    (stand_ins.folder / "W").mkdir()
    (stand_ins.folder / "W/.lock").touch()  # it was killed before it wrote anything else
    checked(TRAINED)
    stand_ins.run(TRAINED)
    before = contents(stand_ins.folder / "W")
    checked(TRAINED, only=["twice"])
    checked(TRAINED, seeds=[7], models=["two"])
    checked(TRAINED.replace("epochs = 2", "epochs = 5"))
    with pytest.raises(UsageError, match="W is the folder of another suite, .*/suite.toml; choose another --workdir"):
        checked(TRAINED, file="other.toml")
    (stand_ins.folder / "inner").mkdir()
    with pytest.raises(UsageError, match="is the folder of another suite"):
        checked(TRAINED, file="inner/suite.toml")
    (stand_ins.folder / "suite.toml").unlink()  # it was moved
    checked(TRAINED, file="inner/suite.toml")
    assert contents(stand_ins.folder / "W") == before
    for damaged in ("{", "{}", '{"suite": 3}'):
        (stand_ins.folder / "W/origin.json").write_text(damaged)
        with pytest.raises(UsageError, match="W/origin.json is damaged .*; delete it to go on here"):
            checked(TRAINED)


@pytest.mark.parametrize("name", ["runs", "finished", "answers", "scores"])
def test_a_suite_writes_through_no_link(stand_ins, name):
    (stand_ins.folder / "elsewhere").mkdir()
    work = SuiteWork(stand_ins.suite(TRAINED), stand_ins.folder / "W", 1)
    (stand_ins.folder / "W").mkdir()
    (stand_ins.folder / "W/suite.json").touch()
    (stand_ins.folder / "W" / name).symlink_to(stand_ins.folder / "elsewhere")
    with pytest.raises(UsageError, match=f"W/{name} is a link, and files would be written to .*/elsewhere; "):
        work.check()


@pytest.mark.parametrize("setting", ["vocabulary.file", "data.phrases"])
def test_files_of_a_recipe_must_be_there(stand_ins, setting):
    (stand_ins.folder / "corpus.txt").write_text("Some text.\n")
    text = RECIPES.replace("text:some", "text:corpus.txt").replace(
        "[[models]]",
        f"""[[models]]
set = {{"{setting}" = "absent.txt"}}""",
        1,
    )
    with pytest.raises(UsageError, match="there is nothing at .*absent.txt, which a recipe names; put the file there"):
        SuiteWork(stand_ins.suite(text), stand_ins.folder / "W", 1).check()


def test_text_of_a_recipe_must_be_there_unless_its_run_has_begun(stand_ins):
    work = SuiteWork(stand_ins.suite(RECIPES), stand_ins.folder / "W", 1)
    with pytest.raises(UsageError, match="--data.source='text:some'|no file matches"):
        work.check()
    for each in work.pretrainings():
        each.path.mkdir(parents=True)
        (each.path / "config.json").touch()
    (stand_ins.folder / "W/suite.json").touch()
    work.check()


def test_no_best_is_named_while_a_measurement_is_missing(stand_ins):
    works = [False]

    def fails_once(call):
        if call.name == "finetune" and call.config.init.endswith("four") and call.config.seed == 1 and not works[0]:
            raise RunError("no memory left")

    stand_ins.before = fails_once
    suite = f'models = ["one", "two", "three", "four"]\nseeds = [0, 1]\n{TASK_TEXT}'
    summary = stand_ins.run(suite)
    assert summary.missing == {"sst2": 1} == summary.content["missing"] and not summary.winners
    assert any("1 measurement missing, so no best" in text for _, text in verdict_sentences(summary))
    works[0] = True
    assert [winner.task for winner in stand_ins.run(suite).winners] == ["sst2"]


def test_answers_are_those_of_the_best_setting_however_long_its_training_took(stand_ins, monkeypatch):
    """With more seeds another setting is the best, whose deleted checkpoints are trained again."""
    monkeypatch.setattr(job, "time", Mock(monotonic=itertools.count(0.0, 1.7).__next__))
    called = stand_ins.called

    def scored(call):
        found = called(call)
        if call.name == "finetune":
            low, results = call.config.optimizer.peak_learning_rate == 1e-4, call.path / "results.json"
            score = {True: 0.9, False: 0.5}[low] if call.config.seed == 0 else {True: 0.1, False: 0.95}[low]
            results.write_text(json.dumps(json.loads(results.read_text()) | {"score": score, "accuracy": score}))
        return found

    stand_ins.called = scored
    suite = f"models = ['one', 'two']\n{TASK_TEXT}[grid]\n'optimizer.peak-learning-rate' = [1e-4, 3e-4]\n"
    settings = []
    for seeds in ((0,), (0, 1, 2)):
        cells = stand_ins.run(suite, seeds=seeds).cells["sst2"]
        assert all(len(cell.scores) == len(seeds) for cell in cells.values())
        settings.append({cell.setting["optimizer.peak-learning-rate"] for cell in cells.values()})
    assert settings == [{1e-4}, {3e-4}]


@pytest.mark.parametrize(
    "figures, said",
    [({}, "has no score on held-out text"), ({"mlm_accuracy": None}, "failed: ")],
    ids=["nothing held out", "not finite"],
)
def test_a_recipe_without_a_held_out_figure_stops_no_other(stand_ins, figures, said, capsys):
    alone = stand_ins.alone
    stand_ins.alone = lambda function, *arguments: (
        figures if function is measuring.held_out_figures else alone(function, *arguments)
    )
    summary = stand_ins.run(f'source = "text:some"\n[[models]]\nconfig = "experiments/modern"\n{TASK_TEXT}')
    assert set(summary.cells) == {"sst2"}
    assert any(said in text for text in [*(text for _, text in verdict_sentences(summary)), capsys.readouterr().err])
