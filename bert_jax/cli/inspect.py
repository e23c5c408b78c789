"""bert-jax inspect RUN: prints sequences as the model sees them."""

from typing import Annotated

from pydantic import Field

from bert_jax.cli.arguments import JsonArguments, RunArgument


class Inspect(JsonArguments):
    """Show sequences of a run as the model sees them, with masks, units and labels. For ELECTRA, show the generator's
    input. With --json, each line is an object for one sequence: record, sequence (its number in the row), pieces, input
    (as the model sees them), predicted (positions), segments, positions, units ([begin, end, kind]) and pair_label.
    """

    LINE = "bert-jax inspect"

    run: RunArgument
    """A run whose data has been prepared."""
    step: int = 1
    """Show the batch of this training step, from 1."""
    rows: Annotated[int, Field(gt=0)] = 4
    """Rows of the batch to show. A row of packed data holds several sequences."""

    def execute(self) -> None:
        from bert_jax.run.run_files import RunFiles

        files = RunFiles(self.run)
        _ = files.config  # raises if it is no run, before JAX is imported
        from bert_jax.cli.sequence_view import print_sequences
        from bert_jax.pretraining.inspection import seen_sequences
        from bert_jax.run.run_directory import RunDirectory
        from bert_jax.system.figures import json_line
        from bert_jax.system.reading import show

        directory = RunDirectory(files)
        sequences = seen_sequences(directory, self.step, self.rows)
        if not self.json:
            show(directory.readings())
            print_sequences(sequences)
        for sequence in sequences if self.json else ():
            print(json_line(sequence.as_json()))
