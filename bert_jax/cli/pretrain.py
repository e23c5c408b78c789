"""bert-jax pretrain CONFIG --workdir RUN: text to a trained model."""

import contextlib
import json
import shutil
from collections.abc import Iterator

from bert_jax.cli.arguments import TrainingArguments, dotted
from bert_jax.config.data import DataConfig
from bert_jax.config.run import RunConfig

_EXAMPLE = "Return the [MASK] of the array."
"""Example for a model of python-docs. For a model of other text, the example is one of its held-out sentences."""


class Pretrain(TrainingArguments):
    """Train a BERT on text in one command. The same command continues a run that was stopped."""

    LINE = "bert-jax pretrain"
    SHORT_HELP_SETTINGS = dotted(
        "data: source language",
        "vocabulary: size file lowercase",
        "model: num-layers hidden-size num-heads",
        "phases.0: steps length batch-size",
        "optimizer: peak-learning-rate warmup",
        "objective: pair",
        "init seed",
    )
    config: RunConfig = RunConfig()

    def estimates(self) -> Iterator[tuple[str, str]]:
        from bert_jax.pretraining.dry_run import pretraining_estimates

        return pretraining_estimates(self.config, self.workdir, self.opened)

    def execute(self) -> None:
        if not self.print_config:
            self.check_text(self.config)
        if self.only_prints():
            return
        import jax

        from bert_jax.cli.report import report_of_finished
        from bert_jax.cli.results_tables import print_next_steps, print_results
        from bert_jax.cli.sequence_view import filled_examples, print_examples
        from bert_jax.cli.supervision import on_all_hosts
        from bert_jax.pretraining.pretrain import pretrain_opened
        from bert_jax.run.hosts import is_first
        from bert_jax.run.run_directory import RunDirectory

        config, workdir = self.config, self.workdir
        directory = RunDirectory(workdir)
        with on_all_hosts(config.hosts), contextlib.closing(directory):
            results = pretrain_opened(config, directory, self.opened)
            first = is_first()  # afterwards the hosts aren't joined any more
        if not first:
            return
        print_results(results, len(config.phases))
        fills_masks = not config.model.one_sided
        example = None
        if fills_masks and jax.process_count() == 1:  # filling masks would need all processes
            examples = filled_examples(directory, config)
            print_examples(examples)
            example = examples[0].text if examples else None
        if example is None or config.data.source == DataConfig().source:
            example = _EXAMPLE
        report_of_finished(workdir)
        commands: list[tuple[object, ...]] = [("bert-jax", "fill-mask", workdir, example)] if fills_masks else []
        commands += [("bert-jax", "inspect", workdir), ("bert-jax", "evaluate", workdir)]
        vectors = "tokens" if config.objective.pair == "none" else "pooled"  # without pairs no pooler is learned
        loaded = f"bert_jax.load({json.dumps(str(workdir), ensure_ascii=False)})"
        script = f'import bert_jax; print({loaded}.encode(["some text"]).{vectors}.shape)'
        commands.append(("python", "-P", "-c", script))  # -P: doesn't import a clone called bert_jax here
        if config.logging.tensorboard and shutil.which("tensorboard"):
            commands.append(("tensorboard", "--logdir", workdir))
        print_next_steps(workdir, commands)
