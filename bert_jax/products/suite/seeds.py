"""A fine-tuning with several seeds, as a suite."""

import math
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.interchange.model_path import local_or_hub_name
from bert_jax.products.suite.suite import CheckedSuite, SuiteModel
from bert_jax.products.suite.suite_tables import SuiteTables
from bert_jax.products.suite.tasks import FineTuning
from bert_jax.run.results import Results, read_results
from bert_jax.system.errors import UsageError

if TYPE_CHECKING:
    from bert_jax.products.suite.work import SuiteWork


def suite_of_seeds(config: FinetuneConfig, count: int) -> CheckedSuite:
    """The suite of a fine-tuning with `count` seeds from `config.seed` on. Opens no model. Raises UsageError if nothing
    is measured, or if there is nothing at the model's path."""
    if not config.task.dev and not config.task.source:
        raise UsageError("--seeds compares scores, and --task.dev names no rows to measure on; give some by --task.dev")
    seeds, name = tuple(range(config.seed, config.seed + count)), config.task.name or config.task.rows_name
    path = config.init and local_or_hub_name(config.init)
    model = SuiteModel(Path(str(config.init)).name, path)
    task = FineTuning(name=name, config=config.replace(seed=0, init=None))
    return CheckedSuite((model,), (task,), ({},), SuiteTables(seeds=seeds), Path("finetune --seeds"))


def check_learnable(config: FinetuneConfig) -> None:
    """Raises UsageError for a model that can't learn the task, and for rows that can't be used."""
    from bert_jax.finetuning.finetune import open_model, read_rows  # import JAX

    read_rows(config, open_model(config))


def mean_results(work: "SuiteWork") -> Results:
    """The mean of every measurement that all seeds of a `suite_of_seeds` have, and the `run` with the best score."""
    (model,), (task,), seeds = work.suite.models, work.suite.tuned, work.suite.tables.seeds
    runs = [work.tuning(model, task, {}, seed).path for seed in seeds]
    measured = {run: read_results(run / "results.json")[0] for run in runs}
    first, best = measured[runs[0]], max(runs, key=lambda run: measured[run].logged.get("score", -math.inf))
    # A measurement of a run that isn't finite is missing there.
    common = [name for name in first.logged if all(name in results.logged for results in measured.values())]
    means = {name: fmean(results.logged[name] for results in measured.values()) for name in common}
    named = {"task": first.task, "metric": first.metric, "seeds": list(seeds), "measured_on": first.measured_on}
    return Results.model_validate(named | means | {"run": str(best)})
