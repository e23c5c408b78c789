"""bert-jax evaluate RUN: measure a run's newest checkpoint on its held-out documents."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from bert_jax.cli.arguments import parse
from bert_jax.cli.summary import print_results
from bert_jax.pretraining.pretrain import evaluate_run
from bert_jax.training.run_directory import RunDirectory


@dataclass(frozen=True)
class Evaluate:
    """Arguments."""

    run: tyro.conf.Positional[Path]
    """A run."""


def run(arguments: list[str]) -> None:
    """Parses, evaluates, prints the table that ends a training too."""
    asked = parse(Evaluate, "evaluate", "Measure a run's newest checkpoint on its held-out documents.", arguments)
    print_results(evaluate_run(RunDirectory(asked.run)))
