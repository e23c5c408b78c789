"""bert-jax finetune CONFIG.py --init RUN --workdir RUN2: a trained model made one for a task."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from bert_jax.cli.arguments import RunArguments, parse_config
from bert_jax.cli.summary import print_task_results
from bert_jax.cli.supervision import supervise
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.seeds import finetune_seeds
from bert_jax.training.hosts import connect, ending_together, is_first, several

_HELP = "A trained model made one for a task."
_SEEDS = "Train so many runs that differ by their seed, and tell the mean of their scores and its spread."


@dataclass(frozen=True, kw_only=True)
class FinetuneArguments(RunArguments):
    """Arguments."""

    seeds: Annotated[int, tyro.conf.arg(help=_SEEDS)] = 1


def run(arguments: list[str]) -> None:
    """Parses, fine-tunes, prints what came out."""
    defaults = FinetuneConfig(task=TaskConfig(name="task", kind="class"))
    asked = parse_config(FinetuneArguments, "finetune", _HELP, arguments, defaults)
    if several(asked.config.hosts):
        supervise()
        connect(asked.config.hosts)
    with ending_together():
        results = finetune_seeds(asked.config, asked.workdir, asked.seeds)
    if is_first():
        print_task_results(results)
        print(f"\nThe run is in {results['run']}. To use it:")
        print(f"  bert-jax predict {results['run']} INPUT OUTPUT")
