"""A model written as Hugging Face's transformers read it."""

from safetensors.numpy import save_file

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.model_directory import HUGGING_FACE_CONFIG
from bert_jax.interchange.model_settings import config_values
from bert_jax.interchange.names import to_tensors
from bert_jax.interchange.tensors import WEIGHTS
from bert_jax.interchange.tokenizer_writing import write_tokenizer
from bert_jax.model.bert import Parameters, absent_parts
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.files import new_directory, write_json
from bert_jax.text.tokenizer import Tokenizer

_ENCODER, _ENCODER_PREFIX = "BertModel", "bert."


def write_model_directory(directory: Place, config: ModelConfig, params: Parameters, tokenizer: Tokenizer) -> str:
    """Writes config.json, model.safetensors and the tokenizer's files; returns the class it is of.

    For AutoModelForPreTraining where both heads are there, AutoModelForMaskedLM without the second one, AutoModel
    without both. Raises UsageError where something is at `directory` already, or the model is causal; it appears when
    all is written.
    """
    if config.causal:
        raise UsageError(
            "the model is causal (model.causal), and what is exported would see both sides; export a model that does"
        )
    tensors = to_tensors(params, config)
    architecture = _architecture(absent_parts(params))
    if architecture == _ENCODER:  # an encoder by itself is named so in its files
        tensors = {name.removeprefix(_ENCODER_PREFIX): tensor for name, tensor in tensors.items()}
    with new_directory(directory) as temporary:
        values = {"architectures": [architecture], **config_values(config, tokenizer.vocabulary.pad_id)}
        write_json(temporary / HUGGING_FACE_CONFIG, values)
        write_tokenizer(tokenizer, temporary, config.max_positions)
        save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt"})
    return architecture


def _architecture(absent: frozenset[str]) -> str:
    """The class of transformers that has the parts that are here."""
    if "masked_lm" in absent:
        return _ENCODER if "next_sentence" in absent else "BertForNextSentencePrediction"
    return "BertForMaskedLM" if absent else "BertForPreTraining"
