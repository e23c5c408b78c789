"""Converts a model's configuration from and to Hugging Face's config.json; reads Google's bert_config.json, too."""

from pathlib import Path
from typing import Any, Literal

from bert_jax.config.model import ModelConfig
from bert_jax.config.settings import SettingsError
from bert_jax.config.task import TaskConfig
from bert_jax.system.errors import UsageError, shown

Activation = Literal["gelu_tanh", "gelu_erf"]

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
"""Activations by Hugging Face's names. In Google's files `gelu` was the erf form until February 2019, then tanh."""

_NAMES = {
    "num_hidden_layers": "num_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_heads",
    "intermediate_size": "feedforward_size",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "num_segments",
    "vocab_size": "vocabulary_size",
}
_RATES = {
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_epsilon",
}
_FIXED = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "pruned_heads": {},
}
"""Settings that change the computation and of which only this value is supported; it is also their default."""
_MOST = 10_000_000
"""Largest plausible size, far above any of a BERT."""


def model_config(
    values: dict[str, Any], path: Path, activation: Activation | None = None, of_google: bool = False
) -> ModelConfig:
    """The configuration in `values`, read from `path`. `activation` overrides the activation in the file.

    `of_google` means that `gelu` is the tanh form. Raises UsageError if the model isn't a BERT, or if a size is missing
    or implausible.
    """
    for name, value in _FIXED.items():
        if values.get(name, value) not in (value, None):
            raise UsageError(f"{path}: {name} is {shown(values[name])}; bert_jax's BERT has {value!r}")
    sizes = {ours: _size(values, theirs, path) for theirs, ours in _NAMES.items()}
    rates = {ours: values[theirs] for theirs, ours in _RATES.items() if values.get(theirs) is not None}
    try:
        form = _activation(values, path, activation, of_google)
        # In float32 its vectors and predictions are those of the program that it comes from.
        return ModelConfig(**sizes, **rates, activation=form, compute_dtype="float32")
    except SettingsError as error:
        named = [f"{ours} is {theirs} there" for theirs, ours in (_NAMES | _RATES).items() if ours in str(error)]
        raise UsageError(f"{path}: {error} ({', '.join(named)})") from None


def config_values(model: ModelConfig, pad_id: int) -> dict[str, Any]:
    """The values of Hugging Face's config.json for `model`, except `architectures`."""
    written = {form: name for name, form in ACTIVATIONS.items() if name in ("gelu", "gelu_new")}
    sizes = {theirs: getattr(model, ours) for theirs, ours in (_NAMES | _RATES).items()}
    return {
        **sizes,
        "model_type": "bert",
        "intermediate_size": model.inner_size,
        "hidden_act": written[model.activation],
        "position_embedding_type": "absolute",
        "pad_token_id": pad_id,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }


def head_values(task: TaskConfig) -> dict[str, Any]:
    """The values of Hugging Face's config.json for the head of `task`: its labels and problem type.

    Empty for multiple choice and question answering, whose heads always have the same shape. The labels of `task` must
    be known.
    """
    names = task.labels if task.facts.labelled else ("LABEL_0",) if task.facts.loss == "squares" else None
    if not names:
        return {}
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    return labels | ({"problem_type": task.facts.problem} if task.facts.problem else {})


def _size(values: dict[str, Any], name: str, path: Path) -> int:
    size = values.get(name)
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= _MOST:
        raise UsageError(f"{path}: {name} is {shown(size)}; a size from 1 to {_MOST:,} was expected")
    return size


def _activation(values: dict[str, Any], path: Path, asked: Activation | None, of_google: bool) -> Activation:
    name = values.get("hidden_act", "gelu")
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise UsageError(f"{path}: hidden_act is {shown(name)}; bert_jax has {', '.join(ACTIVATIONS)}")
    return asked or ("gelu_tanh" if of_google and name == "gelu" else ACTIVATIONS[name])
