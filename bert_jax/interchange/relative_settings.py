"""Settings of relatives that config.json says by more than one value, or by another than ours."""

from typing import Any

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.relatives import Relative
from bert_jax.system.errors import UsageError, shown
from bert_jax.text.vocabulary import Vocabulary


def further_settings(relative: Relative, values: dict[str, Any], place: str) -> dict[str, Any]:
    """Settings of ours that config.json, at `place`, says by more than one value. Raises UsageError."""
    found = dict(relative.ours)
    if relative.after_padding:
        first = int(values.get("pad_token_id", 1)) + 1
        found |= {"first_position": first, "max_positions": values["max_position_embeddings"] - first}
    if relative.matrix_after_tables == "where narrower" and values["embedding_size"] == values["hidden_size"]:
        found["embedding_size"] = None
    if relative.discriminator:
        found["discriminator"] = values.get("architectures") == [relative.discriminator]
    if relative.has_task_types and values.get("use_task_id"):
        found["num_task_types"] = values.get("task_type_vocab_size", 3)
    if relative.takes_turns:
        found |= _turns(values, place)
    return found


_LAYER_TYPES = ("full_attention", "sliding_attention")
_EVERY_THIRD = 3
"""ModernBERT's default: every third block attends globally."""


def _turns(values: dict[str, Any], place: str) -> dict[str, Any]:
    """Which blocks attend locally, how far, and the bases of their rotations: ModernBERT's settings, as transformers 4
    and 5 write them. Raises UsageError for an order that isn't every so many blocks."""
    every, kinds = values.get("global_attn_every_n_layers", _EVERY_THIRD), values.get("layer_types")
    if kinds:
        every = next((number for number in range(1, len(kinds)) if kinds[number] == _LAYER_TYPES[0]), len(kinds))
        if kinds != [_LAYER_TYPES[number % every > 0] for number in range(values["num_hidden_layers"])]:
            raise UsageError(
                f"{place}: layer_types is {shown(kinds)}; bert_jax has {_LAYER_TYPES[0]} in every so-many-th block, "
                f"from the first on, and {_LAYER_TYPES[1]} in the others"
            )
    told = values.get("rope_parameters") or {}
    if scaled := [kind for kind in _LAYER_TYPES if told.get(kind, {}).get("rope_type", "default") != "default"]:
        raise UsageError(f"{place}: rope_type is {shown(told[scaled[0]]['rope_type'])}; bert_jax has 'default'")
    bases = (("rotary_base", "global_rope_theta", 160_000.0), ("local_rotary_base", "local_rope_theta", 10_000.0))
    found = {
        ours: told.get(kind, {}).get("rope_theta", values.get(theirs, default))
        for kind, (ours, theirs, default) in zip(_LAYER_TYPES, bases)
    }
    # The window has a middle; with one kind of block there is none.
    window = values.get("local_attention", 128) // 2 if every > 1 else None
    return found | {"global_every": every, "local_window": window}


def further_values(relative: Relative, model: ModelConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """The inverse of `further_settings`."""
    found: dict[str, Any] = {}
    if relative.after_padding:
        found["max_position_embeddings"] = model.first_position + model.max_positions
    if relative.matrix_after_tables != "never":
        found["embedding_size"] = model.table_size
    if relative.has_task_types:
        found |= {"use_task_id": model.num_task_types > 0, "task_type_vocab_size": model.num_task_types or 3}
    if relative.takes_turns:  # the names of transformers 4, which 5 reads too
        found |= {
            "global_attn_every_n_layers": model.global_every if model.local_window else 1,
            "local_attention": 2 * (model.local_window or 64),
            "global_rope_theta": model.rotary_base,
            "local_rope_theta": model.local_rotary_base,
            # Left out, they would be those of the published vocabulary.
            **dict.fromkeys(("bos_token_id", "cls_token_id"), vocabulary.cls_id),
            **dict.fromkeys(("eos_token_id", "sep_token_id"), vocabulary.sep_id),
        }
    return found
