"""bert-jax finetune CONFIG --init RUN --workdir RUN2: trains a pretrained model for a task."""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from bert_jax.cli.arguments import TrainingArguments, dotted
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig
from bert_jax.run.config_files import AnyConfig
from bert_jax.system.bucket import place_of


class Finetune(TrainingArguments):
    """Train a pretrained model for a task. The same command continues a run that was stopped."""

    LINE = "bert-jax finetune"
    SHORT_HELP_SETTINGS = dotted(
        "init",
        "task: train dev texts label format train-rows max-length epochs batch-size metric",
        "optimizer: peak-learning-rate warmup",
        "dropout seed",
    )
    REQUIRED_SETTINGS = ("init",)
    OF_VECTORS: ClassVar[tuple[str, ...]] = dotted(
        "init",
        "task: train source pairs dev texts negatives train-rows max-length epochs batch-size",
        "task: pool temperature directions widths",
        "execution: accumulation",
        "optimizer: peak-learning-rate warmup",
        "dropout seed",
    )
    """The settings that --help shows for kind `vectors`."""
    config: FinetuneConfig = FinetuneConfig(task=TaskConfig(kind="class"))

    seeds: Annotated[int, Field(gt=0)] = 1
    """Number of runs with different seeds; the mean and standard deviation of their scores are printed."""

    @classmethod
    def short_help_settings(cls, config: AnyConfig | None) -> tuple[str, ...]:
        """Those of vectors if CONFIG is of that kind."""
        of_vectors = config and config.task and config.task.makes_vectors
        return cls.OF_VECTORS if of_vectors else cls.SHORT_HELP_SETTINGS

    def plan(self) -> Iterator[tuple[str, str]]:
        """What the command would do, as names and texts."""
        from bert_jax.finetuning.dry_run import planned_finetuning

        return planned_finetuning(self.config, self.workdir, self.seeds)

    def execute(self) -> None:
        """Fine-tunes, and prints results and next steps."""
        if self.only_prints():
            return
        from bert_jax.cli.report import report_of_finished
        from bert_jax.cli.summary import print_layer_weights, print_next_steps, print_task_results
        from bert_jax.cli.supervision import on_all_hosts
        from bert_jax.finetuning.seeds import finetune_seeds
        from bert_jax.run.hosts import is_first

        config = self.config
        with on_all_hosts(config.hosts):
            results = finetune_seeds(config, self.workdir, self.seeds)
        if is_first():
            print_task_results(results)
            print_layer_weights(results)
            best = place_of(results.run or self.workdir)  # of several seeds
            for path in dict.fromkeys((best, self.workdir)):
                report_of_finished(path)
            use = ("search", best, "CORPUS", "QUERY")
            if not config.task.makes_vectors:
                use = ("predict", best, "INPUT", "OUTPUT")
            print_next_steps(best, [("bert-jax", *use)])
