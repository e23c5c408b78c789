"""bert-jax verify RUN: whether checkpoints and data are as they were written."""

from dataclasses import dataclass

from rich.table import Table

from bert_jax.cli.arguments import RunArgument, parse
from bert_jax.system.errors import RunError
from bert_jax.system.progress import output
from bert_jax.training.run_directory import RunDirectory
from bert_jax.training.verification import verify


@dataclass(frozen=True)
class Verify:
    """Arguments."""

    run: RunArgument
    """A run."""


def run(arguments: list[str]) -> None:
    """Parses, reads everything, prints a verdict on each. Raises RunError where something is damaged."""
    asked = parse(Verify, "verify", "Whether a run's checkpoints and data are as they were written.", arguments)
    verdicts = verify(RunDirectory(asked.run))
    table = Table("what", "verdict")
    for verdict in verdicts:
        sound = "good" if verdict.finished else "not finished; the command that began it goes on"
        table.add_row(verdict.path.relative_to(asked.run).as_posix(), verdict.damage or sound)
    output.print(table)
    if damaged := [verdict for verdict in verdicts if verdict.damage]:
        raise RunError(
            f"{len(damaged)} of {len(verdicts)} are damaged, {damaged[0].path} first; a run goes on from its newest "
            "good checkpoint, and damaged data is to be deleted and prepared anew"
        )
