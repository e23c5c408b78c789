"""Pretrains the recipes of a suite on equal terms: one vocabulary, one budget, the same held-out tokens."""

import itertools
from functools import partial
from pathlib import Path
from typing import Any

from bert_jax.config.run import RunConfig
from bert_jax.suite import measuring
from bert_jax.suite.commands import Commands
from bert_jax.suite.job import Job, changed_settings, hash_of, place_below
from bert_jax.suite.suite_tables import SuiteModel, SuitePlan, SuiteTask, flag_words
from bert_jax.system.files import write_json
from bert_jax.system.json_file import read_object
from bert_jax.system.progress import say
from bert_jax.system.workers import in_own_process
from bert_jax.text.tokenizer import saved_vocabulary

PRETRAINING = "pretraining"
"""Name under which a recipe's training is listed among the tasks."""


class RecipeWork:
    """The pretrainings of a suite below a directory."""

    def __init__(self, suite: SuitePlan, workdir: Path, commands: Commands):
        self._suite, self._workdir, self._commands = suite, workdir, commands
        self._recipes = suite.recipes

    def prepare(self) -> None:
        """Makes the vocabulary of all recipes and the sequences that all are measured on, and measures their steps."""
        if not self._recipes:
            return
        lengths = {phase.length for phase in self.config(self._first).phases}
        if not all((self._sequences / f"data/length-{length}/prepared.json").exists() for length in lengths):
            seed = self._suite.tables.seeds[0]
            self._commands.run("prepare", *self._first.words, "--workdir", self._sequences, "--seed", seed)
        self.step_seconds(measure=True)

    def config(self, model: SuiteModel) -> RunConfig:
        """The settings of a recipe, with the vocabulary of all."""
        assert model.recipe and self._first.recipe, f"{model.name} is a recipe"
        return model.recipe.replace(vocabulary=self._first.recipe.vocabulary)

    def pretraining(self, model: SuiteModel, seed: int) -> Job:
        """The training of a recipe and, before it, of the one that it begins with."""
        budget = self._suite.tables.budget
        at_once = self._commands.at_once if budget and budget.seconds else None
        used = [each and changed_settings(each.recipe) for each in (model, self._begun(model), self._first)]
        run = place_below(
            self._workdir, "models", f"{model.name}-{seed}", used, changed_settings(budget), at_once, seed
        )

        def work() -> None:
            begun = self._begun(model)
            if begun:
                before = run.with_name(f"{run.name}-first")
                self._train(begun, seed, before, 0.5)
                self._train(model, seed, run, 0.5, "--init", before)
            else:
                self._train(model, seed, run, 1.0)

        return Job(model.name, PRETRAINING, {}, seed, run, work)

    def held_out(self, model: SuiteModel, task: SuiteTask, seed: int) -> Job:
        """A recipe's accuracy on the held-out sequences that all are measured on."""
        needs, name = self.pretraining(model, seed), f"{model.name}-{task.units}-{seed}"
        shaped_by = (str(needs.path), str(self._sequences), task.units)
        path = place_below(self._workdir, "held-out", name, *shaped_by, ending=".json")
        measure = partial(in_own_process, measuring.held_out_figures, needs.path, self._sequences, task.units)
        return Job(model.name, task.name, {}, seed, path, measure, needs)

    def step_seconds(self, measure: bool = False) -> dict[str, float]:
        """The seconds of a step of each measured recipe. `measure`: measures the missing ones, if the budget is in
        seconds."""
        path, budget = self._workdir / "step-seconds.json", self._suite.tables.budget
        known = read_object(path) if path.exists() else {}
        at_once = self._commands.at_once
        keys = {name: hash_of([changed_settings(self.config(model)), at_once]) for name, model in self._recipes.items()}
        missing = {name: self.config(self._recipes[name]) for name, key in keys.items() if key not in known}
        if measure and budget and budget.seconds and missing:
            say(f"measuring a step of {', '.join(missing)}")
            known |= {keys[name]: each for name, each in in_own_process(measuring.step_seconds, missing).items()}
            write_json(path, known)
        return {name: known[key] for name, key in keys.items() if key in known}

    def steps(self, model: SuiteModel) -> float | None:
        """The steps that the budget gives a recipe; None without a budget, or before its step is measured."""
        budget = self._suite.tables.budget
        if budget and budget.seconds:
            step = self.step_seconds().get(model.name)
            return budget.seconds / step if step else None
        if budget and budget.flops:
            return budget.flops / in_own_process(measuring.step_flops, self.config(model))
        return budget.steps if budget else None

    @property
    def _first(self) -> SuiteModel:
        return next(iter(self._recipes.values()))

    def _begun(self, model: SuiteModel) -> SuiteModel | None:
        return self._recipes[model.begin] if model.begin else None

    @property
    def _sequences(self) -> Path:
        """The directory of the first recipe's prepared sequences and of the vocabulary of all."""
        shaped_by = changed_settings(self._first.recipe), self._suite.tables.seeds[0]
        return place_below(self._workdir, "data", self._first.name, *shaped_by)

    def _train(self, model: SuiteModel, seed: int, run: Path, share: float, *start: Any) -> None:
        """Trains one run with a share of the budget, or continues it."""
        config, file = self.config(model), saved_vocabulary(self._sequences / "tokenizer")
        cleaning = config.vocabulary.model_dump(include={"lowercase", "strip_accents"}, exclude_none=True)
        flags = ["--workdir", run, "--seed", seed, "--vocabulary.file", file, *start]
        flags += flag_words({f"vocabulary.{name}": value for name, value in cleaning.items()})
        if planned := self.steps(model):
            counts = [max(1, round(planned * share * each.steps / config.steps)) for each in config.phases]
            flags += ["--evaluation.every", sum(counts), "--checkpoints.every", max(1, sum(counts) // 4)]
            flags += itertools.chain(*((f"--phases.{number}.steps", count) for number, count in enumerate(counts)))
        self._commands.run("pretrain", *model.words, *flags)
