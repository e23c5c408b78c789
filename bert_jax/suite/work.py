"""Does the runs of a suite that are missing: commands of bert-jax as processes that share the cores."""

import fcntl
import hashlib
import itertools
import json
import multiprocessing
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.config.settings import Settings
from bert_jax.run.results import read_results
from bert_jax.suite import measuring
from bert_jax.suite.suite_file import SuiteModel, SuitePlan, SuiteTask, flag_words, setting_text
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.files import open_lock, remove_directory, write_json
from bert_jax.system.json_file import JsonObject, read_object
from bert_jax.system.progress import duration, say
from bert_jax.system.workers import in_own_process

HELD_OUT = "held-out tokens"
"""Name of the task on which recipes are measured."""
AND = " and "
"""Between the names of metrics whose mean is a score."""
_ENTRY = (
    "from bert_jax.system.workers import die_with_parent; die_with_parent(); from bert_jax.cli.main import main; main()"
)
"""Program of a command that is killed when the suite is."""
_NOT_IN_NAME = re.compile(r"[^\w.=-]+")
_LONGEST_NAME = 80


class Job(NamedTuple):
    """One run of a suite: a model measured on a task."""

    model: str
    task: str
    setting: dict[str, Any]
    seed: int
    path: Path
    """The directory of a fine-tuning, or the JSON file of what was measured."""
    work: Callable[[], None]
    """Does it. Raises UsageError for wrong use, RunError for a run that failed."""
    needs: "Job | None" = None
    """The pretraining of its model."""


class SuiteWork:
    """The runs of a suite below a directory.

    What is finished is told by the files there alone: results.json of a run, or the JSON that this class wrote. The
    name of each has a hash of all that it depends on, so other settings of the file give other runs.
    """

    def __init__(self, suite: SuitePlan, workdir: Path, at_once: int):
        """Raises UsageError if `at_once` runs can't share the cores."""
        self.suite, self.workdir, self.at_once = suite, workdir, at_once
        self.failures: list[str] = []
        self.shares = _shares(at_once)
        self._running: set[subprocess.Popen[str]] = set()
        self._lock, self._ending = threading.Lock(), False
        self._vocabulary: Path | None = None

    def run(self, after_each: Callable[[], None]) -> None:
        """Does what is missing, recipes first; calls `after_each` after each run.

        A run that fails is noted in `failures`, and the others go on. Raises UsageError for wrong use and where another
        suite is at work in the directory, and whatever interrupts: the processes are ended then, and keep their
        checkpoints.
        """
        self.workdir.mkdir(parents=True, exist_ok=True)
        with open_lock(self.workdir / ".lock") as lock, self._pool() as pool:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self.suite.recipes:
                    pool.submit(self._prepare_recipes).result()
                for stage in (self.pretrainings, self.measurements, self.row_measurements):
                    jobs = [job for job in stage() if not done(job) and (not job.needs or done(job.needs))]
                    for future in wait([pool.submit(self._do, job, after_each) for job in jobs], None, FIRST_EXCEPTION)[
                        0
                    ]:
                        future.result()
            except BlockingIOError:
                raise UsageError(f"another suite is at work in {self.workdir}; wait, or choose another") from None
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._end()
                raise

    def pretrainings(self) -> list[Job]:
        """The recipes with their seeds."""
        return [self._pretraining(model, seed) for seed in self.suite.tables.seeds for model in self._recipes()]

    def measurements(self) -> list[Job]:
        """Every model on every task, with each setting and seed; of recipes the held-out tokens, too."""
        seeds, jobs = self.suite.tables.seeds, list[Job]()
        for seed, model in itertools.product(seeds, self.suite.models):
            path = self.model_path(model, seed)
            if model.recipe:
                jobs.append(self._held_out(model, seed, path))
            for task in self.suite.tasks:
                if task.kind == "finetune":
                    jobs += [self.tuning(model, task, setting, seed) for setting in self.suite.settings]
                elif model.recipe or seed == seeds[0]:
                    jobs.append(self._scored(model, task, seed, path))
        return jobs

    def row_measurements(self) -> list[Job]:
        """The answers to the reported rows by the runs of each task's best setting, and what the rows share with a
        model's text."""
        jobs = [self.contamination(model) for model in self.suite.models if self.suite.tasks]
        for model, task in itertools.product(self.suite.models, self.suite.tasks):
            if task.config and (setting := self.best_setting(model, task)) is not None:
                jobs += [self.answers(model, task, setting, seed) for seed in self.suite.tables.seeds]
                for other, seed in itertools.product(self.suite.settings, self.suite.tables.seeds):
                    if other != setting:
                        remove_directory(self.tuning(model, task, other, seed).path / "checkpoints")
        return jobs

    def best_setting(self, model: SuiteModel, task: SuiteTask) -> dict[str, Any] | None:
        """The setting with the best mean score on the dev rows over all seeds; None before all are finished."""
        means = list[float]()
        for setting in self.suite.settings:
            jobs = [self.tuning(model, task, setting, seed) for seed in self.suite.tables.seeds]
            if not all(map(done, jobs)):
                return None
            means.append(sum(score(task, metrics_of(job))[1] for job in jobs) / len(jobs))
        return self.suite.settings[means.index(max(means))]

    def model_path(self, model: SuiteModel, seed: int) -> Path:
        """The trained model, or the run of a recipe."""
        return Path(model.path) if model.path else self._pretraining(model, seed).path

    def tuning(self, model: SuiteModel, task: SuiteTask, setting: dict[str, Any], seed: int) -> Job:
        """A fine-tuning."""
        path = self.model_path(model, seed)
        words = (*task.words, "--init", path, "--seed", seed, *flag_words(setting))
        shaped_by = [_shape(task.config), setting, path, seed]
        run = self._place("runs", f"{model.name}-{task.name}-{setting_text(setting)}-{seed}", shaped_by)

        def work() -> None:
            self._command("finetune", *words, "--workdir", run)

        return Job(model.name, task.name, setting, seed, run, work, self._needs(model, seed))

    def answers(self, model: SuiteModel, task: SuiteTask, setting: dict[str, Any], seed: int) -> Job:
        """The answers of a fine-tuned model to the reported rows."""
        tuned, rows = self.tuning(model, task, setting, seed), task.measured_rows(self.suite.tables.report)
        path = self._place("answers", tuned.path.name, [str(tuned.path), rows]).with_suffix(".json")

        def work() -> None:
            if not (tuned.path / "checkpoints").is_dir():  # deleted while another setting was the best
                tuned.work()
            self._write(path, in_own_process(measuring.row_answers, tuned.path, rows))

        return Job(model.name, task.name, setting, seed, path, work)

    def contamination(self, model: SuiteModel) -> Job:
        """Looks up the rows of all tasks in the model's own text."""
        seed = self.suite.tables.seeds[0]
        run = self.model_path(model, seed)
        rows = [(*task.places, task.config and _shape(task.config), task.test) for task in self.suite.tasks]
        path = self._place("contamination", model.name, [run, *rows]).with_suffix(".json")

        def work() -> None:
            self._write(path, in_own_process(measuring.rows_in_text, run, self.suite.tasks))

        return Job(model.name, "rows in its text", {}, seed, path, work, self._needs(model, seed))

    def _held_out(self, model: SuiteModel, seed: int, run: Path) -> Job:
        measured, units = self._measured_as, self.suite.tables.units
        path = self._place("held-out", f"{model.name}-{seed}", [str(run), _shape(measured.recipe), *units]).with_suffix(
            ".json"
        )

        def work() -> None:
            sequences = self._prepared(measured, self.suite.tables.seeds[0], first=True)
            self._write(path, in_own_process(measuring.held_out_figures, run, sequences, units))

        return Job(model.name, HELD_OUT, {}, seed, path, work, self._needs(model, seed))

    def _scored(self, model: SuiteModel, task: SuiteTask, seed: int, model_path: Path) -> Job:
        command = {"pairs": ["score", model_path, "--pairs", *task.places, "--json"]}.get(task.kind) or [
            *("evaluate", model_path, "--data", f"beir:{task.places[0]}", "--json")
        ]
        path = self._place("scores", f"{model.name}-{task.name}-{seed}", command).with_suffix(".json")

        def work() -> None:
            self._write(path, json.loads(self._command(*command).splitlines()[-1]))

        return Job(model.name, task.name, {}, seed, path, work, self._needs(model, seed))

    def _needs(self, model: SuiteModel, seed: int) -> Job | None:
        return self._pretraining(model, seed) if model.recipe else None

    def _recipes(self) -> list[SuiteModel]:
        return list(self.suite.recipes.values())

    @property
    def _measured_as(self) -> SuiteModel:
        return self.suite.recipes[self.suite.tables.measured_as or next(iter(self.suite.recipes))]

    def _prepare_recipes(self) -> None:
        """Makes the vocabulary of all recipes, measures their steps, and prepares the sequences that runs share."""
        self._vocabulary = (
            self._prepared(self._measured_as, self.suite.tables.seeds[0], first=True) / "tokenizer/vocab.txt"
        )
        self.step_seconds(measure=True)
        for seed, model in itertools.product(self.suite.tables.seeds, self._recipes()):
            if not done(self._pretraining(model, seed)):
                self._prepared(model, seed)

    def step_seconds(self, measure: bool = False) -> dict[str, float]:
        """The seconds of a step of each recipe that was measured. With `measure` those that the budget needs are."""
        path = self.workdir / "step-seconds.json"
        known = read_object(path) if path.exists() else {}
        keys = {model.name: _hash([_shape(model.recipe), self.at_once]) for model in self._recipes()}
        budget = self.suite.tables.budget
        if measure and budget and budget.seconds and (missing := [n for n, key in keys.items() if key not in known]):
            say(f"measuring a step of {', '.join(missing)}")
            found = in_own_process(measuring.step_seconds, {name: self.suite.recipes[name].recipe for name in missing})
            known |= {keys[name]: seconds for name, seconds in found.items()}
            write_json(path, known)
        return {name: known[key] for name, key in keys.items() if key in known}

    def _prepared(self, model: SuiteModel, seed: int, first: bool = False) -> Path:
        """A directory with the tokenizer and sequences of a recipe, made once for all that share them.

        `first`: whether it makes the vocabulary.
        """
        assert model.recipe
        config = model.recipe
        shaped_by = [
            config.data.model_dump(mode="json"),
            config.objective.pair,
            seed,
            first,
            _shape(self._measured_as.recipe),
        ]
        lengths = sorted({phase.length for phase in config.phases})
        directory = self.workdir / "data" / _hash([shaped_by, lengths])
        if not (directory / f"data/length-{lengths[-1]}/prepared.json").exists():
            vocabulary = [] if first else ["--vocabulary.file", self._vocabulary]
            self._command("prepare", *model.words, "--workdir", directory, "--seed", seed, *vocabulary)
        return directory

    def _pretraining(self, model: SuiteModel, seed: int) -> Job:
        tables = self.suite.tables
        budget = tables.budget.model_dump(exclude_none=True) if tables.budget else {}
        timed = self.at_once if "seconds" in budget else None
        recipes = [model, *([self.suite.recipes[model.begin]] if model.begin else []), self._measured_as]
        shaped_by = [[_shape(each.recipe) for each in recipes], budget, timed, seed]
        run = self._place("models", f"{model.name}-{seed}", shaped_by)

        def work() -> None:
            if model.begin is None:
                self._pretrain(model, seed, run, 1.0)
                return
            before = run.with_name(f"{run.name}-first")
            self._pretrain(self.suite.recipes[model.begin], seed, before, 0.5)
            self._pretrain(model, seed, run, 0.5, "--init", before)

        return Job(model.name, "pretraining", {}, seed, run, work)

    def _pretrain(self, model: SuiteModel, seed: int, run: Path, share: float, *start: Any) -> None:
        """Trains one run on a copy of its prepared data, or continues it."""
        if not run.exists():
            unfinished = run.with_name(f"{run.name}-copied")
            shutil.rmtree(unfinished, ignore_errors=True)
            for part in ("tokenizer", "data"):
                shutil.copytree(self._prepared(model, seed) / part, unfinished / part)
            unfinished.rename(run)
        flags = ["--workdir", run, "--seed", seed, "--vocabulary.file", self._vocabulary, *start]
        if planned := self.steps(model):
            assert model.recipe
            phases = model.recipe.phases
            counts = [max(1, round(planned * share * each.steps / model.recipe.steps)) for each in phases]
            flags += ["--evaluation.every", sum(counts), "--checkpoints.every", max(1, sum(counts) // 4)]
            flags += itertools.chain(*((f"--phases.{number}.steps", count) for number, count in enumerate(counts)))
        self._command("pretrain", *model.words, *flags)

    def steps(self, model: SuiteModel) -> float | None:
        """The steps of the budget, for a recipe; None without a budget, or before its step is measured."""
        budget = self.suite.tables.budget
        if budget is None:
            return None
        if budget.steps:
            return budget.steps
        if budget.flops:
            return budget.flops / in_own_process(measuring.step_flops, model.recipe)
        step = self.step_seconds().get(model.name)
        return budget.seconds / step if budget.seconds and step else None

    def _place(self, folder: str, name: str, shaped_by: Iterable[Any]) -> Path:
        plain = _NOT_IN_NAME.sub("-", name)[:_LONGEST_NAME]
        return self.workdir / folder / f"{plain}-{_hash([str(each) for each in shaped_by])}"

    def _do(self, job: Job, after_each: Callable[[], None]) -> None:
        began, what = time.monotonic(), f"{job.model}, {job.task}, {setting_text(job.setting) or 'seed'} {job.seed}"
        try:
            job.work()
        except RunError as error:
            if self._ending:
                return
            self.failures.append(f"{what}: {error}")
            say(f"failed: {what}: {error}")
            return
        with self._lock:
            say(f"{what}: {duration(time.monotonic() - began)}")
            after_each()

    def _pool(self) -> ThreadPoolExecutor:
        """Threads whose processes share this one's cores."""
        shares = queue.SimpleQueue[list[int]]()
        for share in self.shares:
            shares.put(share)
        return ThreadPoolExecutor(self.at_once, initializer=lambda: os.sched_setaffinity(0, shares.get()))

    def _command(self, *arguments: Any) -> str:
        """Runs a command of bert-jax; returns its output. Raises UsageError or RunError, as its exit code says."""
        line = [sys.executable, "-P", "-c", _ENTRY, *map(str, arguments)]
        with self._lock:
            if self._ending:
                raise RunError("the suite ends")
            process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self._running.add(process)
        printed, stderr = process.communicate()
        self._running.discard(process)
        if process.returncode:
            said = [each.strip() for each in stderr.splitlines() if each.strip()] or ["it said nothing"]
            kind = UsageError if process.returncode == UsageError.exit_code else RunError
            raise kind(
                f"bert-jax {arguments[0]} ended with {process.returncode}: {said[-1].removeprefix('bert-jax: ')}"
            )
        return printed

    def _write(self, path: Path, measured: JsonObject) -> None:
        path.parent.mkdir(exist_ok=True)
        write_json(path, measured)

    def _end(self) -> None:
        """Ends the processes at work, which write their checkpoints first."""
        with self._lock:
            self._ending = True
            for process in self._running:
                process.terminate()
            for worker in multiprocessing.active_children():
                worker.terminate()


def done(job: Job) -> bool:
    """Whether a run is finished."""
    return job.path.is_file() if job.path.suffix == ".json" else (job.path / "results.json").is_file()


def metrics_of(job: Job) -> JsonObject:
    """What a finished run measured, by name. Raises UsageError for a damaged file."""
    try:
        if job.path.suffix == ".json":
            return read_object(job.path)
        results, _ = read_results(job.path / "results.json")
        return results.metrics | {name: getattr(results, name) for name in ("metric", "score", "steps")}
    except (OSError, ValueError) as error:
        raise UsageError(f"{job.path} can't be read ({error}); delete it, and give the same command again") from None


def score(task: SuiteTask, metrics: JsonObject) -> tuple[str, float]:
    """Name and value of a task's score among measurements. Raises UsageError if they lack it."""
    names = task.scores or ((metrics.get("metric") or "accuracy",) if task.config else ())
    names = names or (("accuracy",) if task.kind == "pairs" else ("ndcg@10",))
    if absent := [name for name in names if not isinstance(metrics.get(name), float | int)]:
        there = ", ".join(name for name, value in metrics.items() if isinstance(value, float))
        raise UsageError(f"{task.name} has no {absent[0]}; scores can be {there}")
    return AND.join(names), sum(metrics[name] for name in names) / len(names)


def _shape(config: Settings | None) -> JsonObject:
    """The settings of a config that differ from their defaults, whatever file or flags they come from."""
    return config.model_dump(mode="json", exclude_defaults=True) if config else {}


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=str, sort_keys=True).encode()).hexdigest()[:8]


def _shares(at_once: int) -> list[list[int]]:
    cores = sorted(os.sched_getaffinity(0))
    if not 1 <= at_once <= len(cores):
        raise UsageError(f"--at-once {at_once}: this process may use {len(cores)} cores, so 1 to {len(cores)} runs")
    return [cores[worker::at_once] for worker in range(at_once)]
