"""Writes a published model as a run, to be used or to start from."""

from bert_jax.run.orbax_reading import check_name

from bert_jax.config.finetune import TaskRunConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.vocabulary import VocabularyConfig
from bert_jax.interchange.hub import model_place
from bert_jax.interchange.model_directory import PublishedModel, open_model_directory
from bert_jax.interchange.model_settings import Activation
from bert_jax.interchange.pooling_files import vectors_task
from bert_jax.interchange.relatives import relative_of
from bert_jax.run.checkpoint import write_model
from bert_jax.run.run_config import write_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import Place
from bert_jax.system.files import new_directory
from bert_jax.system.progress import say
from bert_jax.text.wordpiece import WordPieceTokenizer


def import_model(
    source: str | Place, directory: Place, activation: Activation | None = None, lowercase: bool | None = None
) -> PublishedModel:
    """Writes a run at `directory` whose one checkpoint, at step 0, is the model of `source`.

    `model_place` describes `source`; `open_model_directory` describes `activation`, `lowercase` and the errors. The run
    has no training state; other runs start from it. A model that sentence-transformers wrote becomes a run of kind
    `vectors` with its pooling, as `vectors_task` describes.
    """
    check_name(directory, written=True)
    model = open_model_directory(model_place(source), activation, lowercase)
    task = vectors_task(model)
    if task:
        model = model.encoder_alone("vectors of texts are made without it")
        say(f"{source}: a vector for each text, pooled by {task.pooling}; texts are cut to {task.max_length} pieces")
    config = _task_config(model, task) if task else _run_config(model)
    with new_directory(directory) as temporary:
        run = RunDirectory(temporary)
        write_config(run.config_file, config, imported_from=str(source))
        run.save_tokenizer(model.tokenizer)
        run.keep(model.reading)
        write_model(run.checkpoints, model.parameters(), (run.config_file, run.tokenizer))
    return model


def _task_config(model: PublishedModel, task: TaskConfig) -> TaskRunConfig:
    # The run is never trained, and has no rows.
    phase = Phase(steps=1, length=task.max_length, batch_size=task.batch_size)
    return TaskRunConfig(model=model.config, task=task, rows_hash="", phases=(phase,))


def _run_config(model: PublishedModel) -> RunConfig:
    tokenizer, vocabulary = model.tokenizer, VocabularyConfig()
    if isinstance(tokenizer, WordPieceTokenizer):
        cleaning = tokenizer.cleaning
        vocabulary = vocabulary.replace(
            lowercase=cleaning.lowercase, strip_accents=cleaning.strip_accents, unicode_form=cleaning.form
        )
    # No head for pairs, or no segment for the second: no question about them.
    has_pairs = "next_sentence" not in model.absent and model.config.num_segments > 1
    objective = ObjectiveConfig(pair="none")
    if model.config.discriminator:
        objective = ObjectiveConfig(predict="replaced", pair="none")
    elif has_pairs:
        objective = ObjectiveConfig(pair=relative_of(model.config.model_type, "model.model_type").pair)
    # The run is never trained; `evaluate` takes the length of sequences from the phase.
    phase = Phase(steps=1, length=model.config.max_positions, batch_size=8)
    return RunConfig(model=model.config, vocabulary=vocabulary, objective=objective, phases=(phase,))
