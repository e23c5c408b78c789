"""bert-jax verify RUN: whether all that a run is built on is as it was written."""

from bert_jax.cli.arguments import Arguments, Command, RunArgument


class Verify(Arguments):
    """Arguments."""

    run: RunArgument
    """A run."""


COMMAND = Command("verify", Verify, "Whether all that a run is built on is as it was written.")


def run(arguments: list[str]) -> None:
    """Parses, reads everything, prints a verdict on each. Raises RunError where something is damaged."""
    asked = COMMAND.parse(arguments)
    from rich.table import Table

    from bert_jax.system.errors import RunError
    from bert_jax.system.progress import output
    from bert_jax.training.run_directory import RunDirectory
    from bert_jax.training.verification import NEVER_COVERED, verify

    verdicts = verify(RunDirectory(asked.run))
    table = Table("what", "verdict")
    for verdict in verdicts:
        table.add_row(verdict.path.relative_to(asked.run).as_posix(), verdict.damage or verdict.remark)
    output.print(table)
    output.print(f"Not covered by any checksum: {'; '.join(NEVER_COVERED)}.")
    if damaged := [verdict for verdict in verdicts if verdict.damage]:
        raise RunError(
            f"{len(damaged)} of {len(verdicts)} are damaged, {damaged[0].path} first; a run goes on from its newest "
            "good checkpoint, damaged data is to be deleted and prepared anew, and config.json and tokenizer/ have "
            "copies in every checkpoint"
        )
