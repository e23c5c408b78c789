"""How long the runs of a suite that are missing will take: from finished ones like them, or by formula."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bert_jax.report.facts import RunFacts
from bert_jax.run.trained_model import TrainedModel
from bert_jax.suite import measuring
from bert_jax.suite.job import Job
from bert_jax.suite.suite_tables import setting_text
from bert_jax.suite.work import SuiteWork
from bert_jax.system.facts import print_rows
from bert_jax.system.progress import duration, print_line
from bert_jax.system.workers import in_own_process


class Estimate(NamedTuple):
    """The time that a run will take."""

    seconds: float | None
    """None if it isn't known."""
    basis: str
    """What it rests on, in words."""


def print_estimate(work: SuiteWork) -> None:
    """Prints the missing runs with their estimated times, and the sum."""
    jobs = [job for job in (*work.pretrainings(), *work.measurements()) if not job.done]
    rate = cache(lambda: in_own_process(measuring.matrix_rate))
    estimates = [_estimate(work, job, rate) for job in jobs]
    lines = [
        [job.model, job.task, setting_text(job.setting), str(job.seed), _text(each.seconds), each.basis]
        for job, each in zip(jobs, estimates, strict=True)
    ]
    print_rows("Missing runs", ("model", "task", "setting", "seed", ">time", "estimated"), lines)
    hours = sum(each.seconds or 0.0 for each in estimates) / 3600 / work.commands.at_once
    unknown = sum(each.seconds is None for each in estimates)
    left = f", and {unknown} whose time isn't known" if unknown else ""
    print_line(f"{len(jobs)} runs, about {hours:.2f} hours with {work.commands.at_once} at once{left}")


def _estimate(work: SuiteWork, job: Job, rate: Callable[[], float]) -> Estimate:
    model = next(model for model in work.suite.models if model.name == job.model)
    like = [
        each
        for each in (*work.pretrainings(), *work.measurements())
        if (each.model, each.task) == (job.model, job.task)
    ]
    if finished := [each.path for each in like if each.done and each.path.suffix != ".json"]:
        seconds = [RunFacts(path).seconds for path in finished]
        return Estimate(sum(seconds) / len(seconds), f"as {len(finished)} finished")
    if job.needs is None and model.recipe:  # a pretraining
        if budget := work.suite.tables.budget and work.suite.tables.budget.seconds:
            return Estimate(budget / len(work.commands.shares[0]), "the budget")
        steps, step = work.recipes.steps(model) or model.recipe.steps, work.recipes.step_seconds().get(model.name)
        if step:
            return Estimate(steps * step, "measured step")
        return Estimate(steps * in_own_process(measuring.step_flops, model.recipe) / rate(), "formula, matrix rate")
    task = next((task for task in work.suite.tasks if task.name == job.task and task.config), None)
    if not task or not task.config:
        return Estimate(None, "not known")
    config = model.recipe.model if model.recipe else TrainedModel.open(Path(str(model.path))).config
    tuned = task.config.set({name.replace("-", "_"): value for name, value in job.setting.items()})
    flops = measuring.tuning_flops(tuned, config)
    return Estimate(flops and flops / rate(), "formula, matrix rate" if flops else "not known")


def _text(seconds: float | None) -> str:
    return "?" if seconds is None else duration(seconds)
