"""A model in a folder of Hugging Face's kind, or of Google's."""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.model_settings import Activation, model_config
from bert_jax.interchange.names import to_parameters
from bert_jax.interchange.settings_file import read_settings
from bert_jax.interchange.tensorflow_checkpoint import find_tensorflow_checkpoint, read_tensorflow_checkpoint
from bert_jax.interchange.tensors import INDEX, WEIGHTS, Tensor, read_safetensors, select
from bert_jax.interchange.tokenizer_files import read_tokenizer
from bert_jax.model.bert import Parameters
from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer import Tokenizer

HUGGING_FACE_CONFIG, GOOGLE_CONFIG = "config.json", "bert_config.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl")
_OTHERS = ("*.h5", "*.msgpack", "*.onnx")


class PublishedModel(NamedTuple):
    """A model as others publish it, opened and checked; its tensors are read when they are wanted."""

    config: ModelConfig
    tokenizer: Tokenizer
    absent: frozenset[str]
    """Parts that it lacks; of OPTIONAL_PARTS."""
    unused: dict[str, str]
    """Tensors that are not taken, by the file's name for them, and why."""
    slots: list[str]
    """Tensors of the optimizer, ignored."""
    tensors: dict[str, Tensor]

    def parameters(self) -> Parameters:
        """Numpy arrays in float32, without the absent parts. Raises UsageError for a tensor that isn't of floats."""
        return to_parameters(lambda name: _floats(self.tensors[name]), self.config, self.absent)


def holds_published_model(path: Path) -> bool:
    """Whether `path` is a folder that another program wrote a model to; a run's config.json has a schema_version."""
    if (path / GOOGLE_CONFIG).is_file():
        return True
    return (path / HUGGING_FACE_CONFIG).is_file() and "schema_version" not in read_settings(path / HUGGING_FACE_CONFIG)


def open_model_directory(
    directory: Path, activation: Activation | None = None, lowercase: bool | None = None
) -> PublishedModel:
    """The model in `directory`, which has safetensors files or a TensorFlow checkpoint, a config and a vocabulary.

    `activation` and `lowercase` are for files that leave them open: Google's, where None means the tanh form of GELU,
    as its code has it since February 2019, and the casing of the vocabulary's own letters. Raises UsageError where
    something is missing, damaged, or doesn't belong to the rest; nothing is ever unpickled.
    """
    prefix = find_tensorflow_checkpoint(directory)
    if any((directory / name).is_file() for name in (WEIGHTS, INDEX)):
        tensors, slots = read_safetensors(directory), []
    elif prefix:
        tensors, slots = read_tensorflow_checkpoint(prefix)
        activation = activation or "gelu_tanh"
    else:
        raise UsageError(_nothing_to_read(directory))
    name = HUGGING_FACE_CONFIG if (directory / HUGGING_FACE_CONFIG).is_file() else GOOGLE_CONFIG
    values = read_settings(directory / name)
    config = model_config(values, directory / name, activation)
    selection = select(tensors, config, directory)
    tokenizer = read_tokenizer(directory, config, lowercase)
    pad_id = values.get("pad_token_id")
    if pad_id not in (None, tokenizer.vocabulary.pad_id):
        raise UsageError(
            f"{directory / name}: pad_token_id is {pad_id}, and [PAD] is piece {tokenizer.vocabulary.pad_id} of the "
            "vocabulary; tokenizer and model don't belong together"
        )
    return PublishedModel(config, tokenizer, selection.absent, selection.unused, slots, tensors)


def _nothing_to_read(directory: Path) -> str:
    for patterns, what in ((_PICKLES, "a pickle, which can run any code when it is read"), (_OTHERS, "not read here")):
        if found := sorted(path.name for pattern in patterns for path in directory.glob(pattern)):
            return (
                f'{directory / found[0]} is {what}; convert it where that is safe: python -c "from transformers '
                f"import AutoModelForPreTraining as Model; Model.from_pretrained('{directory}')"
                ".save_pretrained('converted')\", and put its vocabulary there too"
            )
    return f"{directory} has neither {WEIGHTS} nor a TensorFlow checkpoint; give a folder that has one"


def _floats(tensor: Tensor) -> np.ndarray:
    array = tensor.read()
    if not re.match(r"b?float", array.dtype.name):
        raise UsageError(f"{tensor.source} holds {array.dtype.name} numbers; floats of 16 to 64 bits were expected")
    return array
