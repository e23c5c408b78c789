"""A model in a folder of Hugging Face's kind, or of Google's."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.json_file import read_object
from bert_jax.interchange.model_settings import Activation, model_config
from bert_jax.interchange.names import to_parameters
from bert_jax.interchange.tensorflow_checkpoint import find_tensorflow_checkpoint, read_tensorflow_checkpoint
from bert_jax.interchange.tensors import INDEX, WEIGHTS, Tensor, read_safetensors, select
from bert_jax.interchange.tokenizer_reading import read_tokenizer
from bert_jax.model.bert import Parameters
from bert_jax.system.bucket import Place
from bert_jax.system.copies import fetched
from bert_jax.system.errors import UsageError, shown
from bert_jax.text.tokenizer import Tokenizer

HUGGING_FACE_CONFIG, GOOGLE_CONFIG = "config.json", "bert_config.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl")
_OTHERS = ("*.h5", "*.msgpack", "*.onnx")
_FLOATS = ("float32", "float16", "bfloat16", "float64")


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


def holds_published_model(path: Place) -> bool:
    """Whether `path` is a folder that another program wrote a model to; a run's config.json has a schema_version."""
    if (path / "checkpoints").is_dir() or (path / "manifest.json").is_file():
        return False  # a run, or a checkpoint of one, however damaged its config.json
    if (path / GOOGLE_CONFIG).is_file():
        return True
    config = path / HUGGING_FACE_CONFIG
    return config.is_file() and "schema_version" not in read_object(fetched(config))


def open_model_directory(
    directory: Place, activation: Activation | None = None, lowercase: bool | None = None
) -> PublishedModel:
    """The model in `directory`, which has safetensors files or a TensorFlow checkpoint, a config and a vocabulary.

    `activation` and `lowercase` go before what the files say. Where these leave it open, as Google's do, GELU has the
    tanh form, which their code has since February 2019, and the vocabulary's own letters tell its casing. Raises
    UsageError where something is missing, damaged, or doesn't belong to the rest; nothing is ever unpickled.
    """
    if not directory.is_dir():
        raise UsageError(f"there is no folder {directory}; give one with a model's files")
    directory = fetched(directory)
    slots: list[str] = []
    if any((directory / name).is_file() for name in (WEIGHTS, INDEX)):
        tensors, not_listed = read_safetensors(directory)
        of_google = False
    elif prefix := find_tensorflow_checkpoint(directory):
        (tensors, slots), not_listed = read_tensorflow_checkpoint(prefix), []
        of_google = True
    else:
        raise UsageError(_nothing_to_read(directory))
    path = _config_file(directory)
    values = read_object(path)
    config = model_config(values, path, activation, of_google)
    selection = select(tensors, config, directory)
    tokenizer = read_tokenizer(directory, config, lowercase)
    pad_id = values.get("pad_token_id")
    if pad_id not in (None, tokenizer.vocabulary.pad_id):
        raise UsageError(
            f"{path}: pad_token_id is {shown(pad_id)}, and [PAD] is piece {tokenizer.vocabulary.pad_id} of the "
            "vocabulary; tokenizer and model don't belong together"
        )
    unused = selection.unused | dict.fromkeys(not_listed, f"not listed in {INDEX}")
    return PublishedModel(config, tokenizer, selection.absent, unused, slots, tensors)


def _config_file(directory: Path) -> Path:
    for name in (HUGGING_FACE_CONFIG, GOOGLE_CONFIG):
        if (directory / name).is_file():
            return directory / name
    raise UsageError(f"{directory} has neither {HUGGING_FACE_CONFIG} nor {GOOGLE_CONFIG}; put the model's there")


def _nothing_to_read(directory: Path) -> str:
    """Why there is no model: what lies there instead, and what to do about it."""
    if found := sorted(path.name for pattern in _PICKLES for path in directory.glob(pattern)):
        # Of its own class: another one would be given random heads.
        kind = _architecture(directory)
        script = (
            f"import sys, transformers; transformers.{kind}.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])"
        )
        command = f"python -c {shlex.quote(script)} {shlex.quote(str(directory))} converted"
        return (
            f"{directory / found[0]} is a pickle, which can run any code when it is read; convert it where that is "
            f"safe: {command} ; and put its vocabulary there too"
        )
    if found := sorted(path.name for pattern in _OTHERS for path in directory.glob(pattern)):
        return f"{directory / found[0]} is of a kind that isn't read here; give the model as safetensors"
    return f"{directory} has neither {WEIGHTS} nor a TensorFlow checkpoint; give a folder that has one"


def _architecture(directory: Path) -> str:
    """The class that config.json names, if it names one of BERT's."""
    path = directory / HUGGING_FACE_CONFIG
    named = read_object(path).get("architectures") if path.is_file() else None
    first = named[0] if isinstance(named, list) and named else None
    return first if isinstance(first, str) and re.fullmatch(r"Bert\w+", first) else "AutoModel"


def _floats(tensor: Tensor) -> np.ndarray:
    """The tensor in float32."""
    array = tensor.read()
    if array.dtype.name not in _FLOATS:
        raise UsageError(f"{tensor.source} holds {array.dtype.name} numbers; one of {', '.join(_FLOATS)} was expected")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        raise UsageError(f"{tensor.source} holds numbers that aren't finite in float32; the model is damaged")
    return array
