"""Converts, in both directions, settings of BERT's relatives that config.json writes as several values or in another
form."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from bert_jax.config.model import ModelConfig
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.json_file import JsonObject, Shape, ShapeKind, as_shape
from bert_jax.text.vocabulary import Vocabulary

_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
"""ModernBERT's names of the two kinds of blocks."""
_TASK_TYPES = 3
"""ERNIE's default number of task types."""
DISCRIMINATOR = "ElectraForPreTraining"
"""ELECTRA's class of a discriminator, which tells replaced tokens from true ones."""
TOKEN_CLASSIFIER = "DebertaV2ForTokenClassification"
_REPLACED: JsonObject = {"id2label": {"0": "replaced"}, "label2id": {"replaced": 0}}
"""The only class of a token classifier that is a discriminator."""


class Conversion(NamedTuple):
    """Converts some values of config.json to some of our settings, and back."""

    read: Callable[[JsonObject, str], JsonObject]
    """Our settings, from the values of the config.json at a path. Raises UsageError for values that can't be read."""
    write: Callable[[ModelConfig, Vocabulary], JsonObject]
    """The values of config.json, from a model and its vocabulary."""


NO_CONVERSION = Conversion(lambda values, place: {}, lambda model, vocabulary: {})


class _Padding(Shape):
    pad_token_id: int = 1


def _read_positions(values: JsonObject, place: str) -> JsonObject:
    first = _keys(values, _Padding, place).pad_token_id + 1
    return {"first_position": first, "max_positions": values["max_position_embeddings"] - first}


AFTER_PADDING = Conversion(
    _read_positions, lambda model, _: {"max_position_embeddings": model.first_position + model.max_positions}
)
"""The first position has the padding's id + 1 as its number, as in fairseq. The rows before it are unused, and
max_position_embeddings counts them too."""


def _read_electra(values: JsonObject, place: str) -> JsonObject:
    settings: JsonObject = {"discriminator": values.get("architectures") == [DISCRIMINATOR]}
    return settings | ({"embedding_size": None} if values["embedding_size"] == values["hidden_size"] else {})


ELECTRA = Conversion(_read_electra, NO_CONVERSION.write)
"""The class in `architectures` tells whether the model is a discriminator. If tables and blocks have equal widths,
there is no matrix between them."""


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


class _XLNet(Shape):
    """The keys of XLNet's config.json that `_read_xlnet` reads, with the defaults of its class."""

    d_model: int
    n_head: int
    dropout: float
    d_head: int | None = None
    clamp_len: int = -1


def _read_xlnet(values: JsonObject, place: str) -> JsonObject:
    """Raises UsageError if the width of heads isn't the model's divided by their number."""
    keys = _keys(values, _XLNet, place)
    if keys.d_head is not None and keys.d_head * keys.n_head != keys.d_model:
        raise UsageError(
            f"{place}: d_head is {keys.d_head} with d_model {keys.d_model} and n_head {keys.n_head}; bert_jax's heads "
            "are d_model / n_head wide"
        )
    return {"attention_dropout": keys.dropout, "clamped_distance": keys.clamp_len if keys.clamp_len > 0 else None}


_NO_MEMORY: JsonObject = {"mem_len": None, "use_mems_eval": False}
XLNET = Conversion(
    _read_xlnet,
    lambda model, _: {"d_head": model.head_size, "clamp_len": model.clamped_distance or -1} | _NO_MEMORY,
)
"""One rate of dropout for vectors and attention, the width of heads, and the distance from which on all count as equal.
Memory of earlier segments is off."""


class _Rotation(Shape, extra="forbid"):
    rope_theta: float | None = None
    rope_type: Literal["default"] = "default"


class _Rotations(Shape, extra="forbid"):
    full_attention: _Rotation = _Rotation()
    sliding_attention: _Rotation = _Rotation()


class _OwnRotation(Shape):
    rotary_emb_base: float | None = None


class _Heads(Shape):
    hidden_size: int
    num_attention_heads: int
    head_dim: int | None = None
    rope_parameters: _Rotation = _Rotation()
    rope_theta: float | None = None


def _read_rotation(values: JsonObject, place: str, default: float) -> JsonObject:
    """Raises UsageError if the width of heads isn't the model's divided by their number."""
    keys = _keys(values, _Heads, place)
    if keys.head_dim is not None and keys.head_dim * keys.num_attention_heads != keys.hidden_size:
        raise UsageError(
            f"{place}: head_dim is {keys.head_dim} with hidden_size {keys.hidden_size} and num_attention_heads "
            f"{keys.num_attention_heads}; bert_jax's heads are hidden_size / num_attention_heads wide"
        )
    if values.get("rope_scaling"):
        raise UsageError(f"{place}: rope_scaling is {quoted(values['rope_scaling'])}; bert_jax scales no rotations")
    return {"rotary_base": keys.rope_parameters.rope_theta or keys.rope_theta or default}


def _read_eurobert(values: JsonObject, place: str) -> JsonObject:
    heads, groups = values["num_attention_heads"], values.get("num_key_value_heads")
    return {"key_value_heads": groups if groups != heads else None} | _read_rotation(values, place, default=10_000.0)


def _write_rotation(model: ModelConfig, _: Vocabulary) -> JsonObject:
    return {
        "rope_parameters": {"rope_theta": model.rotary_base, "rope_type": "default"},
        "head_dim": model.head_size,
    }


_OF_NOMICBERT: JsonObject = {
    "activation_function": "swiglu",
    "prenorm": False,
    "use_rms_norm": False,
    "parallel_block": False,
    "causal": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_scaling_factor": None,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
}
"""Settings of the authors' own class, each with the only value that is accepted."""


def _read_nomicbert(values: JsonObject, place: str) -> JsonObject:
    """Raises UsageError for a block that the authors' code computes otherwise."""
    for name, value in _OF_NOMICBERT.items():
        if values.get(name, value) != value:
            raise UsageError(f"{place}: {name} is {quoted(values[name])}; bert_jax's NomicBERT has {value!r}")
    base = _keys(values, _OwnRotation, place).rotary_emb_base
    return _read_rotation(values, place, default=base or 1000.0)


NOMICBERT = Conversion(_read_nomicbert, _write_rotation)
"""One base of rotations for all blocks and the width of heads, under the keys of transformers or of the authors'
class."""
EUROBERT = Conversion(
    _read_eurobert,
    lambda model, vocabulary: {
        **_write_rotation(model, vocabulary),
        "num_key_value_heads": model.key_value_heads or model.num_heads,
        "classifier_pooling": "bos",  # a setting of the classification head, which doesn't change the encoder
        "bos_token_id": vocabulary.cls_id,
        "eos_token_id": vocabulary.sep_id,
        "mask_token_id": vocabulary.mask_id,
    },
)
"""Grouped heads of keys and values, and one base of rotations."""


class _Deberta(Shape):
    """DeBERTa's settings of attention, with the defaults of its class."""

    hidden_size: int
    max_position_embeddings: int
    embedding_size: int | None = None
    relative_attention: bool = False
    position_biased_input: bool = True
    pos_att_type: str | list[str] = ""
    share_att_key: bool = False
    norm_rel_ebd: str = "none"
    conv_kernel_size: int = 0
    position_buckets: int = -1
    max_relative_positions: int = -1


def _read_deberta(values: JsonObject, place: str) -> JsonObject:
    """Raises UsageError if the attention isn't DeBERTa-v3's."""
    keys = _keys(values, _Deberta, place)
    kinds = keys.pos_att_type.lower().split("|") if isinstance(keys.pos_att_type, str) else keys.pos_att_type
    found = {
        **{name: getattr(keys, name) for name in _OF_DEBERTA},
        "embedding_size": keys.embedding_size or keys.hidden_size,
        "pos_att_type": sorted(kind.strip() for kind in kinds),
    }
    needed = _OF_DEBERTA | {"embedding_size": keys.hidden_size, "pos_att_type": ["c2p", "p2c"]}
    for name, value in needed.items():
        if found[name] != value:
            raise UsageError(f"{place}: {name} is {quoted(found[name])}; bert_jax's DeBERTa has {value!r}")
    if keys.position_buckets < 2:
        raise UsageError(f"{place}: position_buckets is {keys.position_buckets}; bert_jax's DeBERTa has 2 and more")
    last = keys.max_relative_positions if keys.max_relative_positions > 0 else keys.max_position_embeddings
    is_discriminator = values.get("architectures") == [TOKEN_CLASSIFIER] and _REPLACED.items() <= values.items()
    head = {"discriminator": True, "discriminator_head": "product"} if is_discriminator else {}
    return {"distance_buckets": keys.position_buckets, "clamped_distance": last, **head}


_OF_DEBERTA: JsonObject = {
    "relative_attention": True,
    "position_biased_input": False,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "conv_kernel_size": 0,
}
"""Settings of attention, each with the only value that is accepted."""
DEBERTA = Conversion(
    _read_deberta,
    lambda model, _: {
        **{name: value for name, value in _OF_DEBERTA.items() if name != "conv_kernel_size"},
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": model.distance_buckets,
        "max_relative_positions": model.clamped_distance,
        **(_REPLACED if model.discriminator else {}),
    },
)
"""Distances in buckets, as in DeBERTa-v3. A classifier of tokens whose one class is "replaced" is a discriminator."""


class _Attention(Shape):
    """ModernBERT's keys of the blocks' attention, with the defaults of its class."""

    num_hidden_layers: int
    global_attn_every_n_layers: Annotated[int, Field(ge=1)] = 3
    layer_types: list[str] = []
    local_attention: int = 128
    sliding_window: int | None = None
    """Half of local_attention. If a file has both keys, transformers uses this one."""
    rope_parameters: _Rotations = _Rotations()
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0


def _read_alternating(values: JsonObject, place: str, own: int = 0) -> JsonObject:
    """Raises UsageError for scaled rotations, and unless every n-th block is global and the others are local. `own`: 1
    if the window of local blocks counts the query's own token, else 0."""
    if values.get("rope_scaling"):
        raise UsageError(f"{place}: rope_scaling is {quoted(values['rope_scaling'])}; bert_jax scales no rotations")
    keys = _keys(values, _Attention, place)
    kinds, every = keys.layer_types, keys.global_attn_every_n_layers
    if kinds:
        every = next((number for number in range(1, len(kinds)) if kinds[number] == _GLOBAL), len(kinds))
        if kinds != [_LOCAL if number % every else _GLOBAL for number in range(keys.num_hidden_layers)]:
            raise UsageError(
                f"{place}: layer_types is {quoted(kinds)} for {keys.num_hidden_layers} layers; bert_jax has {_GLOBAL} "
                f"in every n-th block, from the first on, and {_LOCAL} in the others"
            )
    rotations = keys.rope_parameters
    window = keys.local_attention // 2 if keys.sliding_window is None else keys.sliding_window
    return {
        "rotary_base": rotations.full_attention.rope_theta or keys.global_rope_theta,
        "local_rotary_base": rotations.sliding_attention.rope_theta or keys.local_rope_theta,
        "global_every": every,
        "local_window": window - own if every > 1 else None,  # if all blocks are global, there is no window
    }


def _write_alternating(model: ModelConfig, vocabulary: Vocabulary, own: int = 0) -> JsonObject:
    """Uses the keys of transformers 4, which transformers 5 reads, too."""
    return {
        "global_attn_every_n_layers": model.global_every if model.local_window else 1,
        "local_attention": 2 * ((model.local_window or 64) + own),
        "global_rope_theta": model.rotary_base,
        "local_rope_theta": model.local_rotary_base,
        "classifier_pooling": "cls",  # a setting of the classification head, which doesn't change the encoder
        # Without these keys, the ids would be those of the published vocabulary.
        **dict.fromkeys(("bos_token_id", "cls_token_id"), vocabulary.cls_id),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), vocabulary.sep_id),
    }


ALTERNATING_ATTENTION = Conversion(_read_alternating, _write_alternating)
"""Settings of alternating blocks of global and local attention, each kind with its own base of rotations, as in
ModernBERT."""
CAUSAL_ALTERNATING_ATTENTION = Conversion(partial(_read_alternating, own=1), partial(_write_alternating, own=1))
"""Settings of alternating attention as in ModernBERT's decoder, whose window counts the query's own token."""


def _keys(values: JsonObject, shape: type[ShapeKind], place: str) -> ShapeKind:
    """The values of the keys of `shape`; null means the default. Raises UsageError for a value of another type."""
    try:
        return as_shape({key: value for key, value in values.items() if value is not None}, shape)
    except ValueError as error:
        raise UsageError(f"{place}: {error}") from None
