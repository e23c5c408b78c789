"""bert-jax import SOURCE RUN: a published model made a run."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.markup import escape
from rich.table import Table

from bert_jax.cli.arguments import PlaceArgument, RunArgument, parse
from bert_jax.interchange.model_directory import PublishedModel
from bert_jax.interchange.model_settings import Activation
from bert_jax.system.progress import output, say
from bert_jax.training.importing import import_model

_ACTIVATION = "GELU's form, in place of what the config says. Google's checkpoints of 2018 were trained with gelu_erf."
_LOWERCASE = "Of a vocab.txt without settings beside it. None: by the vocabulary's own letters."


@dataclass(frozen=True)
class Import:
    """Arguments."""

    source: Annotated[tyro.conf.Positional[PlaceArgument], tyro.conf.arg(metavar="SOURCE")]
    """A Hugging Face directory with safetensors, or one with a Google TensorFlow checkpoint."""
    run: RunArgument
    """Where to make the run."""
    activation: Annotated[Activation | None, tyro.conf.arg(help=_ACTIVATION)] = None
    lowercase: Annotated[bool | None, tyro.conf.arg(help=_LOWERCASE)] = None


def run(arguments: list[str]) -> None:
    """Parses, imports, prints what decides the numbers and which tensors were left."""
    asked = parse(Import, "import", "A model of Hugging Face's or Google's files made a run.", arguments)
    model = import_model(asked.source, asked.run, asked.activation, asked.lowercase)
    output.print(_described(model))
    if model.unused:
        output.print(_unused_table(model.unused))
    say(f"imported to {asked.run}")


def _described(model: PublishedModel) -> str:
    config, tokenizer = model.config, model.tokenizer
    casing = {True: "lower-cased", False: "case kept", None: "cleaned by its model"}
    lacking = f"; without {', '.join(sorted(model.absent))}" if model.absent else ""
    slots = f", {len(model.slots)} of the optimizer ignored" if model.slots else ""
    return (
        f"{config.num_layers} layers, width {config.hidden_size:,}, {config.num_heads} heads, {config.activation}, "
        f"{config.max_positions:,} positions, {config.num_segments} segments\n"
        f"{tokenizer.kind} of {len(tokenizer.vocabulary):,} pieces, {casing[getattr(tokenizer, 'lowercase', None)]}\n"
        f"{len(model.tensors) - len(model.unused)} tensors taken{slots}{lacking}"
    )


def _unused_table(unused: dict[str, str]) -> Table:
    table = Table("tensor", "why it isn't used")
    for name, reason in sorted(unused.items()):
        table.add_row(escape(name), reason)
    return table
