"""The trainer of pretraining."""

from jax.sharding import Mesh

from bert_jax.config.run import RunConfig
from bert_jax.pretraining.objective import PretrainingObjective
from bert_jax.system.errors import UsageError
from bert_jax.training.trainer import Trainer


def pretraining_trainer(config: RunConfig, mesh: Mesh, vocabulary_size: int, mask_id: int) -> Trainer:
    """Needs no data, only the size of the vocabulary and the id of [MASK].

    Raises UsageError where the settings name another size.
    """
    if config.model.vocabulary_size not in (None, vocabulary_size):
        raise UsageError(
            f"model.vocabulary_size={config.model.vocabulary_size} and the vocabulary has {vocabulary_size} "
            "pieces; leave the setting out: it is taken from the vocabulary"
        )
    model = config.model.replace(vocabulary_size=vocabulary_size)
    return Trainer(config, mesh, PretrainingObjective(config.objective, model, mask_id, config.execution))


def planned_vocabulary_size(config: RunConfig) -> int:
    """Pieces of the vocabulary before there is one: of that which is given, or what the settings name.

    Raises UsageError where a given one can't be read.
    """
    if config.vocabulary.file or config.init:
        from bert_jax.pretraining.vocabulary import (
            given_tokenizer,  # needs the tokenizers' libraries; else none does
        )

        return len(given_tokenizer(config).vocabulary)
    return config.model.vocabulary_size or config.vocabulary.size
