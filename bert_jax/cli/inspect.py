"""bert-jax inspect RUN: sequences as the model sees them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import tyro
from rich.text import Text

from bert_jax.cli.arguments import parse
from bert_jax.cli.summary import console
from bert_jax.pretraining.pretrain import training_batch
from bert_jax.system.batch import WORD_START
from bert_jax.training.run_directory import RunDirectory


@dataclass(frozen=True)
class Inspect:
    """Arguments."""

    run: tyro.conf.Positional[Path]
    """A run whose data has been prepared."""
    step: Annotated[int, tyro.conf.arg(help="Show the batch of this training step, from 1.")] = 1
    rows: Annotated[int, tyro.conf.arg(help="Sequences to show.")] = 4


def run(arguments: list[str]) -> None:
    """Parses, prints sequences in words: what is replaced, what is to be predicted, how the pair is labelled."""
    asked = parse(Inspect, "inspect", "Sequences of a run as the model sees them, with masks and labels.", arguments)
    tokenizer, batch, targets = training_batch(RunDirectory(asked.run), asked.step)
    console.print("[bold]bold[/bold]: to be predicted, as input/truth. A space stands before each word.\n")
    pieces = tokenizer.vocabulary.pieces
    for row in range(min(asked.rows, len(batch.ids))):
        masked = jax.tree.map(lambda array: np.asarray(array[row]), targets.masked)
        truth = dict(zip(masked.positions[masked.weights > 0].tolist(), masked.labels.tolist()))
        line = Text()
        for at in range(int(batch.length[row])):
            word = " " if at and (batch.units[row, at] & WORD_START or not batch.units[row, at]) else ""
            line.append(word + pieces[masked.ids[at]].removeprefix("##" if not word else ""), "bold red" if at in truth else "")
            if at in truth:
                line.append(f"/{pieces[truth[at]]}", "bold green")
        pair = "drawn at random" if batch.pair_label[row] else "follows the first"
        console.print(
            f"[dim]sequence {row + 1}: {int(batch.length[row])} of {batch.ids.shape[1]} tokens, {len(truth)} to predict, "
            f"second segment {pair}[/dim]"
        )
        console.print(line, "")
