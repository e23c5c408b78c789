"""Settings of relatives for which config.json has several values, or values of another form."""

from typing import Any

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.relatives import Relative
from bert_jax.system.errors import UsageError, quoted
from bert_jax.text.vocabulary import Vocabulary


def further_settings(relative: Relative, values: dict[str, Any], place: str) -> dict[str, Any]:
    """Settings that correspond to several values of config.json, which is at `place`. Raises UsageError."""
    settings = dict(relative.ours)
    if relative.after_padding:
        first = int(values.get("pad_token_id", 1)) + 1
        settings |= {"first_position": first, "max_positions": values["max_position_embeddings"] - first}
    if relative.matrix_after_tables == "where narrower" and values["embedding_size"] == values["hidden_size"]:
        settings["embedding_size"] = None
    if relative.discriminator:
        settings["discriminator"] = values.get("architectures") == [relative.discriminator]
    if relative.has_task_types and values.get("use_task_id"):
        settings["num_task_types"] = values.get("task_type_vocab_size", 3)
    if relative.takes_turns:
        settings |= _turns(values, place)
    return settings


_LAYER_TYPES = ("full_attention", "sliding_attention")
_EVERY_THIRD = 3
"""ModernBERT's default: every third block attends globally."""


def _turns(values: dict[str, Any], place: str) -> dict[str, Any]:
    """Which blocks attend locally, how far, and the bases of their rotations: ModernBERT's settings, as transformers 4
    and 5 write them. Raises UsageError for an order that isn't every so many blocks, and for scaled rotations."""
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
    of_kinds = [_typed(parameters, kind, {}, dict, f"{place}: rope_parameters") for kind in _LAYER_TYPES]
    if others := [name for name in parameters if name not in _LAYER_TYPES]:
        raise UsageError(
            f"{place}: rope_parameters has {quoted(others[0])}; bert_jax reads {' and '.join(_LAYER_TYPES)}"
        )
    if scaled := [one["rope_type"] for one in of_kinds if one.get("rope_type", "default") != "default"]:
        raise UsageError(f"{place}: rope_type is {quoted(scaled[0])}; bert_jax has 'default'")
    bases = (("rotary_base", "global_rope_theta", 160_000.0), ("local_rotary_base", "local_rope_theta", 10_000.0))
    rotary_bases = {
        ours: one.get("rope_theta", values.get(theirs, default))
        for one, (ours, theirs, default) in zip(of_kinds, bases)
    }
    # The window has a middle; with one kind of block there is none.
    window = _typed(values, "local_attention", 128, int, place) // 2 if every > 1 else None
    return rotary_bases | {"global_every": every, "local_window": window}


def _typed(values: dict[str, Any], name: str, default: Any, kind: type, place: str) -> Any:
    """The value `name`, or `default` where there is none. Raises UsageError for one that isn't a `kind`."""
    found = values.get(name)
    if found is None:
        return default
    if not isinstance(found, kind) or isinstance(found, bool):
        raise UsageError(f"{place}: {name} is {quoted(found)}; expected {_KINDS[kind]}")
    return found


_KINDS = {int: "an integer", list: "a list", dict: "an object"}


def further_values(relative: Relative, model: ModelConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """The inverse of `further_settings`."""
    exported: dict[str, Any] = {}
    if relative.after_padding:
        exported["max_position_embeddings"] = model.first_position + model.max_positions
    if relative.matrix_after_tables != "never":
        exported["embedding_size"] = model.table_size
    if relative.has_task_types:
        exported |= {"use_task_id": model.num_task_types > 0, "task_type_vocab_size": model.num_task_types or 3}
    if relative.takes_turns:  # the names of transformers 4, which 5 reads too
        exported |= {
            "global_attn_every_n_layers": model.global_every if model.local_window else 1,
            "local_attention": 2 * (model.local_window or 64),
            "global_rope_theta": model.rotary_base,
            "local_rope_theta": model.local_rotary_base,
            "classifier_pooling": "cls",  # of a sentence's head: an encoder is read with any
            # Left out, the ids would be those of the published vocabulary.
            **dict.fromkeys(("bos_token_id", "cls_token_id"), vocabulary.cls_id),
            **dict.fromkeys(("eos_token_id", "sep_token_id"), vocabulary.sep_id),
        }
    return exported
