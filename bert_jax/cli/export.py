"""bert-jax export RUN DEST: a model for Hugging Face's transformers."""

from dataclasses import dataclass
from typing import Annotated

import jax
import tyro

from bert_jax.cli.arguments import PlaceArgument, RunArgument, parse
from bert_jax.inference.bert import load
from bert_jax.interchange.export import write_model_directory
from bert_jax.system.progress import say


@dataclass(frozen=True)
class Export:
    """Arguments."""

    run: RunArgument
    """A run, fine-tuned or not, or one of its checkpoints."""
    destination: Annotated[tyro.conf.Positional[PlaceArgument], tyro.conf.arg(metavar="DESTINATION")]
    """Directory to make: config.json, model.safetensors and the tokenizer's files."""


def run(arguments: list[str]) -> None:
    """Parses, exports, says how to load it."""
    asked = parse(Export, "export", "A model written for Hugging Face's transformers.", arguments)
    model = load(asked.run)
    params = jax.device_get(model.params)
    architecture = write_model_directory(asked.destination, model.config, params, model.tokenizer, model.task)
    say(f"exported a {architecture} to {asked.destination}")
