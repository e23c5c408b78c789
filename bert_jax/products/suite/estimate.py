"""How long the missing work of a suite will take: as finished work like it, or by a measured step of each model."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from time import monotonic

from bert_jax.products.suite import measuring
from bert_jax.products.suite.job import Job
from bert_jax.products.suite.suite import SuiteModel
from bert_jax.products.suite.suite_tables import PRETRAINING, setting_text
from bert_jax.products.suite.tasks import FineTuning
from bert_jax.products.suite.texts import tokens_of_rows
from bert_jax.products.suite.work import SuiteWork
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.figures import rows_table
from bert_jax.system.progress import output, print_line, say
from bert_jax.system.workers import in_own_process
from bert_jax.training.estimate import Estimate

_BACKWARD = 2
"""Cost of a token's backward pass, in forward passes."""


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
            jobs += [(job, f"{task.name}: answers") for job in answers]
    pace, causal, missing = cache(partial(_pace, work)), cache(_is_causal), list[MissingRun]()
    for job, what in jobs:
        if job.done:
            continue
        same = [each for each, other in jobs if each.done and (each.model, other) == (job.model, what)]
        seconds = [each.measured["work_seconds"] for each in same]
        model = next(model for model in work.suite.models if model.name == job.model)
        time: float | None
        if seconds:
            time, basis = sum(seconds) / len(seconds), f"{len(seconds)} finished"
        elif job.task == PRETRAINING and work.suite.tables.budget and work.suite.tables.budget.seconds:
            time, basis = work.suite.tables.budget.seconds / len(work.processes.shares[0]), "the budget"
        else:
            start, token = pace(model.name)
            start *= 1 + (job.path.suffix != ".json")  # a training compiles its evaluation, too
            tokens = _tokens(work, model, job, what, causal)
            time, basis = (None, "not known") if tokens is None else (start + tokens * token, "a measured step")
        hours, text = None if time is None else time / 3600, setting_text(job.setting)
        missing.append(MissingRun(model=job.model, work=what, setting=text, seed=job.seed, hours=hours, basis=basis))
    output.print(rows_table("Missing work", missing, ("model", "work", "setting", "seed", "hours", "basis")))
    unknown = sum(run.hours is None for run in missing)
    hours = sum(run.hours or 0 for run in missing) / work.processes.at_once
    left = f", and {unknown} whose time isn't known" if unknown else ""
    print_line(f"{len(missing)} runs, about {hours:.2f} hours with {work.processes.at_once} at once{left}")


def _pace(work: SuiteWork, name: str) -> tuple[float, float]:
    """Seconds that a process takes to start, load a model and compile, and those of a token in a forward pass."""
    say(f"timing {name}, to estimate its work")
    model, began = next(model for model in work.suite.models if model.name == name), monotonic()
    measured = work.recipes.config(model) if model.recipe else Path(str(model.path))
    token = in_own_process(measuring.token_seconds, measured, 1 + _BACKWARD)
    return monotonic() - began, token


def _is_causal(model: SuiteModel) -> bool:
    return (model.recipe.model if model.recipe else TrainedModel.open(Path(str(model.path))).config).causal


def _tokens(
    work: SuiteWork, model: SuiteModel, job: Job, what: str, causal: Callable[[SuiteModel], bool]
) -> float | None:
    """Number of tokens in the forward passes of a job, in which a backward pass counts as _BACKWARD forward passes;
    None if not known. `causal` tells whether a model is causal."""
    config = work.recipes.config(model) if model.recipe else None
    if job.task == PRETRAINING and config:
        steps, phases = work.recipes.steps(model) or config.steps, config.phases
        row = sum(each.batch_size * each.length * each.steps for each in phases) / config.steps
        return (1 + _BACKWARD) * steps * row
    task = next((task for task in work.suite.tasks if task.name == job.task), None)
    if task is None:  # a look-up in the text, or held-out tokens
        return 0.0
    if not isinstance(task, FineTuning):
        return task.tokens(causal(model))
    tuned, written = task.trained(job.setting).task, task.config.task
    rows = tokens_of_rows(written, task.measured_rows(work.suite.tables.report))
    learned = tokens_of_rows(written, tuned.train, tuned.train_rows)
    if rows is None or learned is None:
        return None
    passes = 1 if what != task.name else tuned.epochs
    return max(len(tuned.choices), 1) * passes * (rows + (0 if what != task.name else (1 + _BACKWARD) * learned))
