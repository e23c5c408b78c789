"""Opens trained models of runs and of other programs, and imports models of other programs as runs."""

import functools
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from bert_jax.config.data import VocabularyConfig
from bert_jax.config.finetune import AnyRunConfig, TaskRunConfig
from bert_jax.config.model import Activation, ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig, prediction_of
from bert_jax.config.task import TaskConfig
from bert_jax.config.training import Phase
from bert_jax.config.wording import counted
from bert_jax.interchange.hub import model_place
from bert_jax.interchange.model_directory import PublishedModel, open_model_directory
from bert_jax.interchange.pooling_files import vectors_task
from bert_jax.interchange.relatives import relative_of
from bert_jax.interchange.tokenizer_config import PublishedFolder
from bert_jax.model.bert import Parameters, absent_parts, parameter_shapes
from bert_jax.model.sharding import abstract, tree_shardings
from bert_jax.model.task import HeadShape, task_parameter_shapes
from bert_jax.run.checkpoint import write_model
from bert_jax.run.checkpoint_choice import (
    CheckpointGone,
    chosen_checkpoint,
    earlier_undamaged,
    not_of_a_run,
    retrying_if_deleted,
)
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.recorded_config import write_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles
from bert_jax.run.saved_state import check_name, load_parameters, mean_of, saved_shapes
from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.files import new_directory
from bert_jax.system.progress import say, warn
from bert_jax.system.reading import Reading
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.wordpiece import WordPieceTokenizer

_MOST_COMPRESSED = 200
"""Most bytes of parameters for each byte of a checkpoint: parameters of a trained model hardly compress."""


class Provenance(NamedTuple):
    """Where the parameters of a model come from."""

    settings: AnyRunConfig | None = None
    """The settings of the run; None for a model that is no run of bert_jax."""
    steps: tuple[int, ...] = ()
    """The run's saved steps that the parameters come from, oldest first; with several, the parameters are their mean.
    Empty for a model that is no run."""
    imported_from: str | None = None
    """The source of another program's model, also if it was imported as a run."""
    readings: tuple[Reading, ...] = ()
    """How the files of another program's model were understood; empty for a run of bert_jax."""

    @property
    def without_pairs(self) -> bool:
        """Whether the model was pretrained here without sentence pairs, from random parameters or from a model."""
        return bool(self.settings and self.settings.objective and self.settings.objective.pair == "none")

    def left_untrained(self, pooler: Parameters) -> bool:
        """Whether `pooler` still has its random values: the model was pretrained here without sentence pairs, and began
        without a trained pooler. Then biases and norms, which begin at 0 and 1, are all as they began."""
        vectors = [leaf for leaf in jax.tree.leaves(pooler) if leaf.ndim == 1]
        return self.without_pairs and all(bool((leaf == 0).all() or (leaf == 1).all()) for leaf in vectors)


class TrainedModel(NamedTuple):
    """An opened and checked model. Its parameters are read on demand."""

    path: Place
    config: ModelConfig
    """The model's settings, with `vocabulary_size` set."""
    tokenizer: Tokenizer
    shapes: Parameters
    """The parameters as shapes and types, without the parts that the model lacks."""
    read: Callable[[PyTree], Parameters]
    """Reads the parameters with given shardings, a tree like `shapes`. Raises CheckpointGone if a training has deleted
    the checkpoint since; `load` then chooses another one."""
    provenance: Provenance
    task: TaskConfig | None = None
    """The task that the model was fine-tuned for; None for a pretrained model."""
    obstacle: str | None = None
    """Why the model of a sentence-transformers directory can't give the vectors that sentence-transformers gives,
    although its encoder can be used. None if it can, and for every other model."""

    def with_parameters(self, mesh: Mesh) -> tuple["TrainedModel", Parameters]:
        """This model and its parameters on `mesh`. If a training has deleted its checkpoint: another checkpoint of the
        run, with its parameters."""
        try:
            return self, self.read(tree_shardings(self.shapes, mesh))
        except CheckpointGone:
            return TrainedModel.load(self.path, lambda shapes: tree_shardings(shapes, mesh))

    @property
    def step(self) -> int:
        """Step of the newest checkpoint that the parameters come from; 0 for a model of another program."""
        return self.provenance.steps[-1] if self.provenance.steps else 0

    @classmethod
    def open(cls, source: Place | RunFiles) -> "TrainedModel":
        """The model of a run (its newest undamaged checkpoint), of one checkpoint, or of a Hugging Face directory.
        Prints the `obstacle` if there is one. Raises UsageError if there is no model or its files don't belong
        together, RunError if they are damaged.
        """
        trained = retrying_if_deleted(lambda: _opened(source))
        _say_of_tags(trained)
        if trained.obstacle:
            say(f"{trained.path} is read as the encoder alone: {trained.obstacle}")
        return trained

    @classmethod
    def load(
        cls,
        source: Place | RunFiles,
        shardings: Callable[[Parameters], PyTree],
        step: int | None = None,
        average: int | None = None,
        training_heads: Parameters | None = None,
    ) -> tuple["TrainedModel", Parameters]:
        """Returns the model of `source` and its parameters, sharded as `shardings` returns for a tree of shapes.

        `step`: the saved step of a run to read. `average`: the number of saved steps of which the mean is returned; the
        last of them is `step` or else the newest one, and all are of one phase, because another phase has other data. A
        message names the averaged steps. `training_heads`: shapes of heads that only the training uses and that are
        read as well, such as that for tags.

        The run may be training meanwhile: only checkpoints that existed during the whole read are returned. Raises what
        `open` does, and UsageError for an `obstacle`, a step that isn't saved, an average below one, or a `step` or
        `average` of a model that is no run.
        """
        if average is not None and average < 1:
            raise UsageError(f"an average of {average} saved steps has no parameters; give how many, from 1")

        def loaded() -> tuple[TrainedModel, Parameters]:
            trained = _opened(source, step, average, training_heads)
            if trained.obstacle:
                raise UsageError(trained.obstacle)
            return trained, trained.read(shardings(trained.shapes))

        trained, params = retrying_if_deleted(loaded)
        _say_of_tags(trained)
        if average is not None:
            say(_averaged(trained.path, trained.provenance.steps, average))
        return trained, params


def pretraining_settings(path: Place, opened: OpenedModels) -> RunConfig:
    """The settings with which the model at `path` is pretrained further: those of a pretraining run; for a published
    model or a fine-tuned run those of its encoder. A line says that a task's head or pooling is left out.

    Raises what `TrainedModel.open` and `RunFiles.config` do.
    """
    files = opened.files(path)
    if not files.published and isinstance(config := files.config, RunConfig):
        return config
    trained = opened.model(path)
    if trained.task:
        say(f"{path} was fine-tuned for {trained.task.name}: the settings of its encoder are taken")
    return _run_config(trained.config, trained.tokenizer, absent_parts(trained.shapes, trained.config))


def _published(path: Place, folder: PublishedFolder) -> TrainedModel:
    model = open_model_directory(path, folder=folder)
    shapes = parameter_shapes(model.config, model.absent)
    task, obstacle = None, None
    try:
        task = vectors_task(model.directory, model.config, model.tokenizer, model.longest)
    except UsageError as error:
        obstacle = str(error)
    return TrainedModel(
        path,
        model.config,
        model.tokenizer,
        shapes,
        lambda shardings: jax.device_put(model.parameters(), shardings),
        Provenance(imported_from=path.name, readings=(model.reading,)),
        task,
        obstacle,
    )


def _opened(
    source: Place | RunFiles,
    step: int | None = None,
    average: int | None = None,
    training_heads: Parameters | None = None,
) -> TrainedModel:
    run = source if isinstance(source, RunFiles) else RunFiles(source)
    if not run.published:
        return _trained_here(run, step, average, training_heads or {})
    if step is not None or average is not None:
        raise not_of_a_run(run.path)
    return _published(run.path, run.published)


def _trained_here(run: RunFiles, step: int | None, average: int | None, training_heads: Parameters) -> TrainedModel:
    chosen = chosen_checkpoint(run, step, newest=average is not None)
    checkpoint, manifest = chosen.path, chosen.manifest
    tokenizer, settings = chosen.files.tokenizer, chosen.files.config
    if checkpoint != run.path:
        if run.damage:
            warn(
                f"{run.path}: {run.damage}; the copy in {checkpoint.name} is used (bert-jax verify looks at all files)"
            )
        else:
            run.refuse_foreign(chosen.files)
    config, task = _sized(settings, manifest.step, tokenizer, checkpoint), settings.task
    saved = saved_shapes(checkpoint)
    shapes = (
        task_parameter_shapes(config, HeadShape.of(task))
        if task
        else parameter_shapes(config, absent_parts(saved, config)) | training_heads
    )
    of_training = _has_parts_of_training(settings)
    _refuse_others(checkpoint, saved, shapes, of_training)
    _refuse_bombs(checkpoint, shapes, sum(total.size for total in manifest.files.values()))
    begin = settings.steps_of(settings.phase_of(manifest.step)).start
    averaged = earlier_undamaged(run, checkpoint, average - 1, after=begin) if average else []
    for before in averaged:
        run.refuse_foreign(before.files)
        _refuse_others(before.path, saved_shapes(before.path), shapes, of_training)
    earlier = [before.path for before in averaged]

    def read(shardings: PyTree) -> Parameters:
        reads = [functools.partial(load_parameters, one) for one in (checkpoint, *earlier)]
        return mean_of(reads, abstract(shapes, shardings))

    steps = (*(int(one.name) for one in reversed(earlier)), manifest.step)
    provenance = Provenance(settings, steps, chosen.files.origin)
    return TrainedModel(run.path, config, tokenizer, shapes, read, provenance, task)


def _sized(settings: AnyRunConfig, step: int, tokenizer: Tokenizer, checkpoint: Place) -> ModelConfig:
    """The settings of the model after `step`, with its vocabulary's size and its phase's positions. Raises UsageError
    if they are for another vocabulary."""
    model, pieces = settings.model, len(tokenizer.vocabulary)
    if model.vocabulary_size not in (None, pieces):
        raise UsageError(
            f"{checkpoint}: its tokenizer has {pieces:,} pieces and its config.json says {model.vocabulary_size:,}; "
            "they don't belong together"
        )
    base = settings.phases[settings.phase_of(step)].rotary_base or model.rotary_base
    return model.replace(vocabulary_size=pieces, rotary_base=base)


def _has_parts_of_training(settings: AnyRunConfig) -> bool:
    """Whether a checkpoint may have parts that only the training uses: heads of a Python program's own objective, the
    head for tags, and the teacher."""
    asked = settings.objective
    is_taught = isinstance(settings, RunConfig) and settings.teacher is not None
    return is_taught or bool(asked and (asked.class_name or asked.tags))


def _say_of_tags(trained: TrainedModel) -> None:
    """Prints that the head for tags is left out, if the model was pretrained with one."""
    settings = trained.provenance.settings
    if settings and settings.objective and settings.objective.tags and "tag" not in trained.shapes:
        say(f"{trained.path}: the head for the tags of {settings.objective.tags} is left out")


def _refuse_others(checkpoint: Place, saved: Parameters, shapes: Parameters, has_further_parts: bool) -> None:
    """Raises UsageError if the parameters `saved` in a checkpoint don't have the shapes of its model. With
    `has_further_parts` they may have further parts."""
    if has_further_parts:
        saved = {part: tree for part, tree in saved.items() if part in shapes}
    if jax.tree.map(lambda leaf: tuple(leaf.shape), saved) != jax.tree.map(lambda leaf: leaf.shape, shapes):
        raise UsageError(f"{checkpoint}: its parameters aren't those of its config.json; they don't belong together")


def _averaged(path: Place, steps: Sequence[int], wanted: int) -> str:
    """A message that names the averaged steps and, if they are fewer than `wanted`, tells how to keep more."""
    mean = f"the mean of the parameters saved at steps {', '.join(map(str, steps))} is used"
    if len(steps) == wanted:
        return f"{path}: {mean}"
    return (
        f"{path} keeps {counted(len(steps), 'saved steps')} of this phase, not {wanted}: {mean}; train with "
        f"--checkpoints.keep {wanted} to keep more"
    )


def _refuse_bombs(checkpoint: Place, shapes: Parameters, stored: int) -> None:
    """Refuses parameters that take far more memory than their files have bytes: trained ones hardly compress."""
    wanted = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    if wanted > _MOST_COMPRESSED * stored:
        raise RunError(
            f"{checkpoint} has {stored:,} bytes and its parameters would take {wanted:,} of memory, more than "
            f"{_MOST_COMPRESSED} times as many; it is damaged, or no model"
        )


def import_model(
    source: str | Place, directory: Place, activation: Activation | None, lowercase: bool | None
) -> PublishedModel:
    """Writes a run at `directory` whose only checkpoint, at step 0, is the model of `source`.

    `model_place` describes `source`; `open_model_directory` describes `activation`, `lowercase` and the errors. The run
    has no training state; other runs start from it. A model that sentence-transformers wrote becomes a run of kind
    `vectors` with its pooling, as `vectors_task` describes.
    """
    model = open_model_directory(model_place(source, "a folder with a model's files"), activation, lowercase)
    task = vectors_task(model.directory, model.config, model.tokenizer, model.longest)
    if task:
        model = model.encoder_alone("vectors of texts are made without it")
        say(f"{source}: a vector for each text, pooled by {task.pooling}; texts are cut to {task.max_length} pieces")
    save_model(directory, model.config, model.parameters(), model.tokenizer, task, str(source), (model.reading,))
    return model


def save_model(
    directory: Place,
    config: ModelConfig,
    params: Parameters,
    tokenizer: Tokenizer,
    task: TaskConfig | None,
    origin: str = "a program",
    readings: tuple[Reading, ...] = (),
) -> None:
    """Writes a run at `directory` whose only checkpoint, at step 0, has `params` and no training state. Raises
    UsageError if `directory` exists and isn't empty, or if the parameters aren't those of `config` and `task`."""
    check_name(directory, written=True)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), jax.device_get(params))
    absent = absent_parts(params, config)
    shapes = task_parameter_shapes(config, HeadShape.of(task)) if task else parameter_shapes(config, absent)
    _refuse_others(directory, params, shapes, has_further_parts=False)
    if task:  # the run is never trained, and has no rows
        phase = Phase(steps=1, length=task.max_length, batch_size=task.batch_size)
        settings: AnyRunConfig = TaskRunConfig(model=config, task=task, rows_hash="", phases=(phase,))
    else:
        settings = _run_config(config, tokenizer, absent)
    with new_directory(directory) as temporary:
        run = RunDirectory(temporary)
        write_config(run.config_file, settings, imported_from=origin)
        run.save_tokenizer(tokenizer)
        run.keep(*readings)
        write_model(run.checkpoints, params, (run.config_file, run.tokenizer_directory))


def _run_config(model: ModelConfig, tokenizer: Tokenizer, absent: Collection[str]) -> RunConfig:
    """Settings of a run for a model that no run pretrained. `absent`: parts that the model lacks."""
    vocabulary = VocabularyConfig()
    if isinstance(tokenizer, WordPieceTokenizer):
        cleaning = tokenizer.cleaning
        vocabulary = vocabulary.replace(
            lowercase=cleaning.lowercase, strip_accents=cleaning.strip_accents, unicode_form=cleaning.form
        )
    # Without a head for pairs, or without a second segment, the run has no question about pairs.
    has_pairs = model.has_pair_head and "next_sentence" not in absent and model.num_segments > 1
    pair = relative_of({"model_type": model.model_type}, "model.model_type").pair if has_pairs else "none"
    objective = ObjectiveConfig(predict=prediction_of(model), pair=pair)
    # The run is never trained; `evaluate` takes the length of sequences from the phase.
    phase = Phase(steps=1, length=model.max_positions, batch_size=8)
    return RunConfig(model=model, vocabulary=vocabulary, objective=objective, phases=(phase,))
