"""bert-jax fill-mask RUN TEXT: the likeliest pieces for each [MASK]."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.markup import escape
from rich.table import Table

from bert_jax.cli.arguments import RunArgument, parse
from bert_jax.inference.bert import load
from bert_jax.system.progress import output


@dataclass(frozen=True)
class FillMask:
    """Arguments."""

    run: RunArgument
    """A run, or one of its checkpoints."""
    text: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TEXT")]
    """Text with one [MASK] or several."""
    top: Annotated[int, tyro.conf.arg(help="Pieces to show for each [MASK].")] = 5


def run(arguments: list[str]) -> None:
    """Parses, loads, prints a table a [MASK]."""
    asked = parse(FillMask, "fill-mask", "The likeliest pieces for each [MASK] of a text.", arguments)
    for number, fills in enumerate(load(asked.run).fill_mask(asked.text, asked.top), 1):
        table = Table(title=f"\\[MASK] {number}", title_justify="left")
        table.add_column("piece")
        table.add_column("probability", justify="right")
        for piece, probability in fills:
            table.add_row(escape(piece), f"{probability:.3f}")
        output.print(table)
