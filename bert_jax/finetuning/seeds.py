"""Several runs that differ in their seed alone, to show the spread of a score."""

import statistics
from collections.abc import Sequence
from typing import Any

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.finetuning.finetune import finetune
from bert_jax.run.hosts import is_first
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import Place
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.files import write_json

_SEED = "seed-"
"""Prefix of the names of such runs."""


def finetune_seeds(config: FinetuneConfig, path: Place, count: int) -> dict[str, Any]:
    """Fine-tunes at `path`, with `count` seeds from `config.seed` on; returns the content of results.json there.

    With more than one each has a run of its own below `path`, one after the other: their batches differ in length, and
    five seeds vmapped into one step would be padded to the longest, 1.95 times the tokens for SST-2 in batches of 32.
    What is returned are means, in `spread` that of each metric over the seeds (see `spread_of`), the `run` with the
    `best_score`, and in `constant_predictions` the number of seeds that give one answer for every row.
    Raises what `finetune` does, and UsageError where nothing is measured, or where there are runs of the other kind.
    """
    runs = _runs(config, path, count)
    if count == 1:
        return finetune(*runs[0]) | {"run": str(path)}
    results = summed_up({str(run.path): finetune(own, run) for own, run in runs})
    if is_first():
        write_json(path / "results.json", results)
    return results


def _runs(config: FinetuneConfig, path: Place, count: int) -> list[tuple[FinetuneConfig, RunDirectory]]:
    """The settings and directory of the run of each seed. Raises UsageError as `finetune_seeds` does."""
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
    found = [child for child in path.iterdir() if child.name.startswith(_SEED) and (child / "config.json").exists()]
    return sorted(found, key=lambda child: (len(child.name), child.name))


def spread_of(values: Sequence[float]) -> dict[str, float]:
    """The spread of a metric over at least two seeds; the standard deviation is that of a sample."""
    return {"standard deviation": statistics.stdev(values), "least": min(values), "most": max(values)}


def summed_up(each: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Combines the results of runs, which are given by their paths."""
    all_results = list(each.values())
    scores = [results["score"] for results in all_results]
    best = max(each, key=lambda run: each[run]["score"])
    unlearned = [results["unlearned"] for results in all_results if results.get("unlearned")]
    numbers = [name for name, value in all_results[0].items() if isinstance(value, float)]
    return {
        "task": all_results[0]["task"],
        "steps": max(results["steps"] for results in all_results),
        "stopped_early": any(results["stopped_early"] for results in all_results),
        "seeds": [seed for results in all_results for seed in results["seeds"]],
        "metric": all_results[0]["metric"],
        **{name: statistics.fmean(results[name] for results in all_results) for name in numbers},
        "spread": {name: spread_of([results[name] for results in all_results]) for name in numbers},
        "standard_deviation": statistics.stdev(scores),
        "scores": scores,
        "best_score": max(scores),
        "run": best,
        "unlearned": f"{unlearned[0]} (the first of {len(unlearned)} such seeds)" if unlearned else "",
        "training_rows": all_results[0]["training_rows"],
        "dev_rows": all_results[0]["dev_rows"],
        "measured_on": all_results[0].get("measured_on"),
        "baseline": all_results[0].get("baseline", {}),
        "baselines": all_results[0].get("baselines", {}),
        "constant_predictions": sum(results.get("constant_prediction") is not None for results in all_results),
    }
