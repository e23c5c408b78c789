"""A trained model on disk, whoever wrote it: to be used, or to start from."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from bert_jax.config.finetune import TaskRunConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.task import TaskConfig
from bert_jax.interchange.model_directory import holds_published_model, open_model_directory
from bert_jax.model.bert import Parameters, absent_parts, parameter_shapes
from bert_jax.model.task import HeadShape, task_parameter_shapes
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer import Tokenizer, load_tokenizer
from bert_jax.training.checkpoint import load_parameters, saved_shapes
from bert_jax.training.manifest import checkpoint_of
from bert_jax.training.run_directory import read_config
from bert_jax.training.sharding import abstract


class TrainedModel(NamedTuple):
    """A model opened and checked; its parameters are read when they are wanted."""

    config: ModelConfig
    """With `vocabulary_size` set."""
    tokenizer: Tokenizer
    shapes: Parameters
    """The parameters as shapes and types; parts that the model lacks are not there."""
    read: Callable[[Any], Parameters]
    """The parameters with the shardings given, a tree like `shapes`."""
    step: int = 0
    """Steps that it was trained here."""
    task: TaskConfig | None = None
    """What it was fine-tuned for, and has a head for; None of a pretrained one."""
    pooler_trained: bool = True
    """False where it was pretrained here from random parameters, and without sentence pairs."""

    @classmethod
    def open(cls, path: Place) -> "TrainedModel":
        """The model of a run (its newest undamaged checkpoint), of one checkpoint, or of a Hugging Face directory.

        Raises UsageError where there is none, or where its files don't belong together; RunError where they are
        damaged.
        """
        if not path.exists():
            raise UsageError(f"there is nothing at {path}; give a run, a checkpoint or a Hugging Face directory")
        return _published(path) if holds_published_model(path) else _trained_here(path)


def tokenizer_of(path: Place) -> Tokenizer:
    """The tokenizer of what `TrainedModel.open` opens, or of a run that has no checkpoint yet. Raises UsageError."""
    return open_model_directory(path).tokenizer if holds_published_model(path) else load_tokenizer(path)


def _published(path: Place) -> TrainedModel:
    model = open_model_directory(path)
    shapes = parameter_shapes(model.config, model.absent)
    return TrainedModel(
        model.config, model.tokenizer, shapes, lambda shardings: jax.device_put(model.parameters(), shardings)
    )


def _trained_here(path: Place) -> TrainedModel:
    checkpoint = checkpoint_of(path)
    tokenizer = load_tokenizer(checkpoint)
    settings = read_config(checkpoint)
    told, task = settings.model, settings.task if isinstance(settings, TaskRunConfig) else None
    if told.vocabulary_size not in (None, len(tokenizer.vocabulary)):
        raise UsageError(
            f"{checkpoint}: its tokenizer has {len(tokenizer.vocabulary):,} pieces and its config.json says "
            f"{told.vocabulary_size:,}; they don't belong together"
        )
    config = told.replace(vocabulary_size=len(tokenizer.vocabulary))
    saved = saved_shapes(checkpoint)
    shapes = (
        task_parameter_shapes(config, HeadShape.of(task)) if task else parameter_shapes(config, absent_parts(saved))
    )
    if jax.tree.map(lambda leaf: tuple(leaf.shape), saved) != jax.tree.map(lambda leaf: leaf.shape, shapes):
        raise UsageError(f"{checkpoint}: its parameters aren't those of its config.json; they don't belong together")

    def read(shardings: Any) -> Parameters:
        return load_parameters(checkpoint, abstract(shapes, shardings))

    asked = settings.objective.pair if isinstance(settings, RunConfig) and not settings.init else None
    return TrainedModel(config, tokenizer, shapes, read, int(checkpoint.name), task, pooler_trained=asked != "none")
