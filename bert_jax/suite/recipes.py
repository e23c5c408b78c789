"""Pretrains the recipes of a suite on equal terms: one vocabulary, one budget, the same held-out tokens."""

import itertools
import shutil
from pathlib import Path
from typing import Any

from bert_jax.config.run import RunConfig
from bert_jax.suite import measuring
from bert_jax.suite.commands import Commands
from bert_jax.suite.job import Job, changed_settings, hash_of, place_below
from bert_jax.suite.suite_tables import SuiteModel, SuitePlan
from bert_jax.system.files import write_json
from bert_jax.system.json_file import read_object
from bert_jax.system.progress import say
from bert_jax.system.workers import in_own_process

PRETRAINING, HELD_OUT = "pretraining", "held-out tokens"
"""Names, beside those of tasks, of a recipe's training and of what all recipes are measured on."""


class RecipeWork:
    """The pretrainings of a suite below a directory."""

    def __init__(self, suite: SuitePlan, workdir: Path, commands: Commands):
        self._suite, self._workdir, self._commands = suite, workdir, commands
        self._recipes = suite.recipes
        self._vocabulary: Path | None = None

    def prepare(self) -> None:
        """Makes the vocabulary of all recipes, measures their steps, and prepares the sequences that runs share."""
        if self._recipes:
            self._vocabulary = self._measured_sequences() / "tokenizer/vocab.txt"
            self.step_seconds(measure=True)
        for seed, model in itertools.product(self._suite.tables.seeds, self._recipes.values()):
            if not self.pretraining(model, seed).done:
                self._prepared(model, seed)

    def pretraining(self, model: SuiteModel, seed: int) -> Job:
        """The training of a recipe and, before it, of the one that it begins with."""
        budget = self._suite.tables.budget
        cores = self._commands.at_once if budget and budget.seconds else None
        used = [each and changed_settings(each.recipe) for each in (model, self._begun(model), self._measured_as)]
        run = place_below(self._workdir, "models", f"{model.name}-{seed}", used, changed_settings(budget), cores, seed)

        def work() -> None:
            begun = self._begun(model)
            if begun:
                before = run.with_name(f"{run.name}-first")
                self._train(begun, seed, before, 0.5)
                self._train(model, seed, run, 0.5, "--init", before)
            else:
                self._train(model, seed, run, 1.0)

        return Job(model.name, PRETRAINING, {}, seed, run, work)

    def held_out(self, model: SuiteModel, seed: int) -> Job:
        """A recipe's accuracy on the held-out sequences that all are measured on."""
        needs, units = self.pretraining(model, seed), self._suite.tables.units
        shaped_by = (str(needs.path), changed_settings(self._measured_as.recipe), units)
        path = place_below(self._workdir, "held-out", f"{model.name}-{seed}", *shaped_by, ending=".json")

        def work() -> None:
            figures = in_own_process(measuring.held_out_figures, needs.path, self._measured_sequences(), units)
            path.parent.mkdir(exist_ok=True)
            write_json(path, figures)

        return Job(model.name, HELD_OUT, {}, seed, path, work, needs)

    def step_seconds(self, measure: bool = False) -> dict[str, float]:
        """The seconds of a step of each recipe that was measured. With `measure` those that the budget needs are."""
        path, budget = self._workdir / "step-seconds.json", self._suite.tables.budget
        known = read_object(path) if path.exists() else {}
        cores = self._commands.at_once
        keys = {name: hash_of([changed_settings(model.recipe), cores]) for name, model in self._recipes.items()}
        missing = {name: self._config(self._recipes[name]) for name, key in keys.items() if key not in known}
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
            return budget.flops / in_own_process(measuring.step_flops, model.recipe)
        return budget.steps if budget else None

    @property
    def _measured_as(self) -> SuiteModel:
        return self._recipes[self._suite.tables.measured_as or next(iter(self._recipes))]

    def _begun(self, model: SuiteModel) -> SuiteModel | None:
        return self._recipes[model.begin] if model.begin else None

    def _config(self, model: SuiteModel) -> RunConfig:
        assert model.recipe, f"{model.name} is a recipe"
        return model.recipe

    def _measured_sequences(self) -> Path:
        """The prepared sequences of the recipe that all are measured as, with the vocabulary of all."""
        return self._prepared(self._measured_as, self._suite.tables.seeds[0], makes_vocabulary=True)

    def _prepared(self, model: SuiteModel, seed: int, makes_vocabulary: bool = False) -> Path:
        """A directory with the tokenizer and sequences of a recipe, made once for all that share them."""
        config = self._config(model)
        lengths = sorted({phase.length for phase in config.phases})
        shaped_by = [changed_settings(config.data), config.objective.pair, lengths, seed, makes_vocabulary]
        directory = place_below(self._workdir, "data", "", shaped_by, changed_settings(self._measured_as.recipe))
        if not (directory / f"data/length-{lengths[-1]}/prepared.json").exists():
            vocabulary = [] if makes_vocabulary else ["--vocabulary.file", self._vocabulary]
            self._commands.run("prepare", *model.words, "--workdir", directory, "--seed", seed, *vocabulary)
        return directory

    def _train(self, model: SuiteModel, seed: int, run: Path, share: float, *start: Any) -> None:
        """Trains one run on a copy of its prepared data, with a share of the budget, or continues it."""
        if not run.exists():
            unfinished = run.with_name(f"{run.name}-copied")
            shutil.rmtree(unfinished, ignore_errors=True)
            for part in ("tokenizer", "data"):
                shutil.copytree(self._prepared(model, seed) / part, unfinished / part)
            unfinished.rename(run)
        flags = ["--workdir", run, "--seed", seed, "--vocabulary.file", self._vocabulary, *start]
        if planned := self.steps(model):
            config = self._config(model)
            counts = [max(1, round(planned * share * each.steps / config.steps)) for each in config.phases]
            flags += ["--evaluation.every", sum(counts), "--checkpoints.every", max(1, sum(counts) // 4)]
            flags += itertools.chain(*((f"--phases.{number}.steps", count) for number, count in enumerate(counts)))
        self._commands.run("pretrain", *model.words, *flags)
