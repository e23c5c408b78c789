"""bert-jax finetune CONFIG --init RUN --workdir RUN2: trains a pretrained model for a task."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from bert_jax.cli.arguments import TrainingArguments, dotted
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig
from bert_jax.interchange.model_path import local_place
from bert_jax.run.config_files import AnyConfig
from bert_jax.system.bucket import Place
from bert_jax.system.machine import may_be_one_of_several

if TYPE_CHECKING:
    from bert_jax.products.suite.suite import CheckedSuite


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
    """Number of runs with different seeds. Several are a suite in --workdir, with the mean and spread of the score."""

    @classmethod
    def short_help_settings(cls, config: AnyConfig | None) -> tuple[str, ...]:
        of_vectors = config and config.task and config.task.makes_vectors
        return cls.OF_VECTORS if of_vectors else cls.SHORT_HELP_SETTINGS

    def estimates(self) -> Iterator[tuple[str, str]]:
        from bert_jax.finetuning.dry_run import finetuning_estimates

        return finetuning_estimates(self.config, self.workdir)

    def execute(self) -> None:
        # An absent model is refused before JAX is imported. One of several hosts doesn't check here: it first joins the
        # others, which would wait for it.
        if self.config.init and not self.print_config and not may_be_one_of_several(self.config.hosts.coordinator):
            local_place(self.config.init)
        several = self.seeds > 1 and not self.print_config
        if not several and self.only_prints():
            return
        if run := self._best_of_seeds() if several else self._trained():
            from bert_jax.cli.results_tables import print_next_steps

            use = ("predict", run, "INPUT", "OUTPUT")
            if self.config.task.makes_vectors:
                use = ("search", run, "CORPUS", "QUERY")
            print_next_steps(run, [("bert-jax", *use)])

    def _trained(self) -> Place | None:
        """Trains, prints the results and writes the report. Returns the run; None on all hosts but the first."""
        from bert_jax.cli.report import report_of_finished
        from bert_jax.cli.results_tables import print_layer_weights, print_task_results
        from bert_jax.cli.supervision import on_all_hosts
        from bert_jax.finetuning.finetune import finetune
        from bert_jax.run.hosts import is_first

        with on_all_hosts(self.config.hosts):
            results = finetune(self.config, self.workdir)
            first = is_first()  # afterwards the hosts aren't joined any more
        if not first:
            return None
        print_task_results(results)
        print_layer_weights(results)
        report_of_finished(self.workdir)
        return self.workdir

    def _best_of_seeds(self) -> str | None:
        """Runs the suite of several seeds, and writes its results.json. Returns the best run; None for a dry run."""
        from bert_jax.cli.suite import run_suite
        from bert_jax.products.suite.seeds import check_learnable, mean_results, suite_of_seeds
        from bert_jax.system.files import write_json

        def opened(suite: "CheckedSuite") -> "CheckedSuite":
            check_learnable(self.config)
            return suite

        work = run_suite(lambda: suite_of_seeds(self.config, self.seeds), opened, self.workdir, dry_run=self.dry_run)
        if not work:
            return None
        results = mean_results(work)
        write_json(self.workdir / "results.json", results.content)
        return results.run
