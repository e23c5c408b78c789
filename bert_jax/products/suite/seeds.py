"""The smallest suite: one fine-tuning with several seeds, to show the spread of its score."""

from pathlib import Path
from statistics import fmean

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.finetuning.finetune import open_model
from bert_jax.interchange.hub import model_place
from bert_jax.products.suite.suite import CheckedSuite, SuiteModel
from bert_jax.products.suite.suite_tables import SuiteTables
from bert_jax.products.suite.tasks import FineTuning
from bert_jax.products.suite.work import SuiteWork
from bert_jax.run.results import Results, read_results
from bert_jax.system.errors import UsageError


def suite_of_seeds(config: FinetuneConfig, count: int) -> CheckedSuite:
    """The suite of a fine-tuning with `count` seeds from `config.seed` on. Raises UsageError for a model that can't
    learn the task, and if nothing is measured."""
    if not config.task.dev and not config.task.source:
        raise UsageError("--seeds compares scores, and --task.dev names no rows to measure on; give some by --task.dev")
    open_model(config)
    seeds, name = tuple(range(config.seed, config.seed + count)), config.task.name or config.task.rows_name
    model = SuiteModel(Path(str(config.init)).name, str(model_place(str(config.init))))
    task = FineTuning(name=name, config=config.replace(seed=0, init=None))
    return CheckedSuite((model,), (task,), ({},), SuiteTables(seeds=seeds), Path("finetune --seeds"))


def mean_results(work: SuiteWork) -> Results:
    """The mean of every measurement over the seeds of such a suite, and the `run` with the best score."""
    (model,), (task,), seeds = work.suite.models, work.suite.tuned, work.suite.tables.seeds
    runs = [work.tuning(model, task, {}, seed).path for seed in seeds]
    measured = {run: read_results(run / "results.json")[0] for run in runs}
    first, best = measured[runs[0]], max(runs, key=lambda run: measured[run].logged["score"])
    means = {name: fmean(results.logged[name] for results in measured.values()) for name in first.logged}
    facts = {"task": first.task, "metric": first.metric, "seeds": list(seeds), "measured_on": first.measured_on}
    return Results.model_validate(facts | means | {"run": str(best)})
