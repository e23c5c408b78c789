"""bert-jax evaluate RUN [--data FILE]: measure a run's newest checkpoint on held-out documents, or on others."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from bert_jax.cli.arguments import PlaceArgument, parse
from bert_jax.cli.summary import print_results
from bert_jax.data.corpus import source_of
from bert_jax.pretraining.pretrain import evaluate_run
from bert_jax.system.errors import UsageError
from bert_jax.training.run_directory import RunDirectory

_HELP = "Measure a run's newest checkpoint on its held-out documents, or on text that you name."
_DATA = "Text to measure on, all of it: a file or pattern, or any source that --data.source takes."


@dataclass(frozen=True)
class Evaluate:
    """Arguments."""

    run: tyro.conf.Positional[PlaceArgument]
    """A run."""
    data: Annotated[str | None, tyro.conf.arg(help=f"{_DATA} None: the run's held-out documents.")] = None
    language: Annotated[str | None, tyro.conf.arg(help="Language code of --data. None: the run's first.")] = None


def run(arguments: list[str]) -> None:
    """Parses, evaluates, prints the table that ends a training too."""
    asked = parse(Evaluate, "evaluate", _HELP, arguments)
    if asked.language and not asked.data:
        raise UsageError(f"--language {asked.language} is that of --data, which is not given; give both")
    run_directory = RunDirectory(asked.run)
    if asked.data is None:
        print_results(evaluate_run(run_directory))
    else:
        results = evaluate_run(run_directory, source_of(asked.data), asked.language)
        print_results(results, f"sequences of {asked.data}")
