"""How long the missing work of a suite will take: as finished work like it, or by a measured step of each model."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from bert_jax.products.suite import measuring
from bert_jax.products.suite.job import Job
from bert_jax.products.suite.suite import SuiteModel
from bert_jax.products.suite.suite_tables import PRETRAINING, setting_text
from bert_jax.products.suite.tasks import FineTuning
from bert_jax.products.suite.texts import tokens_of_rows
from bert_jax.products.suite.work import SuiteWork
from bert_jax.system.figures import rows_table
from bert_jax.system.machine import accelerated
from bert_jax.system.progress import output, print_line, say
from bert_jax.training.estimate import Estimate

_BACKWARD = 2
"""Cost of a token's backward pass, in forward passes."""
_MEASURED = "a measured step"


class MissingRun(Estimate):
    """A run that a suite still has to do."""

    model: str
    setting: str
    seed: int


def print_estimate(work: SuiteWork) -> None:
    """Prints the missing runs of a suite with their estimated seconds, as `--dry-run` shows them."""
    jobs = [(job, job.task) for job in (*work.pretrainings(), *work.measurements())]
    for model in work.suite.models:
        jobs += [(job, job.task) for job in [work.contamination(model)] if work.suite.tasks]
        for task in work.suite.tuned:
            setting = work.best_setting(model, task) or work.suite.settings[0]
            answers = [work.answers(model, task, setting, seed) for seed in work.suite.tables.seeds]
            # Where pairs are held out of the training's text, the training itself answers them.
            jobs += [(job, f"{task.name}: answers") for job in answers if not job.is_run]
    missing, times = list[MissingRun](), cache(partial(_times, work))
    for job, what in jobs:
        if job.done:
            continue
        same = [each for each, other in jobs if each.done and (each.model, other) == (job.model, what)]
        seconds = [each.seconds for each in same]
        time, basis = (sum(seconds) / len(seconds), f"{len(seconds)} finished") if seconds else (None, "not known")
        if not seconds and job.task == PRETRAINING:
            time, basis = _pretraining_seconds(work, work.suite.model(job.model), times)
        elif not seconds and (tokens := _tokens(work, job, what)) is not None:
            start, measured = times(job.model)
            # A run compiles its evaluation, too.
            time, basis = start * (1 + job.is_run) + tokens * measured.forward, _MEASURED
        hours, text = None if time is None else time / 3600, setting_text(job.setting)
        missing.append(MissingRun(model=job.model, work=what, setting=text, seed=job.seed, hours=hours, basis=basis))
    output.print(rows_table("Missing work", missing, ("model", "work", "setting", "seed", "hours", "basis")))
    unknown = sum(run.hours is None for run in missing)
    hours = sum(run.hours or 0 for run in missing) / work.processes.at_once
    left = f", and {unknown} whose time isn't known" if unknown else ""
    print_line(f"{len(missing)} runs, about {hours:.2f} hours with {work.processes.at_once} at once{left}")


class ModelTimes(NamedTuple):
    start: float
    """Seconds that a process takes to start, load the model and compile a program."""
    measured: measuring.TokenTimes


def _times(work: SuiteWork, name: str) -> ModelTimes:
    say(f"timing {name}, to estimate its work")
    model, began = work.suite.model(name), monotonic()
    opened = work.recipes.config(model) if model.recipe else Path(str(model.path))
    with work.processes.pool() as pool:  # on as many cores as each run will have
        measured = pool.submit(work.processes.call, measuring.token_times, opened).result()
    return ModelTimes(monotonic() - began - measured.measurement, measured)


def _pretraining_seconds(work: SuiteWork, model: SuiteModel, times: Callable[[str], ModelTimes]) -> tuple[float, str]:
    """Seconds of the pretraining of a recipe, and what they rest on."""
    budget, config = work.suite.tables.budget, work.recipes.config(model)
    if budget and budget.seconds:
        cores = 1 if accelerated() else len(work.processes.shares[0])  # of which a CPU's seconds are
        return budget.seconds / cores, "the budget"
    tokens = sum(each.batch_size * each.length * each.steps for each in config.phases)
    share = (work.recipes.steps(model) or config.steps) / config.steps
    start, measured = times(model.name)
    return 2 * start + share * tokens * measured.pretraining, _MEASURED


def _tokens(work: SuiteWork, job: Job, what: str) -> float | None:
    """Number of tokens in the forward passes of a job, in which a backward pass counts as _BACKWARD forward passes;
    None if not known."""
    task = next((task for task in work.suite.tasks if task.name == job.task), None)
    if task is None:  # a look-up in the text, or held-out tokens
        return 0.0
    if not isinstance(task, FineTuning):
        return task.tokens(job.model in work.suite.causal)
    tuned, written = task.trained(job.setting).task, task.config.task
    rows = tokens_of_rows(written, task.measured_rows(work.suite.tables.report))
    learned = tokens_of_rows(written, tuned.train, tuned.train_rows)
    if rows is None or learned is None:
        return None
    if what == task.name:
        rows = tuned.epochs * (rows + (1 + _BACKWARD) * learned)
    return max(len(tuned.choices), 1) * rows
