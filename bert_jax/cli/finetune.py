"""bert-jax finetune CONFIG --init RUN --workdir RUN2: trains a pretrained model for a task."""

from typing import Annotated

from pydantic import Field

from bert_jax.cli.arguments import Command, TrainingArguments, dotted
from bert_jax.cli.config_files import config_source
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig


class Finetune(TrainingArguments):
    """Arguments of bert-jax finetune."""

    seeds: Annotated[int, Field(gt=0)] = 1
    """Number of runs with different seeds; the mean and standard deviation of their scores are printed."""


COMMAND = Command(
    "finetune",
    Finetune,
    "Train a pretrained model for a task. The same command continues a run that was stopped.",
    FinetuneConfig(task=TaskConfig(name="task", kind="class")),
    first=(
        "init",
        *dotted({"task": ("train", "dev", "texts", "label", "format", "train-rows", "max-length", "epochs")}),
        *dotted({"task": ("batch-size", "metric"), "optimizer": ("peak-learning-rate", "warmup")}),
        "dropout",
        "seed",
    ),
)


def run(words: list[str]) -> None:
    """Parses the command line, fine-tunes, and prints results and next steps."""
    args = COMMAND.parse(words)
    if args.print_config:
        print(config_source(args.config, f"All settings of a run.\n\n    {COMMAND.usage}"), end="")
        return
    if args.dry_run:
        from bert_jax.cli.tables import print_pairs
        from bert_jax.planning.dry_run import planned_finetuning

        print_pairs(
            "bert-jax finetune would", planned_finetuning(args.config, args.workdir, args.overwrite, args.seeds)
        )
        return
    from bert_jax.cli.summary import print_next_steps, print_task_results
    from bert_jax.cli.supervision import on_all_hosts
    from bert_jax.finetuning.finetune import plan_finetuning, read_by
    from bert_jax.finetuning.seeds import finetune_seeds
    from bert_jax.model.sharding import make_mesh
    from bert_jax.run.hosts import is_first
    from bert_jax.run.overwriting import overwrite

    config = args.config
    with on_all_hosts(config.hosts):
        if args.overwrite:
            overwrite(args.workdir, lambda run: plan_finetuning(config, make_mesh(config.mesh), run), read_by(config))
        results = finetune_seeds(config, args.workdir, args.seeds)
    if is_first():
        print_task_results(results)
        print_next_steps(results["run"], [("bert-jax", "predict", results["run"], "INPUT", "OUTPUT")])
