"""A trained model on disk, whoever wrote it: to be used, or to start from."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from bert_jax.config.finetune import TaskRunConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.task import TaskConfig
from bert_jax.interchange.model_directory import holds_published_model, open_model_directory
from bert_jax.model.bert import Parameters, absent_parts, parameter_shapes
from bert_jax.model.sharding import abstract, tree_shardings
from bert_jax.model.task import HeadShape, task_parameter_shapes
from bert_jax.run.checkpoint_choice import CheckpointGone, being_read, checkpoint_of, looking_again
from bert_jax.run.manifest import Manifest
from bert_jax.run.run_directory import read_config
from bert_jax.run.run_manifest import RunManifest
from bert_jax.run.saved_state import load_parameters, saved_shapes
from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.progress import warn
from bert_jax.text.tokenizer import Tokenizer, load_tokenizer

_MOST_COMPRESSED = 200
"""Most bytes of parameters for each byte of a checkpoint: parameters of a trained model hardly compress."""


class TrainedModel(NamedTuple):
    """A model opened and checked; its parameters are read when they are wanted."""

    config: ModelConfig
    """With `vocabulary_size` set."""
    tokenizer: Tokenizer
    shapes: Parameters
    """The parameters as shapes and types; parts that the model lacks are not there."""
    read: Callable[[Any], Parameters]
    """The parameters with the shardings given, a tree like `shapes`. Raises CheckpointGone where a training has deleted
    the checkpoint since: see `load`."""
    step: int = 0
    """Steps of training in this run."""
    task: TaskConfig | None = None
    """The task that the model was fine-tuned for; None if it is a pretrained model."""
    pooler_trained: bool = True
    """False where it was pretrained here from random parameters, and without sentence pairs."""

    @classmethod
    def open(cls, path: Place) -> "TrainedModel":
        """The model of a run (its newest undamaged checkpoint), of one checkpoint, or of a Hugging Face directory.

        Raises UsageError where there is none, or where its files don't belong together; RunError where they are
        damaged.
        """
        return looking_again(lambda: _opened(path))

    @classmethod
    def load(cls, path: Place, shardings: Callable[[Parameters], Any]) -> tuple["TrainedModel", Parameters]:
        """The model at `path` and its parameters, with the shardings that `shardings` gives for a tree of shapes.

        Of a run that is being trained this is a checkpoint that was there all the while. Raises what `open` does.
        """

        def loaded() -> tuple[TrainedModel, Parameters]:
            trained = _opened(path)
            return trained, trained.read(shardings(trained.shapes))

        return looking_again(loaded)


def tokenizer_of(path: Place) -> Tokenizer:
    """The tokenizer of what `TrainedModel.open` opens, or of a run that has no checkpoint yet. Raises UsageError."""
    if holds_published_model(path):
        return open_model_directory(path).tokenizer
    RunManifest(path).check(path / "tokenizer")
    return load_tokenizer(path)


def initial_parameters(started: TrainedModel, path: Place, mesh: Mesh) -> Parameters:
    """The parameters of `started`, opened at `path`; of a newer checkpoint where a training has deleted that one."""
    try:
        return started.read(tree_shardings(started.shapes, mesh))
    except CheckpointGone:
        return TrainedModel.load(path, lambda shapes: tree_shardings(shapes, mesh))[1]


def _published(path: Place) -> TrainedModel:
    model = open_model_directory(path)
    shapes = parameter_shapes(model.config, model.absent)
    return TrainedModel(
        model.config, model.tokenizer, shapes, lambda shardings: jax.device_put(model.parameters(), shardings)
    )


def _opened(path: Place) -> TrainedModel:
    if not path.exists():
        raise UsageError(f"there is nothing at {path}; give a run, a checkpoint or a Hugging Face directory")
    return _published(path) if holds_published_model(path) else _trained_here(path)


def _trained_here(path: Place) -> TrainedModel:
    checkpoint = checkpoint_of(path)
    with being_read(checkpoint):
        tokenizer, settings, manifest = load_tokenizer(checkpoint), read_config(checkpoint), Manifest.read(checkpoint)
    if checkpoint != path and (damage := _own_damage(path)):
        warn(f"{path}: {damage}; the copy in {checkpoint.name} is used (bert-jax verify looks at all files)")
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
    _refuse_bombs(checkpoint, shapes, sum(total.size for total in manifest.files.values()))

    def read(shardings: Any) -> Parameters:
        return load_parameters(checkpoint, abstract(shapes, shardings))

    asked = settings.objective.pair if isinstance(settings, RunConfig) and not settings.init else None
    return TrainedModel(config, tokenizer, shapes, read, manifest.step, task, pooler_trained=asked != "none")


def _own_damage(run: Place) -> str | None:
    """What is wrong with the files of a run that its checkpoints have copies of."""
    manifest = RunManifest(run)
    return manifest.damage(run / "config.json") or manifest.damage(run / "tokenizer")


def _refuse_bombs(checkpoint: Place, shapes: Parameters, stored: int) -> None:
    """Refuses parameters that take far more memory than their files have bytes: those of a trained model are noise."""
    wanted = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    if wanted > _MOST_COMPRESSED * stored:
        raise RunError(
            f"{checkpoint} has {stored:,} bytes and its parameters would take {wanted:,} of memory, more than "
            f"{_MOST_COMPRESSED} times as many; it is damaged, or no model"
        )
