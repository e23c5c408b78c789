"""bert-jax export RUN DESTINATION: writes a model for Hugging Face's transformers."""

from bert_jax.cli.arguments import PlaceArgument, RunArgument, SavedArguments
from bert_jax.cli.flags import Positional
from bert_jax.config.model import ModelConfig
from bert_jax.config.wording import article


class Export(SavedArguments):
    """Write a model for Hugging Face's transformers."""

    LINE = "bert-jax export"

    run: RunArgument
    """A run, fine-tuned or not, or one of its checkpoints."""
    destination: Positional[PlaceArgument]
    """Directory to create: config.json, model.safetensors, the tokenizer's files and a README.md about the model. For
    ELECTRA this is the discriminator, with the generator in the subdirectory `generator`. A model of vectors also gets
    the files that sentence-transformers reads."""

    def execute(self) -> None:
        model = self.loaded(self.run)
        import jax

        from bert_jax.inference.model_card import model_card
        from bert_jax.interchange.export import GENERATOR, write_model_directory
        from bert_jax.model.bert import without
        from bert_jax.system.progress import say

        params = jax.device_get(model.params)
        pooler = params["bert"].get("pooler")
        if pooler and model.provenance.left_untrained(pooler):  # nor was the head of pairs, which stands on it, trained
            params = without(params, ("bert/pooler", "next_sentence"))

        def card(config: ModelConfig, architecture: str) -> str:
            name, exported_model = self.destination.name, model
            if model.generator and config == model.generator.config:
                name, exported_model = f"{name}/{GENERATOR}", model.generator
            return model_card(self.run, exported_model, architecture, name)

        architecture = write_model_directory(
            self.destination, model.config, params, model.tokenizer, model.task, card=card
        )
        say(f"exported {article(architecture)} {architecture} to {self.destination}")
        if model.generator:
            say(f"exported its generator to {self.destination / GENERATOR}")
