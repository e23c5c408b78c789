"""Runs that differ only in their seed, to show the spread of a score."""

import statistics
from collections.abc import Mapping, Sequence

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.finetuning.finetune import finetune
from bert_jax.run.hosts import is_first
from bert_jax.run.results import Results
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import Place
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.files import write_json

_SEED = "seed-"
"""Prefix of the names of such runs."""


def finetune_seeds(config: FinetuneConfig, path: Place, count: int) -> Results:
    """Fine-tunes at `path`, with `count` seeds from `config.seed` on; returns the results there.

    Several seeds have runs below `path`, one after the other. They aren't vmapped into one step: their batches differ
    in length, and padding five seeds to the longest would take 1.95 times the tokens for SST-2 in batches of 32. Their
    results are means over the seeds. `spread` has the spread of each metric (see `spread_of`), `run` is the run with
    the `best_score`, and `constant_predictions` counts the seeds that give one answer for every row. Raises the errors
    of `finetune`, and UsageError if nothing is measured or if `path` holds runs of the other kind, one seed or several.
    """
    runs = _runs(config, path, count)
    if count == 1:
        return finetune(*runs[0]).updated({"run": str(path)})
    results = summed_up({str(run.path): finetune(own, run) for own, run in runs})
    if is_first():
        write_json(path / "results.json", results.content)
    return results


def _runs(config: FinetuneConfig, path: Place, count: int) -> list[tuple[FinetuneConfig, RunDirectory]]:
    """The settings and directory of each seed's run. Raises UsageError for the reasons given in `finetune_seeds`."""
    if count < 1:
        raise UsageError(f"--seeds {count} asks for no runs; give how many, from 1")
    several = path.is_dir() and any(child.name.startswith(_SEED) for child in path.iterdir())
    if count == 1 and several:
        raise UsageError(f"{path} holds runs of several seeds; choose another --workdir, or give --seeds")
    if count == 1:
        return [(config, RunDirectory(path))]
    if RunDirectory(path).config_file.exists():
        raise UsageError(f"{path} is a run of one seed; choose another --workdir, or leave out --seeds {count}")
    if not config.task.dev and not config.task.source:
        raise UsageError(
            f"--seeds compares scores, and {Setting('task.dev')} names no rows to measure on; give "
            f"some by {Setting('task.dev')}"
        )
    seeds = range(config.seed, config.seed + count)
    return [(config.replace(seed=seed), RunDirectory(path / f"{_SEED}{seed}")) for seed in seeds]


def seed_runs(path: Place) -> list[Place]:
    """The runs of several seeds in the folder `path`, by seed; [] if it holds none or is itself a run."""
    if not path.is_dir() or RunDirectory(path).config_file.exists():
        return []
    runs = [child for child in path.iterdir() if child.name.startswith(_SEED) and (child / "config.json").exists()]
    return sorted(runs, key=lambda child: (len(child.name), child.name))


def spread_of(values: Sequence[float]) -> dict[str, float]:
    """The spread of a metric over at least two seeds, with the standard deviation of a sample."""
    return {"standard deviation": statistics.stdev(values), "least": min(values), "most": max(values)}


def summed_up(by_run: Mapping[str, Results]) -> Results:
    """Combines the results of runs, given by their paths."""
    every = list(by_run.values())
    first, scores = every[0], {run: results.logged["score"] for run, results in by_run.items()}
    unlearned = [results.unlearned for results in every if results.unlearned]
    values = {name: [results.logged[name] for results in every] for name in first.logged}
    return Results.model_validate(
        {
            "task": first.task,
            "steps": max(results.steps or 0 for results in every),
            "stopped_early": any(results.stopped_early for results in every),
            "seeds": [seed for results in every for seed in results.seeds],
            "metric": first.metric,
            **{name: statistics.fmean(of_seeds) for name, of_seeds in values.items()},
            "spread": {name: spread_of(of_seeds) for name, of_seeds in values.items()},
            "standard_deviation": statistics.stdev(scores.values()),
            "scores": list(scores.values()),
            "best_score": max(scores.values()),
            "run": max(scores, key=scores.__getitem__),
            "unlearned": f"{unlearned[0]} (the first of {len(unlearned)} such seeds)" if unlearned else "",
            "training_rows": first.training_rows,
            "dev_rows": first.dev_rows,
            "measured_on": first.measured_on,
            "baseline": first.baseline or {},
            "baselines": first.baselines,
            "constant_predictions": sum(results.constant_prediction is not None for results in every),
        }
    )
