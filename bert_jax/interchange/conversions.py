"""Settings of relatives that config.json writes as several values or in another form, in both directions."""

from collections.abc import Callable
from typing import Any, NamedTuple

from bert_jax.config.model import ModelConfig
from bert_jax.system.errors import UsageError, quoted
from bert_jax.text.vocabulary import Vocabulary

_KINDS = {int: "an integer", list: "a list", dict: "an object"}
_LAYER_TYPES = ("full_attention", "sliding_attention")
_EVERY_THIRD = 3
"""ModernBERT's default: every third block attends globally."""
_TASK_TYPES = 3
"""ERNIE's default number of task types."""


DISCRIMINATOR = "ElectraForPreTraining"
"""ELECTRA's class of a discriminator, which tells replaced tokens from true ones."""


class Conversion(NamedTuple):
    """Both directions between some values of config.json and some of our settings."""

    read: Callable[[dict[str, Any], str], dict[str, Any]]
    """Our settings, from the values of the config.json at a path. Raises UsageError for values that can't be read."""
    write: Callable[[ModelConfig, Vocabulary], dict[str, Any]]
    """The values, from a model and its vocabulary."""


NO_CONVERSION = Conversion(lambda values, place: {}, lambda model, vocabulary: {})


def _read_positions(values: dict[str, Any], place: str) -> dict[str, Any]:
    first = _typed(values, "pad_token_id", 1, int, place) + 1
    return {"first_position": first, "max_positions": values["max_position_embeddings"] - first}


AFTER_PADDING = Conversion(
    _read_positions, lambda model, _: {"max_position_embeddings": model.first_position + model.max_positions}
)
"""Positions are numbered from the padding's id on, as in fairseq, and the table is longer by as many rows."""


def _read_electra(values: dict[str, Any], _: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"discriminator": values.get("architectures") == [DISCRIMINATOR]}
    # Between tables and blocks of one width there is no matrix.
    return settings | ({"embedding_size": None} if values["embedding_size"] == values["hidden_size"] else {})


ELECTRA = Conversion(_read_electra, NO_CONVERSION.write)
"""The class in `architectures` tells a discriminator; equal widths of tables and blocks mean that no matrix is
between."""


TASK_TYPES = Conversion(
    lambda values, _: {
        "num_task_types": values.get("task_type_vocab_size", _TASK_TYPES) if values.get("use_task_id") else 0
    },
    lambda model, _: {
        "use_task_id": model.num_task_types > 0,
        "task_type_vocab_size": model.num_task_types or _TASK_TYPES,
    },
)
"""An optional table of task types, as in ERNIE."""


def _read_alternating(values: dict[str, Any], place: str) -> dict[str, Any]:
    """Raises UsageError unless every so-many-th block is global, and for scaled rotations."""
    every = _typed(values, "global_attn_every_n_layers", _EVERY_THIRD, int, place)
    kinds, count = _typed(values, "layer_types", [], list, place), values["num_hidden_layers"]
    if kinds:
        every = next((number for number in range(1, len(kinds)) if kinds[number] == _LAYER_TYPES[0]), len(kinds))
        if kinds != [_LAYER_TYPES[number % every > 0] for number in range(count)]:
            raise UsageError(
                f"{place}: layer_types is {quoted(kinds)} for {count} layers; bert_jax has {_LAYER_TYPES[0]} in every "
                f"so-many-th block, from the first on, and {_LAYER_TYPES[1]} in the others"
            )
    if every < 1:
        raise UsageError(f"{place}: global_attn_every_n_layers is {every}; 1 or more was expected")
    if values.get("rope_scaling"):
        raise UsageError(f"{place}: rope_scaling is {quoted(values['rope_scaling'])}; bert_jax scales no rotations")
    parameters = _typed(values, "rope_parameters", {}, dict, place)
    if others := [name for name in parameters if name not in _LAYER_TYPES]:
        raise UsageError(
            f"{place}: rope_parameters has {quoted(others[0])}; bert_jax reads {' and '.join(_LAYER_TYPES)}"
        )
    of_kinds = [_typed(parameters, kind, {}, dict, f"{place}: rope_parameters") for kind in _LAYER_TYPES]
    if scaled := [kind["rope_type"] for kind in of_kinds if kind.get("rope_type", "default") != "default"]:
        raise UsageError(f"{place}: rope_type is {quoted(scaled[0])}; bert_jax has 'default'")
    of_global, of_local = of_kinds
    return {
        "rotary_base": of_global.get("rope_theta", values.get("global_rope_theta", 160_000.0)),
        "local_rotary_base": of_local.get("rope_theta", values.get("local_rope_theta", 10_000.0)),
        "global_every": every,
        # Their window is ours on both sides of the query. Where all blocks are global there is none.
        "local_window": _typed(values, "local_attention", 128, int, place) // 2 if every > 1 else None,
    }


def _write_alternating(model: ModelConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """The names of transformers 4, which 5 reads too."""
    return {
        "global_attn_every_n_layers": model.global_every if model.local_window else 1,
        "local_attention": 2 * (model.local_window or 64),
        "global_rope_theta": model.rotary_base,
        "local_rope_theta": model.local_rotary_base,
        "classifier_pooling": "cls",  # of a sentence's head: an encoder is read with any
        # Left out, the ids would be those of the published vocabulary.
        **dict.fromkeys(("bos_token_id", "cls_token_id"), vocabulary.cls_id),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), vocabulary.sep_id),
    }


ALTERNATING_ATTENTION = Conversion(_read_alternating, _write_alternating)
"""Blocks of global and of local attention alternate, each kind with its own base of rotations, as in ModernBERT."""


def _typed(values: dict[str, Any], name: str, default: Any, kind: type, place: str) -> Any:
    """The value `name`, or `default` where there is none. Raises UsageError for one that isn't a `kind`."""
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UsageError(f"{place}: {name} is {quoted(value)}; expected {_KINDS[kind]}")
    return value
