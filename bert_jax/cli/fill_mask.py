"""bert-jax fill-mask RUN TEXT: prints the most probable pieces for each [MASK]."""

from bert_jax.cli.arguments import Command, InferenceArguments, RunArgument
from bert_jax.cli.flags import Positional


class FillMask(InferenceArguments):
    """Arguments of bert-jax fill-mask."""

    run: RunArgument
    """A run, or one of its checkpoints."""
    text: Positional[str]
    """Text with one [MASK] or several."""
    top: int = 5
    """Pieces to show for each [MASK]."""


COMMAND = Command("fill-mask", FillMask, "The most probable pieces for each [MASK] of a text.")


def run(words: list[str]) -> None:
    """Parses the command line, loads the model and prints one table for each [MASK]."""
    args = COMMAND.parse(words)
    from bert_jax.cli.tables import Table
    from bert_jax.inference.bert import load
    from bert_jax.system.progress import output

    bert = load(args.run, args.step, args.average, args.dtype)
    for number, fills in enumerate(bert.fill_mask(args.text, args.top), 1):
        table = Table(f"[MASK] {number}", "piece", ">probability")
        for piece, probability in fills:
            table.add_row(piece, f"{probability:.3f}")
        output.print(table)
