"""bert-jax export RUN DESTINATION: writes a model for Hugging Face's transformers."""

import tyro

from bert_jax.cli.arguments import Command, PlaceArgument, RunArgument, SavedArguments


class Export(SavedArguments):
    """Arguments of bert-jax export."""

    run: RunArgument
    """A run, fine-tuned or not, or one of its checkpoints."""
    destination: tyro.conf.Positional[PlaceArgument]
    """Directory to create: config.json, model.safetensors, the tokenizer's files and a README.md about the model."""


COMMAND = Command("export", Export, "Write a model for Hugging Face's transformers.")


def run(arguments: list[str]) -> None:
    """Parses the command line, exports the model and prints where it is."""
    asked = COMMAND.parse(arguments)
    import jax

    from bert_jax.inference.bert import load
    from bert_jax.inference.model_card import model_card
    from bert_jax.interchange.export import write_model_directory
    from bert_jax.model.bert import without
    from bert_jax.system.progress import say

    model = load(asked.run, asked.step, asked.average)
    params = jax.device_get(model.params)
    if not model.pooler_trained:  # nor was the head of pairs, which stands on it
        params = without(params, ("bert/pooler", "next_sentence"))
    architecture = write_model_directory(
        asked.destination,
        model.config,
        params,
        model.tokenizer,
        model.task,
        card=lambda architecture: model_card(asked.run, model, architecture, asked.destination.name, asked.step),
    )
    say(f"exported a {architecture} to {asked.destination}")
