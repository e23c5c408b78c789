"""bert-jax inspect RUN: prints sequences as the model sees them."""

from bert_jax.cli.arguments import Arguments, Command, RunArgument
from bert_jax.system.errors import UsageError


class Inspect(Arguments):
    """Arguments of bert-jax inspect."""

    run: RunArgument
    """A run whose data has been prepared."""
    step: int = 1
    """Show the batch of this training step, from 1."""
    rows: int = 4
    """Sequences to show."""


COMMAND = Command("inspect", Inspect, "Show sequences of a run as the model sees them, with masks and labels.")


def run(arguments: list[str]) -> None:
    """Parses the command line and prints sequences."""
    asked = COMMAND.parse(arguments)
    if asked.rows < 1:
        raise UsageError(f"--rows {asked.rows} shows nothing; give how many sequences, from 1")
    from bert_jax.cli.summary import print_sequences
    from bert_jax.pretraining.inspection import seen_sequences
    from bert_jax.run.run_directory import RunDirectory

    print_sequences(seen_sequences(RunDirectory(asked.run), asked.step, asked.rows))
