"""Does the runs of a suite that are missing.

Methods that train or measure import what they need themselves, so a suite is checked without JAX.
"""

import contextlib
import fcntl
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import cache, partial
from pathlib import Path
from typing import Any

from bert_jax.config.run import RunConfig
from bert_jax.products.suite.job import Job, all_settings, log_of, model_hash, place_below, run_figures, source_hash
from bert_jax.products.suite.processes import Processes
from bert_jax.products.suite.recipes import RecipeWork
from bert_jax.products.suite.suite import CheckedSuite, SuiteModel
from bert_jax.products.suite.suite_tables import Values, faults_of, setting_text
from bert_jax.products.suite.tasks import FineTuning, HeldOutText, HeldOutTokens, SuiteTask, rows_in_text
from bert_jax.records.corpus import open_corpus
from bert_jax.system.bucket import place_of
from bert_jax.system.content import settings_hash
from bert_jax.system.errors import BertJaxError, RunError, UsageError, disk_failure, first_line, quoted
from bert_jax.system.files import open_lock, refuse_links, write_json
from bert_jax.system.json_file import JsonObject, read_object
from bert_jax.system.progress import duration, say
from bert_jax.text.vocabulary import VocabularySizeError

_ORIGIN = "origin.json"
"""File that names the suite of a directory."""


class SuiteWork:
    """The runs of a suite below a directory.

    A job is finished if its sealed file says so and its files are unchanged. A job's name has a hash of all that it
    depends on, so other settings, rows, texts or models give other jobs.
    """

    def __init__(self, suite: CheckedSuite, workdir: Path, at_once: int):
        """Raises UsageError if `at_once` runs can't share the cores."""
        self.suite, self.workdir, self.processes = suite, workdir, Processes(at_once)
        self.recipes = RecipeWork(suite, workdir, self.processes)
        self.failures: list[str] = []
        self._lock, self._hash, self._model_hash = threading.Lock(), cache(source_hash), cache(model_hash)

    def check(self) -> None:
        """Raises UsageError if the directory holds anything but this suite, if rows can't be read, or if text of a
        recipe isn't there. Opens no model, and writes nothing."""
        children = [*self.workdir.glob("[!.]*")]
        there = [child.name for child in children]
        if there and not {_ORIGIN, "suite.json"} & {*there}:
            raise UsageError(
                f"--workdir {self.workdir} is no suite's folder and not empty: it holds {quoted(min(there))}; choose "
                "another --workdir, which is created if it is missing"
            )
        other = self.suite.file
        if _ORIGIN in there:
            try:
                other = Path(read_object(self.workdir / _ORIGIN)["suite"])
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise UsageError(f"{self.workdir / _ORIGIN} is damaged ({error}); delete it to go on here") from None
        if other.stem != self.suite.file.stem or other.exists() and not other.samefile(self.suite.file):
            raise UsageError(
                f"--workdir {self.workdir} is the folder of another suite, {other}; choose another --workdir"
            )
        refuse_links(*(child for child in children if child.is_dir()))
        with faults_of(self.suite.file):
            for task in self.suite.tasks:
                task.check()
            opening = cache(open_corpus)  # several recipes have one text
            for name, recipe in ((model.name, model.recipe) for model in self.suite.models if model.recipe):
                try:
                    opening(recipe.data)
                    _check_files(recipe)
                except UsageError as error:
                    # Missing text is an error only if a run of the recipe hasn't begun. Runs are looked for only now,
                    # because their names take hashes of texts and models.
                    jobs = (job for job in self.pretrainings() if job.model == name)
                    if not there or not all((job.path / "config.json").exists() for job in jobs):
                        raise UsageError(f"{name}: {error}") from None

    def run(self, after_each: Callable[[], Any]) -> None:
        """Does what is missing, recipes first; calls `after_each` after each run.

        A run that fails is noted in `failures`, and the others go on. Raises UsageError for wrong use, and if another
        process runs a suite in the directory. An exception, such as an interruption, ends the processes, which keep
        their checkpoints.
        """
        self.workdir.mkdir(parents=True, exist_ok=True)
        with open_lock(self.workdir / ".lock") as lock, self.processes.pool() as pool:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                write_json(self.workdir / _ORIGIN, {"suite": str(self.suite.file.resolve())})
                pool.submit(self.recipes.prepare).result()
                for stage in (self.pretrainings, self.measurements, self.row_measurements):
                    self._do_all(pool, stage(), after_each)
                now = SuiteWork(self.suite, self.workdir, self.processes.at_once)
                if [job.path for job in now.measurements()] != [job.path for job in self.measurements()]:
                    raise RunError(
                        "rows, text or models changed while the suite was at work, so its figures rest on different "
                        "contents; give the same command again, which measures again what rests on the old ones"
                    )
            except BlockingIOError:
                raise UsageError(
                    f"another process runs a suite in {self.workdir}; wait until it ends, or choose another --workdir"
                ) from None
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.processes.end()
                raise

    def pretrainings(self) -> list[Job]:
        runs = itertools.product(self.suite.tables.seeds, self.suite.recipes.values())
        return [self.recipes.pretraining(model, seed) for seed, model in runs]

    def measurements(self) -> list[Job]:
        """Every model on every task, with each setting and seed; of recipes the held-out tokens, too."""
        jobs = list[Job]()
        for seed, model in itertools.product(self.suite.tables.seeds, self.suite.models):
            for task in self.suite.measured.values():
                if seed in self.seeds(model, task):
                    jobs += self._jobs(model, task, seed)
        return jobs

    def seeds(self, model: SuiteModel, task: SuiteTask) -> tuple[int, ...]:
        """The seeds with which a model is measured on a task; none where the model has no score."""
        if (model.name, task.name) in self.suite.lacking:
            return ()
        return task.seeds(model.recipe, self.suite.tables.seeds)

    def _jobs(self, model: SuiteModel, task: SuiteTask, seed: int) -> list[Job]:
        """A fine-tuning with each combination of the grid, or one measurement."""
        if isinstance(task, FineTuning):
            return [self.tuning(model, task, setting, seed) for setting in self.suite.settings]
        if isinstance(task, HeldOutTokens):
            return [self.recipes.held_out(model, task, seed)]
        if isinstance(task, HeldOutText):
            return [self.recipes.held_out_text(model, task, seed)]
        return [self.measurement(model, task, seed)]

    def row_measurements(self) -> list[Job]:
        """The answers of each task's best setting to the reported rows, and the look-up of rows in each model's text.

        Deletes the checkpoints of the other settings.
        """
        for model, task in itertools.product(self.suite.models, self.suite.tuned):
            if (best := self.best_setting(model, task)) is None:
                continue
            others = [setting for setting in self.suite.settings if setting != best]
            for setting, seed in itertools.product(others, self.suite.tables.seeds):
                self.tuning(model, task, setting, seed).delete_checkpoints()
        return [self.contamination(model) for model in self.suite.models if self.suite.tasks] + self.row_answers()

    def row_answers(self) -> list[Job]:
        """The answers of each task's best setting to the reported rows, where the best setting is known."""
        jobs = list[Job]()
        for model, task in itertools.product(self.suite.models, self.suite.tuned):
            if (best := self.best_setting(model, task)) is not None:
                jobs += [self.answers(model, task, best, seed) for seed in self.suite.tables.seeds]
        return jobs

    def best_setting(self, model: SuiteModel, task: FineTuning) -> Values | None:
        """The setting with the best mean score on the dev rows over all seeds; None before all are finished."""
        means = list[float]()
        for setting in self.suite.settings:
            jobs = [self.tuning(model, task, setting, seed) for seed in self.suite.tables.seeds]
            if not all(job.done for job in jobs):
                return None
            means.append(sum(task.score(job.measured)[1] for job in jobs) / len(jobs))
        return self.suite.settings[means.index(max(means))]

    def tuning(self, model: SuiteModel, task: FineTuning, setting: Values, seed: int) -> Job:
        path, needs, content = self._model(model, seed)
        name = f"{model.name}-{task.name}-{setting_text(setting)}-{seed}"
        shaped_by = all_settings(task.config), setting, str(path), content, seed, task.hashes(self._hash)
        run = place_below(self.workdir, "runs", name, *shaped_by)

        def work() -> JsonObject:
            from bert_jax.finetuning.finetune import finetune

            config = task.trained(setting).replace(seed=seed, init=str(path))
            self.processes.call(finetune, config, run, log=log_of(run))
            return task.scored(run_figures(run))

        return Job(model.name, task.name, setting, seed, run, work, self.recipes.finished, needs)

    def answers(self, model: SuiteModel, task: FineTuning, setting: Values, seed: int) -> Job:
        tuned, rows = self.tuning(model, task, setting, seed), task.measured_rows(self.suite.tables.report)
        if rows is None:  # pairs that only the training holds out
            return tuned
        shaped_by = str(tuned.path), tuned.measured, rows, self._hash(str(rows))
        path = self._file("answers", tuned.path.name, *shaped_by)

        def measure() -> JsonObject:
            from bert_jax.products.suite.measuring import row_answers

            if not (tuned.path / "checkpoints").is_dir():  # deleted while another setting was the best
                tuned.finish()
            return task.scored(self.processes.call(row_answers, tuned.path, rows))

        return Job(model.name, task.name, setting, seed, path, measure, self.recipes.finished, tuned)

    def contamination(self, model: SuiteModel) -> Job:
        seed = self.suite.tables.seeds[0]
        run, needs, content = self._model(model, seed)
        rows = [(task.identity, task.hashes(self._hash)) for task in self.suite.tasks]
        text = None if needs else self._text_hash(run)
        path = self._file("contamination", model.name, str(run), content, text, rows)
        measure = partial(self.processes.call, rows_in_text, run, self.suite.tasks)
        return Job(model.name, "rows in its text", {}, seed, path, measure, self.recipes.finished, needs)

    def measurement(self, model: SuiteModel, task: SuiteTask, seed: int) -> Job:
        run, needs, content = self._model(model, seed)
        shaped_by = str(run), task.identity, content, task.hashes(self._hash)
        path = self._file("scores", f"{model.name}-{task.name}-{seed}", *shaped_by)

        def measure() -> JsonObject:
            return task.scored(self.processes.call(task.measure, run))

        return Job(model.name, task.name, {}, seed, path, measure, self.recipes.finished, needs)

    def _file(self, folder: str, name: str, *shaped_by: Any) -> Path:
        return place_below(self.workdir, folder, name, *shaped_by, ending=".json")

    def _text_hash(self, run: Path) -> list[str]:
        from bert_jax.products.suite.contamination import pretrainings

        with contextlib.suppress(UsageError, RunError):  # it is another program's
            return [self._model_hash(each.path / "data") for _, each in pretrainings(run)]
        return []

    def _model(self, model: SuiteModel, seed: int) -> tuple[Path, Job | None, str]:
        """The path of a trained model, or the run of a recipe with the job that trains it; and a hash of the model, or
        of the figures of its training."""
        if model.path:
            return Path(model.path), None, self._model_hash(place_of(model.path))
        training = self.recipes.pretraining(model, seed)
        return training.path, training, settings_hash(training.measured)

    def _do_all(self, pool: ThreadPoolExecutor, jobs: Sequence[Job], after_each: Callable[[], Any]) -> None:
        missing = [job for job in jobs if not job.done and (job.needs is None or job.needs.done)]
        futures = [pool.submit(self._do, job, after_each) for job in missing]
        for future in wait(futures, return_when=FIRST_EXCEPTION).done:
            future.result()

    def _do(self, job: Job, after_each: Callable[[], Any]) -> None:
        began, what = time.monotonic(), ", ".join(filter(None, [job.model, job.task, setting_text(job.setting)]))
        try:
            job.finish()
        except Exception as error:  # also what a library raises: the others go on
            # Whether a text gives a vocabulary of some size is known only after its training.
            if isinstance(error, UsageError) and not isinstance(error, VocabularySizeError):
                raise UsageError(f"{what}, seed {job.seed}: {error}") from None
            if not self.processes.ending:
                known = error if isinstance(error, BertJaxError) else disk_failure(error)
                reason = known or f"{type(error).__name__}: {first_line(error)}"
                self.failures.append(f"{what}, seed {job.seed}: {reason}")
                say(f"failed: {self.failures[-1]}")
            return
        with self._lock:
            say(f"{what}, seed {job.seed}: {duration(time.monotonic() - began)}")
            after_each()


def _check_files(recipe: RunConfig) -> None:
    """Raises UsageError if a file that a recipe names isn't there."""
    for file in (recipe.vocabulary.file, *recipe.data.lexicons.values()):
        if file and not place_of(file).exists():
            raise UsageError(f"there is nothing at {file}, which a recipe names; put the file there")
