"""How long the missing runs of a suite will take: as finished ones like them, or by formula."""

from functools import cache
from pathlib import Path

from bert_jax.config.model import ModelConfig
from bert_jax.doctor.diagnosis import training_rate
from bert_jax.report.facts import RunFacts
from bert_jax.run.trained_model import TrainedModel
from bert_jax.suite import measuring
from bert_jax.suite.job import PRETRAINING, Job
from bert_jax.suite.suite_tables import setting_text
from bert_jax.suite.work import SuiteWork
from bert_jax.system.facts import print_rows
from bert_jax.system.progress import duration, print_line
from bert_jax.system.workers import in_own_process

_FORMULA = "formula"
"""What an estimate rests on that counts FLOPs."""


def print_estimate(work: SuiteWork) -> None:
    """Prints the missing runs with their estimated times, and the sum."""
    rate = cache(lambda: in_own_process(training_rate, ModelConfig())[0])
    jobs = [*work.pretrainings(), *work.measurements()]
    lines, times = list[list[str]](), list[float | None]()
    for job in (job for job in jobs if not job.done):
        like = [each for each in jobs if each.done and (each.model, each.task) == (job.model, job.task)]
        seconds = [RunFacts(each.path).seconds for each in like if each.path.is_dir()]
        time: float | None
        if seconds:
            time, basis = sum(seconds) / len(seconds), f"as {len(seconds)} finished"
        elif job.task == PRETRAINING and work.suite.tables.budget and work.suite.tables.budget.seconds:
            time, basis = work.suite.tables.budget.seconds / len(work.commands.shares[0]), "the budget"
        else:
            flops = _flops(work, job)
            time, basis = (flops / rate(), _FORMULA) if flops else (None, "not known")
        times.append(time)
        length = "?" if time is None else duration(time)
        lines.append([job.model, job.task, setting_text(job.setting), str(job.seed), length, basis])
    print_rows("Missing runs", ("model", "task", "setting", "seed", ">time", "estimated"), lines)
    hours = sum(filter(None, times)) / 3600 / work.commands.at_once
    left = f", and {times.count(None)} whose time isn't known" if None in times else ""
    print_line(f"{len(lines)} runs, about {hours:.2f} hours with {work.commands.at_once} at once{left}")
    if any(line[-1] == _FORMULA for line in lines):
        print_line("The formula leaves out a run's start, preparation and evaluations, and what small models lose.")


def _flops(work: SuiteWork, job: Job) -> float | None:
    """FLOPs of a training by formula; None for measurements, and for rows whose size isn't known."""
    model = next(model for model in work.suite.models if model.name == job.model)
    if job.task == PRETRAINING and model.recipe:
        recipe = work.recipes.config(model)
        return (work.recipes.steps(model) or recipe.steps) * in_own_process(measuring.step_flops, recipe)
    task = next((task for task in work.suite.tasks if task.name == job.task and task.config), None)
    if not task or not task.config:
        return None
    config = model.recipe.model if model.recipe else TrainedModel.open(Path(str(model.path))).config
    tuned = task.config.set({name.replace("-", "_"): value for name, value in job.setting.items()})
    return measuring.tuning_flops(tuned, config)
