"""Suites whose recipes have vocabularies of their own and begin with each of several models."""

import json
import shutil
from pathlib import Path

import pytest

import bert_jax
from bert_jax.cli.main import run
from bert_jax.products.suite.measuring import TokenTimes
from bert_jax.products.suite.processes import Processes
from bert_jax.products.suite.texts import tokens_of_rows
from bert_jax.products.suite.verdict_sentences import verdict_sentences
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.errors import UsageError
from bert_jax.system.progress import say

SUITE = """
source = "text:some"
vocabulary = "own"
[[models]]
name = "scratch"
config = "experiments/full_sentences"
[[models]]
name = "tagged"
config = "experiments/full_sentences"
tags = true
[[models]]
path = "each"
[[models]]
name = "new words,"
config = "experiments/modern"
init = "each"
set = { "vocabulary.size" = 500 }
[[tasks]]
name = "tags"
config = "tags"
train = "absent.conllu"
dev = "absent.conllu"
[[tasks]]
name = "names"
config = "tags"
train = "absent.bio"
dev = "absent.bio"
"""

OF_EACH = """
vocabulary = "own"
budget.seconds = 60
[[models]]
path = "each"
[[models]]
name = "own words,"
config = "adapt"
init = "each"
[[models]]
name = "new words,"
config = "adapt"
init = "each"
set = { "vocabulary.size" = 150 }
[[tasks]]
name = "tags"
config = "tags"
train = "tags.conllu"
dev = "dev.conllu"
label = "upos"
"""


SPLITS = {"train": ["tags.conllu"], "dev": ["dev.conllu"]}


@pytest.fixture
def with_rows(stand_ins):
    write_rows(stand_ins.folder)
    return stand_ins


def write_rows(folder: Path) -> None:
    for name in ("tags.conllu", "dev.conllu"):
        (folder / name).write_text("1\thouse\t_\tNOUN" + "\t_" * 6 + "\n\n")


def suite_of(with_rows, **changes):
    return with_rows.suite(SUITE, models=("one", "two"), rows=SPLITS, **changes)


def test_a_table_of_each_model_stands_for_one_table_a_model(with_rows):
    suite = suite_of(with_rows)
    names = ["scratch", "tagged", "one", "two", "new words, one", "new words, two"]
    assert [model.name for model in suite.models] == names
    recipe = suite.models[-1].recipe
    assert recipe.init == str(with_rows.folder / "two") and recipe.vocabulary.exchange and recipe.vocabulary.size == 500
    assert suite.models[1].recipe.objective.tags == str(with_rows.folder / "tags.conllu")
    assert [task.name for task in suite.tasks] == ["tags"]


def test_models_of_one_last_name_keep_their_paths(with_rows):
    (with_rows.folder / "older").mkdir()
    shutil.copytree(with_rows.folder / "one", with_rows.folder / "older" / "one")
    suite = with_rows.suite(SUITE, models=("one", "older/one"), rows=SPLITS)
    assert [model.name for model in suite.models[2:4]] == ["one", "older/one"]


def test_more_rows_than_tasks_are_refused(with_rows):
    with pytest.raises(UsageError, match="--task.train names 3 files, and there are 2 tasks"):
        with_rows.suite(SUITE, models=("one",), rows={"train": ["a", "b", "c"]})


@pytest.fixture
def with_bits(with_rows, monkeypatch):
    """Pretrained stand-ins have bits per character, and began with a better model."""
    called = with_rows.called
    bits = {"bits_per_character": 1.5, "started_from": {"bits_per_character": 1.25}, "task": "pretraining"}
    ended = {"steps": 25, "planned_steps": 100, "stopped_early": True}

    def call_with_bits(call):
        figures, results = called(call), call.path / "results.json"
        if call.name == "pretrain":
            results.write_text(json.dumps(json.loads(results.read_text()) | bits | ended))
        return figures

    monkeypatch.setattr(with_rows, "called", call_with_bits)


def test_recipes_with_vocabularies_of_their_own_are_compared_by_bits_a_character(with_rows, with_bits):
    summary = with_rows.carried_out(suite_of(with_rows))
    text = {row["model"]: row["score"] for row in summary.runs if row["task"] == "held-out text"}
    assert text == dict.fromkeys(("scratch", "tagged", "new words, one", "new words, two"), -1.5)
    trained = {call.config.vocabulary.size for call in with_rows.given if call.name == "pretrain"}
    assert len(trained) == 2 and not any(call.name == "prepare" for call in with_rows.given)
    assert all(call.config.vocabulary.file is None for call in with_rows.given if call.name == "pretrain")


def test_the_commands_that_use_and_export_the_best_models_are_named(with_rows, with_bits):
    suite = suite_of(with_rows)
    summary = with_rows.carried_out(suite)
    pretrained = {(row["model"], row["seed"]): row["run"] for row in summary.pretrained}
    for task in suite.tuned:
        name = max(summary.cells[task.name], key=lambda name: summary.cells[task.name][name].mean)
        rows = [row for row in summary.runs if (row["model"], row["task"]) == (name, task.name)]
        best = max(rows, key=lambda row: row["score"])
        commands = f"bert-jax predict {best['run']} INPUT OUTPUT"
        if encoder := pretrained.get((name, best["seed"])):
            commands += f"; to export its encoder: bert-jax export {encoder} FOLDER"
        said = f"{task.name}: to use {name}, with its best seed on the dev rows: {commands}"
        assert ("note", said) in list(verdict_sentences(summary))
    assert suite.tuned and any("bert-jax export" in text for _, text in verdict_sentences(summary))


def test_a_recipe_that_is_worse_than_its_initial_model_is_named(with_rows, with_bits):
    watched = SUITE.replace('"vocabulary.size" = 500', '"vocabulary.size" = 500, "evaluation.watch" = true')
    rows = {name: ["dev.conllu"] for name in ("train", "dev")}
    summary = with_rows.run(f"budget.steps = 100\n{watched}", models=("one",), rows=rows)
    said = [text for _, text in verdict_sentences(summary)]
    worse = "pretraining: new words, one: The model is worse than the one that it began with: 1.250 bits per character "
    assert any(text.startswith(worse) for text in said)
    assert "pretraining: new words, one: It ended after 25 of 100 steps." in said
    evaluated = {call.config.init: call.config.evaluation.every for call in with_rows.given if call.name == "pretrain"}
    assert evaluated == {None: 100, str(with_rows.folder / "one"): 25}


def test_the_tokens_of_a_treebank_are_those_of_its_words(tmp_path):
    rows = tmp_path / "tags.conllu"
    rest = "\t_" * 6
    rows.write_text(f"# text = cats sees\n1\tcats\tcat\tNOUN{rest}\n2\tsees\tsee\tVERB{rest}\n\n" * 3)
    task = bert_jax.configs.tags.set({"task.train": str(rows), "task.label": "upos"}).task
    assert tokens_of_rows(task, str(rows)) == 3 * len("cats sees") / 4
    assert tokens_of_rows(task, str(rows), 2) == 2 * len("cats sees") / 4


@pytest.mark.long
def test_a_model_of_several_tables_is_opened_once_and_its_lines_are_printed_once(
    tiny_run, corpus, tmp_path, monkeypatch, capsys
):
    (tmp_path / "small.toml").write_text(OF_EACH)
    write_rows(tmp_path)
    opened, opening = [], TrainedModel.open

    def noted(files):
        opened.append(files.path)
        say("the model has rows that are never predicted")
        return opening(files)

    monkeypatch.setattr(TrainedModel, "open", noted)
    times = TokenTimes(forward=1e-6, pretraining=1e-6, measurement=0.0)
    monkeypatch.setattr(Processes, "call", lambda processes, function, *arguments: times)  # none opens a model here
    words = ["small.toml", "--workdir", "W", "--models", str(tiny_run.path), "--source", f"text:{corpus}", "--dry-run"]
    monkeypatch.chdir(tmp_path)
    assert run(["suite", *words]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert opened == [tiny_run.path]
    assert [line for line in set(lines) if lines.count(line) > 1] == []
    assert "the model has rows that are never predicted" in lines
