"""Writes a model in the format of Hugging Face's transformers."""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax.config.model import ModelConfig
from bert_jax.config.task import TaskConfig
from bert_jax.interchange.model_folder import HUGGING_FACE_CONFIG
from bert_jax.interchange.model_path import WEIGHTS
from bert_jax.interchange.model_settings import config_values, head_values
from bert_jax.interchange.pooling_files import write_pooling
from bert_jax.interchange.relatives import RELATIVES, Relative, exported_type
from bert_jax.interchange.tensor_names import to_tensors
from bert_jax.interchange.tokenizer_files import write_tokenizer
from bert_jax.model.bert import Parameters, absent_parts, generator_parameters, without
from bert_jax.system.bucket import Place
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.files import new_directory, write_json, write_text
from bert_jax.system.json_file import JsonObject
from bert_jax.system.progress import say
from bert_jax.system.safetensors_file import write_safetensors
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import Vocabulary

GENERATOR = "generator"
"""Name of the directory of a generator in that of its discriminator."""


class _Exported(NamedTuple):
    """A model as transformers' files describe it."""

    relative: Relative
    class_name: str
    values: JsonObject
    """The contents of config.json."""
    params: Parameters
    """The parameters, without the heads that the pretrained classes of the relative don't have."""


def _exported(
    config: ModelConfig, params: Parameters, vocabulary: Vocabulary, task: TaskConfig | None = None
) -> _Exported:
    """The exported model. `params`: its parameters, or their shapes. Raises UsageError if it can't be exported."""
    if config.causal and task:
        raise UsageError(
            f"the model is causal ({Setting('model.causal')}), and the heads of tasks in transformers' causal classes "
            "take the last token; use the run itself, by bert-jax predict"
        )
    if config.layer == "lstm":
        raise UsageError(
            f"the model has LSTM layers ({Setting('model.layer', config.layer)}), and transformers has no class for "
            f"them; only models with {Setting('model.layer', 'attention')} can be exported"
        )
    relative = RELATIVES[exported_type(config)]
    if config.mask_decoder and not config.discriminator:
        params = without(params, ["masked_lm"])
    if not task:
        params = without(params, relative.lacks)
        class_of_bert = _class_with(absent_parts(params, config), config.has_pair_head)
    elif task.task_kind.exported_as and not task.mix_layers:
        class_of_bert = task.task_kind.exported_as
        if task.makes_vectors:
            params = without({"bert": params["bert"]}, ["bert/pooler"])
    else:
        raise UsageError(
            f"transformers has no class with the head of task {task.name} ({Setting('task.kind', task.kind)}, "
            f"{Setting('task.mix_layers', task.mix_layers)}); use the run itself, by bert-jax predict"
        )
    suffix = class_of_bert.removeprefix("Bert")
    class_name = relative.classes + relative.suffixes.get(suffix, suffix)
    if suffix in relative.classless:
        raise UsageError(f"transformers has no class {class_name}; use the run itself, by bert-jax predict")
    values = config_values(config, vocabulary, class_name, has_pooler="pooler" in params["bert"])
    return _Exported(relative, class_name, values | (head_values(task) if task else {}), params)


def export_obstacle(config: ModelConfig, params: Parameters, vocabulary: Vocabulary) -> str | None:
    """Why a pretrained model can't be exported; None if it can. `params` may be shapes, so that this can be known
    before the training."""
    try:
        _exported(config, params, vocabulary)
        if config.generator and "generator" in params:
            _exported(config.generator, generator_parameters(params), vocabulary)
    except UsageError as error:
        return str(error)
    return None


def write_model_directory(
    directory: Place,
    config: ModelConfig,
    params: Parameters,
    tokenizer: Tokenizer,
    task: TaskConfig | None = None,
    card: Callable[[ModelConfig, str], str] | None = None,
) -> str:
    """Writes config.json, model.safetensors and the tokenizer's files; returns the name of the model's class.

    A model fine-tuned for `task` gets the class with the head of the task, and its labels. A model of vectors is
    written as the encoder without pooler, with the files that sentence-transformers reads (`write_pooling`).

    A pretrained model can be loaded by AutoModelForPreTraining if it has both heads, by AutoModelForMaskedLM if it
    lacks the next-sentence head, by AutoModel if it lacks both, and by AutoModelForCausalLM if it is causal. Heads that
    a relative doesn't have, such as RoBERTa's for pairs, are left out. `card` maps a model and the name of its class to
    the text of a README.md.

    A discriminator is loaded by AutoModelForPreTraining. Its generator is written to the directory `generator` in
    `directory`, as a model with its own masked-language head.

    `directory` appears only when everything is written. Raises UsageError if `directory` exists, or if transformers has
    no class for the model: for LSTM layers, for the head of `task`, for a causal model of its relative, or for its
    settings.
    """
    if config.mask_decoder and not config.discriminator:
        say("transformers has no mask decoder: the encoder is exported without its masked-language head")
    relative, class_name, values, params = _exported(config, params, tokenizer.vocabulary, task)
    tensors = to_tensors(params, config)
    if task:
        tensors = {re.sub(r"^classifier\.", task.task_kind.tensors, name): tensor for name, tensor in tensors.items()}
    tensors = their_tensors(tensors, relative, class_name)
    if class_name == f"{relative.classes}Model":  # the encoder alone, whose names have no prefix
        tensors = {name.removeprefix(relative.base): tensor for name, tensor in tensors.items()}
    with new_directory(directory) as temporary:
        write_json(temporary / HUGGING_FACE_CONFIG, values)
        write_tokenizer(tokenizer, temporary, config.max_positions, config.num_segments)
        if task and task.makes_vectors:
            write_pooling(temporary, task, config)
        if card:
            write_text(temporary / "README.md", card(config, class_name))
        write_safetensors(temporary / WEIGHTS, tensors, {"format": "pt"})
        if config.generator and "generator" in params:
            generator = generator_parameters(params)
            write_model_directory(temporary / GENERATOR, config.generator, generator, tokenizer, card=card)
    return class_name


def their_tensors(tensors: dict[str, np.ndarray], relative: Relative, class_name: str = "") -> dict[str, np.ndarray]:
    """Renames `tensors` from BERT's names to those of `relative` in files of its class `class_name`. Tensors with the
    same new name are joined, one below the other."""
    parts: dict[str, list[np.ndarray]] = {}
    for name, tensor in tensors.items():
        parts.setdefault(relative.theirs(name, class_name), []).append(tensor)
    return {name: np.concatenate(several) if several[1:] else several[0] for name, several in parts.items()}


def _class_with(absent: frozenset[str], has_pair_head: bool) -> str:
    """BERT's class of a pretrained model that lacks the parts in `absent`."""
    has_pairs = has_pair_head and "next_sentence" not in absent
    if "masked_lm" in absent and not has_pairs or "replaced" in absent:
        return "BertModel"
    if "masked_lm" in absent:
        return "BertForNextSentencePrediction"
    return "BertForMaskedLM" if absent - {"generator"} else "BertForPreTraining"
