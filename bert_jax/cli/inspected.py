"""Prints sequences as the model sees them."""

import jax
import numpy as np
from rich.text import Text

from bert_jax.layout import WORD_START
from bert_jax.pretraining.pretrain import training_batch
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.progress import output
from bert_jax.text.tokenizer import Tokenizer


def print_sequences(run: RunDirectory, step: int, rows: int) -> None:
    """Prints the first `rows` sequences of a step, with the pieces to predict and the label of the pair."""
    tokenizer, batch, targets, records = training_batch(run, step)
    output.print("[bold]bold[/bold]: a piece to predict, as input/truth. Each word has a space before it.\n")
    for row in range(min(rows, len(batch.weight))):
        masked = jax.tree.map(lambda array, row=row: array[row], targets.masked)
        tokens, length = masked.tokens, int(masked.tokens.length.sum())
        used = masked.weights > 0
        truth = dict(zip(masked.places[used].tolist(), masked.labels[used].tolist(), strict=True))
        heading = f"sequence {row + 1}, record {records[row]}: {length} of {len(tokens.ids)} tokens"
        heading += f", {len(truth)} to predict"
        if tokens.segment.any():
            heading += f", second segment {'drawn at random' if batch.pair_label[row, 0] else 'follows the first'}"
        output.print(f"[dim]{heading}[/dim]")
        output.print(_sequence(tokens.ids[:length], tokens.units, truth, tokenizer), "")


def _sequence(ids: np.ndarray, units: np.ndarray, truth: dict[int, int], tokenizer: Tokenizer) -> Text:
    """The words of a sequence; each piece to predict is followed by its true piece."""
    line = Text()
    for at, number in enumerate(ids.tolist()):
        special = not units[at]
        if at and (special or units[at] & WORD_START):
            line.append(" ")
        line.append(tokenizer.piece_text(number), "bold red" if at in truth else "")
        if at in truth:
            line.append(f"/{tokenizer.piece_text(truth[at])}", "bold green")
    return line
