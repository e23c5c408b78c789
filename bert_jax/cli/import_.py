"""bert-jax import SOURCE RUN: makes a run from a published model."""

from bert_jax.cli.arguments import Arguments, RunArgument
from bert_jax.cli.flags import Positional
from bert_jax.config.model import Activation
from bert_jax.interchange.model_path import local_place


class Import(Arguments):
    """Make a run from Hugging Face's or Google's files of a model."""

    LINE = "bert-jax import"

    source: Positional[str]
    """A Hugging Face directory with safetensors, one with a Google TensorFlow checkpoint, or a model of the Hugging
    Face hub by its name. An existing directory of that name takes precedence. A model of sentence-transformers keeps
    its pooling."""
    run: RunArgument
    """Directory of the new run."""
    activation: Activation | None = None
    """Activation, instead of that in the model's config. Google's checkpoints of 2018 were trained with gelu_erf."""
    lowercase: bool | None = None
    """Whether a vocab.txt that has no tokenizer settings beside it is for lower-cased text. Without it: found from the
    letters of the vocabulary."""

    def execute(self) -> None:
        local_place(self.source, "a folder with a model's files")  # before what reads it is imported
        from bert_jax.run.trained_model import import_model
        from bert_jax.system.figures import print_rows
        from bert_jax.system.progress import say

        model = import_model(self.source, self.run, self.activation, self.lowercase)
        if model.unused:
            print_rows("", ("tensor", "why it isn't used"), sorted(model.unused.items()))
        say(f"imported to {self.run}")
