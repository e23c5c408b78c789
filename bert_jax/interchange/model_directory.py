"""Reads models from directories in the format of Hugging Face or of Google's BERT release."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.model_folder import GOOGLE_CONFIG, HUGGING_FACE_CONFIG, MERGE, other_model
from bert_jax.interchange.model_path import INDEX, WEIGHTS
from bert_jax.interchange.model_settings import Activation, architecture_of, model_config, model_facts
from bert_jax.interchange.pooling_files import has_modules, read_modules
from bert_jax.interchange.relatives import RELATIVES, Relative, relative_of
from bert_jax.interchange.tensor_names import SEGMENTS, expected_tensors, select, to_parameters
from bert_jax.interchange.tensorflow_checkpoint import find_tensorflow_checkpoint, read_tensorflow_checkpoint
from bert_jax.interchange.tensors import Tensor, read_safetensors
from bert_jax.interchange.tokenizer_config import SPECIAL_NAMES, PublishedFolder
from bert_jax.interchange.tokenizer_files import read_tokenizer
from bert_jax.model.bert import PART_NAMES, Parameters, absent_parts
from bert_jax.system.bucket import Place
from bert_jax.system.copies import fetched
from bert_jax.system.errors import UsageError, command_line, quoted
from bert_jax.system.json_file import JsonObject, read_foreign_object
from bert_jax.system.progress import say
from bert_jax.system.reading import Fact, Reading
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import Vocabulary

_PICKLES = ("pytorch_model*.bin", "*.bin", "*.pt", "*.pth", "*.pkl")
"""Patterns of pickles that may hold weights; those of the first are named first."""
_NO_WEIGHTS = re.compile(r"training_args\.bin|(?:optimizer|scheduler|scaler)\.(?:pt|bin)|rng_state.*\.pth")
"""Names of pickles of a Trainer that hold no weights."""
_FLOATS = ("float32", "float16", "bfloat16", "float64")


class PublishedModel(NamedTuple):
    """A model of another program, opened and checked. Its tensors are read on demand."""

    config: ModelConfig
    tokenizer: Tokenizer
    absent: frozenset[str]
    """The members of OPTIONAL_PARTS that the model lacks."""
    unused: dict[str, str]
    """The reason why a tensor isn't used, by the tensor's name in the file."""
    slots: list[str]
    """Names of the optimizer's tensors, which are ignored."""
    tensors: dict[str, Tensor]
    """The model's tensors by BERT's current names."""
    directory: Path
    """The directory of its files, or of a local copy."""
    longest: float | None
    """The model_max_length of its tokenizer."""
    reading: Reading
    """How its files were understood."""

    def parameters(self) -> Parameters:
        """Reads the parameters as float32 numpy arrays, without absent parts. Raises UsageError if a tensor doesn't
        hold finite floating-point numbers."""
        return to_parameters(lambda name, *rows: _floats(self.tensors[name], *rows), self.config, self.absent)

    def encoder_alone(self, reason: str) -> "PublishedModel":
        """The encoder without pooler and heads; `reason` says why their tensors aren't used."""
        of_encoder = {named.name for named in expected_tensors(self.config) if named.part is None}
        others = {tensor.source: reason for name, tensor in self.tensors.items() if name not in of_encoder}
        config, unused = self.config.encoder, self.unused | others
        absent = absent_parts({"bert": {}}, config)
        tensors = {name: tensor for name, tensor in self.tensors.items() if name in of_encoder}
        counted = _tensor_facts(tensors, absent, unused, self.slots)
        facts = [counted if fact.name == counted.name else fact for fact in self.reading.facts]
        reading = self.reading.model_copy(update={"facts": facts})
        return self._replace(config=config, absent=absent, unused=unused, tensors=tensors, reading=reading)


def open_model_directory(
    place: Place,
    activation: Activation | None = None,
    lowercase: bool | None = None,
    folder: PublishedFolder | None = None,
) -> PublishedModel:
    """Opens the model in the folder `place`: safetensors files or a TensorFlow checkpoint, a config, and a vocabulary.

    Rows of the word table after those of the vocabulary's pieces are kept.

    `activation` and `lowercase` override the files. Without `activation`, `gelu` in Google's files means the tanh form,
    which Google's code has used since February 2019. If neither `lowercase` nor a file states the casing, as in
    Google's files, the letters of the vocabulary decide it. `folder`: the same folder, if some of its files were read
    already. Pickles are never read. Raises UsageError if a file is missing, damaged, or inconsistent with the others.
    """
    if not place.is_dir():
        raise UsageError(f"there is no folder {place}; give one with a model's files")
    directory = fetched(place)
    folder = folder or PublishedFolder(directory)
    checkpoint = _tensorflow_checkpoint(directory)
    path, values = _settings(folder)
    stored = _stored_tensors(directory, checkpoint, path, values)
    config = model_config(values, path, activation, is_google=bool(checkpoint))
    selected, absent, unused = select(stored.tensors, config, directory, stored.relative, architecture_of(values))
    unused |= dict.fromkeys(stored.not_listed, f"not listed in {INDEX}")
    tokenizer, has_segments, tokenizer_facts = read_tokenizer(folder, config, lowercase)
    _check_tokenizer(tokenizer.vocabulary, values, path, config)
    config, selected = _fitted_to_tokenizer(config, selected, len(tokenizer.vocabulary), has_segments)
    facts = [
        *model_facts(values, config, path.name, activation, is_google=bool(checkpoint)),
        _tensor_facts(selected, absent, unused, stored.slots),
        *tokenizer_facts,
    ]
    remark = tokenizer.impossible_remark
    reading = Reading(subject=f"model {place}", facts=facts, remarks=[remark] if remark else [])
    return PublishedModel(
        config, tokenizer, absent, unused, stored.slots, selected, directory, folder.config.model_max_length, reading
    )


def _tensorflow_checkpoint(directory: Path) -> Path | None:
    """The TensorFlow checkpoint in the folder; None if it has safetensors files, which come first. Raises UsageError if
    it has neither."""
    if any((directory / name).is_file() for name in (WEIGHTS, INDEX)):
        return None
    if not (checkpoint := find_tensorflow_checkpoint(directory)):
        raise UsageError(_nothing_to_read(directory))
    return checkpoint


def _settings(folder: PublishedFolder) -> tuple[Path, JsonObject]:
    """The model's config file and its values. Raises UsageError if there is none."""
    for name in (HUGGING_FACE_CONFIG, GOOGLE_CONFIG):
        if (values := folder.values(name)) is not None:
            return folder.path / name, values
    raise UsageError(f"{folder.path} has neither {HUGGING_FACE_CONFIG} nor {GOOGLE_CONFIG}; put the model's there")


class _StoredTensors(NamedTuple):
    """The tensors of a folder under the names of its files."""

    tensors: dict[str, Tensor]
    relative: Relative
    """The family whose names they have."""
    slots: list[str] = []
    """Names of the optimizer's tensors."""
    not_listed: list[str] = []
    """Names of tensors that are in a file and not in its index."""


def _stored_tensors(directory: Path, checkpoint: Path | None, path: Path, values: JsonObject) -> _StoredTensors:
    """The tensors of `checkpoint`, or of the safetensors files in `directory`. `values`: the settings in the file
    `path`. Raises UsageError for an adapter, and for a family that isn't known."""
    if checkpoint:
        tensors, slots = read_tensorflow_checkpoint(checkpoint)
        return _StoredTensors(tensors, RELATIVES["bert"], slots)
    tensors, not_listed = read_safetensors(directory)
    if adapters := sorted(directory.glob("adapter_*")):
        say(f"the lora_ tensors beside the model, {adapters[0]}, are an adapter and aren't used; {MERGE}")
    if any(".base_layer." in name for name in tensors):
        raise UsageError(f"{directory}: its tensors are named as a model and an adapter (base_layer); {MERGE}")
    return _StoredTensors(tensors, relative_of(values, str(path)).of_file(values), not_listed=not_listed)


def _check_tokenizer(vocabulary: Vocabulary, values: JsonObject, path: Path, config: ModelConfig) -> None:
    """Raises UsageError if the tokenizer doesn't belong to the model, by the ids of special pieces in `values`, read
    from `path`, and by the place of the class token."""
    for name, number, piece in zip(SPECIAL_NAMES, vocabulary.special_ids, vocabulary.special, strict=True):
        written = values.get(f"{name}_id")
        if written in (None, number):
            continue
        # The padding's id changes the computation only in fairseq's relatives, which number positions after it.
        if name != "pad_token" or config.first_position:
            raise UsageError(
                f"{path}: {name}_id is {quoted(written)}, and {piece} is piece {number} of the vocabulary; tokenizer "
                "and model don't belong together"
            )
        say(f"{path}: {name}_id is {quoted(written)}; padding is piece {number}, as the tokenizer says")
    if config.class_token == "last" and vocabulary.class_token != "last":
        raise UsageError(
            f"{path.parent}: the tokenizer sets {vocabulary.framed('text')}, and the model has its class token after "
            "the text; tokenizer and model don't belong together"
        )


def _fitted_to_tokenizer(
    config: ModelConfig, tensors: dict[str, Tensor], pieces: int, has_segments: bool
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """The config and the tensors of a model, as its tokenizer uses them; reports what the tokenizer never uses.

    `pieces`: the size of the tokenizer's vocabulary. `has_segments`: whether it tells the texts of a pair apart.
    """
    if (rows := config.num_word_rows) > pieces:
        say(f"the model has {rows:,} rows for {pieces:,} pieces: {rows - pieces:,} are kept and never predicted")
        config = config.replace(vocabulary_size=pieces, word_rows=rows)
    if config.num_segments > 1 and not has_segments:
        # Such tokenizers, for example XLM-R's, give no segments: transformers puts both texts of a pair in segment 0.
        say(f"of {config.num_segments} segments the first alone is kept: the tokenizer puts both texts of a pair in it")
        config = config.replace(num_segments=1)
        tensors = tensors | {SEGMENTS: tensors[SEGMENTS].rows(0, 1)}
    return config, tensors


def _tensor_facts(tensors: Collection[str], absent: Collection[str], unused: Collection[str], slots: list[str]) -> Fact:
    """Text about the number of used tensors and the parts that the model lacks."""
    left_out = f", {len(unused)} not used" if unused else ""
    left_out += f", {len(slots)} of the optimizer ignored" if slots else ""
    lacking = f"; without {' and '.join(PART_NAMES[part] for part in sorted(absent))}" if absent else ""
    return Fact(name="tensors", value=f"{len(tensors)} taken{left_out}{lacking}", known_by="")


def _nothing_to_read(directory: Path) -> str:
    """The error message for a directory without readable weights: what it contains instead, and the remedy. Raises
    UsageError if modules.json names another folder for the weights."""
    if has_modules(directory):
        read_modules(directory)
    if other := other_model(directory):
        return other
    names = [path.name for pattern in _PICKLES for path in sorted(directory.glob(pattern))]
    if pickles := [name for name in dict.fromkeys(names) if not _NO_WEIGHTS.fullmatch(name)]:
        if pickles == ["model.pt"] and not (directory / HUGGING_FACE_CONFIG).is_file():
            return (
                f"{directory / 'model.pt'} is fairseq's checkpoint, a pickle, which isn't read here; convert it where "
                "that is safe by transformers' convert_roberta_original_pytorch_checkpoint_to_pytorch.py, and give the "
                "folder that it writes"
            )
        # The remedy converts with the model's own class, since another class would add random heads.
        config = directory / HUGGING_FACE_CONFIG
        kind = architecture_of(read_foreign_object(config)) if config.is_file() else ""
        if not re.fullmatch(rf"({'|'.join(relative.classes for relative in RELATIVES.values())})\w+", kind):
            kind = "AutoModel"
        script = (
            f"import sys, transformers; transformers.{kind}.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])"
        )
        command = command_line("python", "-c", script, directory, "converted")
        return (
            f"{directory / pickles[0]} is a pickle, which can run any code when it is read; convert it where that is "
            f"safe: {command} ; and put its vocabulary there too"
        )
    return f"{directory} has neither {WEIGHTS} nor a TensorFlow checkpoint; give a folder that has one"


def _floats(tensor: Tensor, *rows: int) -> np.ndarray:
    """Reads a tensor, or `rows` of it, as float32. Raises UsageError if it doesn't hold finite floating-point
    numbers."""
    array = tensor.read(*rows)
    if array.dtype.name not in _FLOATS:
        raise UsageError(f"{tensor.source} holds {array.dtype.name} numbers; one of {', '.join(_FLOATS)} was expected")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        raise UsageError(f"{tensor.source} holds numbers that aren't finite in float32; the model is damaged")
    return array
