"""Pretrains the recipes of a suite on equal terms: one vocabulary, one budget, the same held-out tokens.

Methods that train or measure import what they need themselves, so jobs are named and looked up without JAX.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bert_jax.config.run import RunConfig
from bert_jax.products.suite.job import Job, all_settings, log_of, model_hash, place_below, run_figures, source_hash
from bert_jax.products.suite.processes import Processes
from bert_jax.products.suite.suite import CheckedSuite, SuiteModel
from bert_jax.products.suite.suite_tables import PRETRAINING
from bert_jax.products.suite.tasks import HeldOutText, HeldOutTokens
from bert_jax.system.bucket import place_of
from bert_jax.system.content import content_hash
from bert_jax.system.json_file import JsonObject
from bert_jax.system.progress import say
from bert_jax.text.tokenizer import saved_vocabulary


class RecipeWork:
    """The pretrainings of a suite below a directory."""

    def __init__(self, suite: CheckedSuite, workdir: Path, processes: Processes):
        self._suite, self._workdir, self._processes = suite, workdir, processes
        self._recipes = suite.recipes
        self.finished: dict[Path, JsonObject] = {}
        """`Job.finished` of all jobs."""
        self._inputs_hash = cache(self._hash_of_inputs)

    def prepare(self) -> None:
        """Makes the vocabulary of all recipes and the sequences that all are measured on, and measures their steps."""
        if not self._recipes:
            return
        from bert_jax.products.suite import measuring

        if self._shares_vocabulary and not self._preparation.done:
            self._preparation.finish()
        budget = self._suite.tables.budget
        if budget and budget.seconds and (missing := [job.model for job in self._steps_measured() if not job.done]):
            say(f"measuring a step of {', '.join(missing)}")
            configs = {name: self.config(self._recipes[name]) for name in missing}
            for job in self._steps_measured(self._processes.call(measuring.step_seconds, configs)):
                if job.model in missing:
                    job.finish()

    def config(self, model: SuiteModel) -> RunConfig:
        assert model.recipe and self._first.recipe, f"{model.name} is a recipe"
        return (
            model.recipe.replace(vocabulary=self._first.recipe.vocabulary) if self._shares_vocabulary else model.recipe
        )

    @property
    def _shares_vocabulary(self) -> bool:
        """Whether all recipes have one vocabulary."""
        return self._suite.tables.vocabulary == "shared"

    def pretraining(self, model: SuiteModel, seed: int) -> Job:
        budget = self._suite.tables.budget
        at_once = self._processes.at_once if budget and budget.seconds else None
        shared = self._first.name if self._shares_vocabulary else None
        names = filter(None, (model.name, model.begin, shared))
        used = [(all_settings(self._recipes[name].recipe), self._inputs_hash(name)) for name in names]
        seconds = [self.step_seconds().get(name) for name in filter(None, (model.name, model.begin))]
        run = place_below(
            self._workdir, "models", f"{model.name}-{seed}", used, all_settings(budget), at_once, seconds, seed
        )

        def work() -> JsonObject:
            from bert_jax.products.suite.measuring import plateau

            trained = list[tuple[Path, RunConfig]]()
            if model.begin:
                before = run.with_name(f"{run.name}-first")
                trained += [(before, self._train(self._recipes[model.begin], seed, before, 0.5))]
                trained += [(run, self._train(model, seed, run, 0.5, before))]
            else:
                trained += [(run, self._train(model, seed, run, 1.0))]
            sequences, left = 0, None
            for path, config in trained:
                if left is None and (step := plateau(path)):
                    left = sequences + _sequences_seen(config, step)
                sequences += _sequences_seen(config, run_figures(path)["steps"])
            return run_figures(run) | {"sequences": sequences, "plateau": left}

        return Job(model.name, PRETRAINING, {}, seed, run, work, self.finished)

    def held_out(self, model: SuiteModel, task: HeldOutTokens, seed: int) -> Job:
        from bert_jax.products.suite.measuring import held_out_figures

        needs, name = self.pretraining(model, seed), f"{model.name}-{task.units}-{seed}"
        shaped_by = (str(needs.path), needs.measured, str(self._shared_directory), task.units)
        path = place_below(self._workdir, "held-out", name, *shaped_by, ending=".json")

        def measure() -> JsonObject:
            figures = self._processes.call(held_out_figures, needs.path, self._shared_directory, task.units)
            return task.scored(figures)

        return Job(model.name, task.name, {}, seed, path, measure, self.finished, needs)

    def held_out_text(self, model: SuiteModel, task: HeldOutText, seed: int) -> Job:
        from bert_jax.products.suite.measuring import held_out_figures

        needs, units = self.pretraining(model, seed), self.config(model).objective.units
        shaped_by = str(needs.path), needs.measured
        path = place_below(self._workdir, "held-out", f"{model.name}-text-{seed}", *shaped_by, ending=".json")

        def measure() -> JsonObject:
            # All sequences: a part of those of two vocabularies would be different text.
            figures = self._processes.call(held_out_figures, needs.path, needs.path, units, True)
            return task.scored(task.figures(figures))

        return Job(model.name, task.name, {}, seed, path, measure, self.finished, needs)

    def step_seconds(self) -> dict[str, float]:
        return {job.model: job.measured["seconds"] for job in self._steps_measured() if job.done}

    def steps(self, model: SuiteModel) -> float | None:
        """The steps that the budget gives a recipe; None without a budget, or before its step is measured."""
        budget = self._suite.tables.budget
        if budget and budget.seconds:
            step = self.step_seconds().get(model.name)
            return budget.seconds / step if step else None
        if budget and budget.flops:
            from bert_jax.products.suite.measuring import step_flops

            return budget.flops / self._processes.call(step_flops, self.config(model))
        return budget.steps if budget else None

    def _steps_measured(self, seconds: Mapping[str, float] = MappingProxyType({})) -> list[Job]:
        """The job that keeps the time of each recipe's step. `seconds`: newly measured times by recipe, which the jobs
        then write."""
        jobs = list[Job]()
        for name, model in self._recipes.items():
            shaped_by = all_settings(self.config(model)), self._processes.at_once
            path = place_below(self._workdir, "steps", name, *shaped_by, ending=".json")
            jobs.append(Job(name, "a step", {}, 0, path, {"seconds": seconds.get(name)}.copy, self.finished))
        return jobs

    @property
    def _preparation(self) -> Job:
        """The preparation of the first recipe's sequences and of the vocabulary of all."""
        seed, path = self._suite.tables.seeds[0], self._shared_directory

        def work() -> JsonObject:
            from bert_jax.products.suite.measuring import prepare_sequences

            config = self.config(self._first).replace(seed=seed)
            self._processes.call(prepare_sequences, config, path, log=log_of(path))
            return {}

        return Job(self._first.name, "preparation", {}, seed, path, work, self.finished, parts=("tokenizer", "data"))

    def _hash_of_inputs(self, name: str) -> str:
        """Content hash of the text, vocabulary, lexicons and initial model that a recipe's settings name."""
        config = self._recipes[name].recipe
        assert config, f"{name} is a recipe"
        files = [place_of(file) for file in (config.objective.tags, *config.data.lexicons.values()) if file]
        if config.vocabulary.file:
            from bert_jax.pretraining.vocabulary import vocabulary_files  # imports JAX

            files += vocabulary_files(place_of(config.vocabulary.file))
        text = [source_hash(source, is_text=True) for source in config.data.source]
        teacher = [model_hash(place_of(config.teacher))] if config.teacher else []
        return content_hash(text, config.init and model_hash(place_of(config.init)), *teacher, *files)

    @property
    def _first(self) -> SuiteModel:
        return next(iter(self._recipes.values()))

    @property
    def _shared_directory(self) -> Path:
        """The directory of the first recipe's prepared sequences and of the vocabulary of all."""
        name = self._first.name
        shaped_by = all_settings(self._first.recipe), self._inputs_hash(name), self._suite.tables.seeds[0]
        return place_below(self._workdir, "data", name, *shaped_by)

    def _train(self, model: SuiteModel, seed: int, run: Path, share: float, begin: Path | None = None) -> RunConfig:
        """Trains a recipe for `share` of the budget, from the model of the run `begin`. Returns its settings."""
        from bert_jax.pretraining.pretrain import pretrain

        config = self.config(model)
        values: dict[str, Any] = {"seed": seed}
        if self._shares_vocabulary:
            values |= {"vocabulary.file": str(saved_vocabulary(self._shared_directory / "tokenizer"))}
        values |= {"init": str(begin)} if begin else {}
        if planned := self.steps(model):
            counts = [max(1, round(planned * share * each.steps / config.steps)) for each in config.phases]
            quarter = max(1, sum(counts) // 4)
            # A run that is watched can end at any evaluation. The others are measured at the end alone.
            evaluated = quarter if (begin or config.init) and config.evaluation.watch else sum(counts)
            values |= {"evaluation.every": evaluated, "checkpoints.every": quarter}
            values |= {f"phases.{number}.steps": count for number, count in enumerate(counts)}
        config = config.set(values)
        self._processes.call(pretrain, config, run, log=log_of(run))
        return config


def _sequences_seen(config: RunConfig, steps: int) -> int:
    """The number of sequences that a training has seen after `steps` steps."""
    begun = ((phase, steps - config.steps_of(number).start) for number, phase in enumerate(config.phases))
    return sum(phase.batch_size * min(max(done, 0), phase.steps) for phase, done in begun)
