"""bert-jax fill-mask RUN TEXT: prints the most probable pieces for each [MASK]."""

from bert_jax.cli.arguments import Command, RunArgument, SavedArguments
from bert_jax.cli.flags import Positional


class FillMask(SavedArguments):
    """Arguments of bert-jax fill-mask."""

    run: RunArgument
    """A run, or one of its checkpoints."""
    text: Positional[str]
    """Text with one [MASK] or several."""
    top: int = 5
    """Pieces to show for each [MASK]."""


COMMAND = Command("fill-mask", FillMask, "The most probable pieces for each [MASK] of a text.")


def run(arguments: list[str]) -> None:
    """Parses the command line, loads the model and prints one table for each [MASK]."""
    asked = COMMAND.parse(arguments)
    from rich.markup import escape
    from rich.table import Table

    from bert_jax.inference.bert import load
    from bert_jax.system.progress import output

    bert = load(asked.run, asked.step, asked.average)
    for number, fills in enumerate(bert.fill_mask(asked.text, asked.top), 1):
        table = Table(title=f"\\[MASK] {number}", title_justify="left")
        table.add_column("piece")
        table.add_column("probability", justify="right")
        for piece, probability in fills:
            table.add_row(escape(piece), f"{probability:.3f}")
        output.print(table)
