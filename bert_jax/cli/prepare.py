"""bert-jax prepare CONFIG --workdir RUN: makes the vocabulary and the sequences, the first two steps of pretrain."""

import itertools

from bert_jax.cli.arguments import JsonArguments, RunArguments, dotted
from bert_jax.cli.vocab import Vocab
from bert_jax.config.run import RunConfig


class Prepare(JsonArguments, RunArguments):
    """Make the run's vocabulary and sequences, as pretrain does. With --json the output ends with one object, which
    maps each length to an object of rows, sequences, tokens, words, fill, pairs_random, units, repairs and sources.
    """

    LINE = "bert-jax prepare"
    SHORT_HELP_SETTINGS = dotted(
        "data: source layout language weights smoothing held-out short-sequence-probability packed",
        "vocabulary: kind size file lowercase",
        "data.deduplicate objective.pair phases.0.length seed preparation.processes",
    )
    READS = (*Vocab.READS, "objective.pair", "phases", "seed", "preparation")
    config: RunConfig = RunConfig()

    dry_run: bool = False
    """Print what the command would do, and how long it would take on 1, 10 and 100 workers, by a trial on a sample of
    the text. Write nothing to --workdir."""

    def execute(self) -> None:
        self.check_text(self.config)
        from bert_jax.cli.results_tables import print_preparation
        from bert_jax.config.objective import num_predictions
        from bert_jax.pretraining.dataset import check_preparation, prepare_data
        from bert_jax.pretraining.fitting import fitted
        from bert_jax.pretraining.mixture import check_epochs, source_shares
        from bert_jax.run.run_directory import RunDirectory
        from bert_jax.system.figures import json_line, print_rows, rows_table
        from bert_jax.system.progress import output

        directory = RunDirectory(self.workdir)
        config = fitted(self.config, self.opened, directory)
        inputs = check_preparation(config, directory, self.opened)
        if self.dry_run:
            from bert_jax.pretraining.dry_run import preparation_estimates
            from bert_jax.training.estimate import read_as

            rows = itertools.chain(read_as(inputs.readings), preparation_estimates(config, self.opened))
            print_rows(f"{self.LINE} would prepare", (), rows)
            return
        directory.open(config)
        data = prepare_data(config, directory, inputs)
        budgets = {length: num_predictions(config.objective.masked_share, length) for length in data.prepared}
        if self.json:
            found = {
                str(length): prepared.as_json(budgets[length])
                | {"sources": [*source_shares(config, {length: prepared})]}
                for length, prepared in data.prepared.items()
            }
            print(json_line(found))
        else:
            for length, prepared in data.prepared.items():
                print_preparation(prepared, budgets[length])
            if len(data.shares) > 1:
                output.print(rows_table("What the training draws", data.shares))
        check_epochs(config, data.shares)
