"""Names of BERT and its relatives in transformers: settings in config.json, tensors, and classes. In bert_jax, all of
them are one model with different settings. One row of a table describes each relative, for reading and writing.
"""

import functools
import itertools
import re
from typing import Literal, NamedTuple

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.conversions import (
    AFTER_PADDING,
    ALTERNATING_ATTENTION,
    CAUSAL_ALTERNATING_ATTENTION,
    DEBERTA,
    DISCRIMINATOR,
    ELECTRA,
    EUROBERT,
    NO_CONVERSION,
    NOMICBERT,
    TASK_TYPES,
    TOKEN_CLASSIFIER,
    XLNET,
    Conversion,
)
from bert_jax.system.errors import Setting, UsageError, did_you_mean, quoted
from bert_jax.system.json_file import JsonObject

SIZES = {
    "num_hidden_layers": "num_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_heads",
    "intermediate_size": "feedforward_size",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "num_segments",
    "vocab_size": "vocabulary_size",
}
_WITHOUT_SEGMENTS = {theirs: ours for theirs, ours in SIZES.items() if theirs != "type_vocab_size"}
RATES = {
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_epsilon",
}
FIXED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "pruned_heads": {},
}
_DEFAULTS: JsonObject = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
"""BertConfig's defaults for keys that a config.json lacks."""
_SEQUENCE_CLASS, _MULTIPLE_CHOICE = "SequenceClassification", "MultipleChoice"


Renames = tuple[tuple[str, str], ...]
"""Prefixes of BERT's tensor names and their replacements. The first prefix that fits is replaced. {layer} is a block's
number."""


class Relative(NamedTuple):
    """What transformers calls one kind of model."""

    classes: str
    """Prefix of the names of its classes."""
    title: str
    """Its name in messages and model cards."""
    tensors: Renames = ()
    """Its names of BERT's tensors. If one name replaces several, its tensor holds these tensors one below the other."""
    class_tensors: dict[str, Renames] = {}
    """Names in the files of one class, which take precedence over those of `tensors`."""
    tensors_if: dict[tuple[str, object], Renames] = {}
    """Tensor names that take precedence if config.json has this key with this value. Only for reading."""
    axes: dict[str, tuple[str, ...]] = {}
    """The axes of tensors whose files aren't laid out as BERT's, named as in PARAMETERS, by the last part of the
    parameter's path; "" is an axis of size 1."""
    suffixes: dict[str, str] = {}
    """The endings of its class names that differ from BERT's, by BERT's endings."""
    classless: frozenset[str] = frozenset()
    """Ends of BERT's class names for which transformers has no class."""
    sizes: dict[str, str] = SIZES
    """Our settings by its names of sizes in config.json."""
    aliases: dict[str, str] = {}
    """Alternative names of keys in config.json, each with the name used in the other fields."""
    rates: dict[str, str] = RATES
    """Our settings by its names of other numbers in config.json."""
    defaults: JsonObject = _DEFAULTS
    """Defaults of transformers' config class for the keys of `sizes`, `rates` and `activations`."""
    conversion: Conversion = NO_CONVERSION
    """Settings that config.json writes in another form."""
    fixed: JsonObject = FIXED
    """Settings that change the computation, each with the only supported value, which is also the default."""
    activations: tuple[str, ...] = ("hidden_act",)
    """Keys of the blocks' activation and, if config.json has one, of the heads' activation."""
    head_activation: str | None = None
    """The activation of its masked-language head, by transformers' name, if it doesn't depend on the blocks'
    activation."""
    settings: JsonObject = {}
    """Our settings that have the same value in all models of this kind."""
    lacks: frozenset[str] = frozenset()
    """The members of OPTIONAL_PARTS (model/bert.py) that its pretrained classes don't have."""
    pair: Literal["next_sentence", "sentence_order"] = "next_sentence"
    """The question that its published head for pairs answers."""
    tokenizer: str | None = "BertTokenizer"
    """The class of its tokenizer (tokenizer_classes.py) if no file names one; None: the class that follows a
    tokenizer.json."""
    discriminator: str | None = None
    """Its class of a discriminator, which tells replaced tokens from true ones."""
    causal_type: str | None = None
    """The model_type of its causal models in files; None if there is none that is known here."""
    facts: dict[str, str] = {}
    """What bert_jax assumes about such files, by the name under which it is shown."""

    def of_file(self, values: JsonObject) -> "Relative":
        """This relative with the tensor names that go with the `values` of config.json."""
        own = (names for (key, value), names in self.tensors_if.items() if values.get(key) == value)
        return self._replace(tensors=(*itertools.chain.from_iterable(own), *self.tensors))

    @property
    def base(self) -> str:
        """Prefix of the names of the encoder's tensors; files of the encoder alone leave it out."""
        return self.theirs("bert.")

    def theirs(self, name: str, class_name: str = "") -> str:
        """The relative's name of BERT's tensor `name`, in files of the class `class_name`."""
        class_tensors = self.class_tensors.get(class_name.removeprefix(self.classes).removeprefix("For"), ())
        for berts, theirs in (*class_tensors, *self.tensors):
            if match := _pattern(berts).match(name):
                return theirs.replace("{layer}", match[1] if match.lastindex else "") + name[match.end() :]
        return name


@functools.cache
def _pattern(beginning: str) -> re.Pattern[str]:
    return re.compile(re.escape(beginning).replace(r"\{layer\}", r"(\d+)"))


_HEAD = "cls.predictions"
_POOLER_IN_CLASSIFIER = ("bert.pooler.dense.", "classifier.dense."), ("classifier.", "classifier.out_proj.")
"""Names in a classification head that contains BERT's pooler."""
_ROBERTA = Relative(
    classes="Roberta",
    title="RoBERTa",
    tensors=(
        ("bert.", "roberta."),
        (f"{_HEAD}.transform.dense.", "lm_head.dense."),
        (f"{_HEAD}.transform.LayerNorm.", "lm_head.layer_norm."),
        (f"{_HEAD}.decoder.", "lm_head.decoder."),
        (f"{_HEAD}.bias", "lm_head.bias"),
    ),
    lacks=frozenset({"next_sentence"}),
    class_tensors={
        _SEQUENCE_CLASS: (("bert.pooler.dense.", "classifier.dense."), ("classifier.", "classifier.out_proj."))
    },
    conversion=AFTER_PADDING,
    tokenizer="RobertaTokenizer",
    defaults=_DEFAULTS | {"vocab_size": 50265},
    head_activation="gelu",
)
_SHARED_BLOCK = "albert.encoder.albert_layer_groups.0.albert_layers.0"
_ALBERT = Relative(
    classes="Albert",
    title="ALBERT",
    tensors=(
        ("bert.encoder.layer.0.attention.output.dense.", f"{_SHARED_BLOCK}.attention.dense."),
        ("bert.encoder.layer.0.attention.output.LayerNorm.", f"{_SHARED_BLOCK}.attention.LayerNorm."),
        ("bert.encoder.layer.0.attention.self.", f"{_SHARED_BLOCK}.attention."),
        ("bert.encoder.layer.0.intermediate.dense.", f"{_SHARED_BLOCK}.ffn."),
        ("bert.encoder.layer.0.output.dense.", f"{_SHARED_BLOCK}.ffn_output."),
        ("bert.encoder.layer.0.output.LayerNorm.", f"{_SHARED_BLOCK}.full_layer_layer_norm."),
        ("bert.embeddings_project.", "albert.encoder.embedding_hidden_mapping_in."),
        ("bert.pooler.dense.", "albert.pooler."),
        ("bert.", "albert."),
        (f"{_HEAD}.transform.dense.", "predictions.dense."),
        (f"{_HEAD}.transform.LayerNorm.", "predictions.LayerNorm."),
        (f"{_HEAD}.", "predictions."),
        ("cls.seq_relationship.", "sop_classifier.classifier."),
    ),
    sizes=SIZES | {"embedding_size": "embedding_size"},
    defaults=_DEFAULTS
    | {"vocab_size": 30000, "embedding_size": 128, "hidden_size": 4096, "num_attention_heads": 64}
    | {"intermediate_size": 16384, "hidden_act": "gelu_new"}
    | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    fixed=FIXED | {"num_hidden_groups": 1, "inner_group_num": 1},
    settings={"shared_layers": True},
    tokenizer="AlbertTokenizer",
    pair="sentence_order",
)
_ELECTRA = Relative(
    classes="Electra",
    title="ELECTRA",
    tensors=(
        ("bert.", "electra."),
        (f"{_HEAD}.transform.", "generator_predictions."),
        (f"{_HEAD}.bias", "generator_lm_head.bias"),
        (f"{_HEAD}.decoder.", "generator_lm_head."),
    ),
    sizes=SIZES | {"embedding_size": "embedding_size"},
    defaults=_DEFAULTS
    | {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
    conversion=ELECTRA,
    head_activation="gelu",
    settings={"pooler": "gelu"},
    class_tensors={
        _SEQUENCE_CLASS: _POOLER_IN_CLASSIFIER,
        _MULTIPLE_CHOICE: (("bert.pooler.dense.", "sequence_summary.summary."),),
    },
    discriminator=DISCRIMINATOR,
    lacks=frozenset({"bert/pooler", "next_sentence"}),
)
_BLOCK, _MODERN_BLOCK = "bert.encoder.layer.{layer}", "model.layers.{layer}"
_MODERN_HEAD = (
    ("bert.pooler.", "head."),
    ("qa_outputs.", "classifier."),
    (f"{_HEAD}.transform.", f"{_HEAD}.transform."),  # not `head.`, which the pooler has in these classes
)
_QUERY_KEY_VALUE = ("query", "q"), ("key", "k"), ("value", "v")
_MODERNBERT = Relative(
    classes="ModernBert",
    title="ModernBERT",
    tensors=(
        (f"{_BLOCK}.attention.self.query.", f"{_MODERN_BLOCK}.attn.Wqkv."),
        (f"{_BLOCK}.attention.self.key.", f"{_MODERN_BLOCK}.attn.Wqkv."),
        (f"{_BLOCK}.attention.self.value.", f"{_MODERN_BLOCK}.attn.Wqkv."),
        (f"{_BLOCK}.attention.output.dense.", f"{_MODERN_BLOCK}.attn.Wo."),
        (f"{_BLOCK}.attention.output.LayerNorm.", f"{_MODERN_BLOCK}.attn_norm."),
        (f"{_BLOCK}.intermediate.dense.", f"{_MODERN_BLOCK}.mlp.Wi."),
        (f"{_BLOCK}.intermediate.gate.", f"{_MODERN_BLOCK}.mlp.Wi."),
        (f"{_BLOCK}.output.dense.", f"{_MODERN_BLOCK}.mlp.Wo."),
        (f"{_BLOCK}.output.LayerNorm.", f"{_MODERN_BLOCK}.mlp_norm."),
        ("bert.encoder.norm.", "model.final_norm."),
        ("bert.embeddings.word_embeddings.", "model.embeddings.tok_embeddings."),
        ("bert.embeddings.LayerNorm.", "model.embeddings.norm."),
        ("bert.", "model."),
        (f"{_HEAD}.transform.dense.", "head.dense."),
        (f"{_HEAD}.transform.LayerNorm.", "head.norm."),
        (f"{_HEAD}.decoder.weight", "decoder.weight"),
        (f"{_HEAD}.bias", "decoder.bias"),
    ),
    class_tensors=dict.fromkeys(
        (_SEQUENCE_CLASS, _MULTIPLE_CHOICE, "TokenClassification", "QuestionAnswering"), _MODERN_HEAD
    ),
    sizes=_WITHOUT_SEGMENTS,
    rates={
        "embedding_dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "initializer_range": "initializer_range",
        "norm_eps": "layer_norm_epsilon",
    },
    defaults={
        "vocab_size": 50368,
        "hidden_size": 768,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "intermediate_size": 1152,
        "max_position_embeddings": 8192,
        "hidden_activation": "gelu",
        "classifier_activation": "gelu",
        "embedding_dropout": 0.0,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "norm_eps": 1e-5,
    },
    fixed={
        "attention_bias": False,
        "mlp_bias": False,
        "norm_bias": False,
        "classifier_bias": False,
        "decoder_bias": True,
        "tie_word_embeddings": True,
    },
    activations=("hidden_activation", "classifier_activation"),
    settings={
        "positions": "rotary",
        "num_segments": 0,
        "norm": "pre",
        "feedforward": "gated",
        "biases": False,
        "pooler": "transform",
    },
    lacks=frozenset({"bert/pooler", "next_sentence"}),
    conversion=ALTERNATING_ATTENTION,
    tokenizer=None,
    causal_type="modernbert-decoder",
)
_DECODER = _MODERNBERT._replace(
    classes="ModernBertDecoder",
    title="ModernBERT decoder",
    tensors=(
        *((f"{_BLOCK}.attention.self.{name}.", f"{_MODERN_BLOCK}.attn.{own}_proj.") for name, own in _QUERY_KEY_VALUE),
        *((berts, theirs.replace("head.", "lm_head.")) for berts, theirs in _MODERNBERT.tensors),
    ),
    class_tensors={},
    suffixes={"ForMaskedLM": "ForCausalLM"},
    settings=_MODERNBERT.settings | {"model_type": "modernbert", "causal": True},
    conversion=CAUSAL_ALTERNATING_ATTENTION,
)
_DISTIL_BLOCK = "distilbert.transformer.layer.{layer}"
_PRE_CLASSIFIER = (("bert.pooler.dense.", "pre_classifier."),)
_DISTILBERT = Relative(
    classes="DistilBert",
    title="DistilBERT",
    tensors=(
        *(
            (f"{_BLOCK}.attention.self.{name}.", f"{_DISTIL_BLOCK}.attention.{own}_lin.")
            for name, own in _QUERY_KEY_VALUE
        ),
        (f"{_BLOCK}.attention.output.dense.", f"{_DISTIL_BLOCK}.attention.out_lin."),
        (f"{_BLOCK}.attention.output.LayerNorm.", f"{_DISTIL_BLOCK}.sa_layer_norm."),
        (f"{_BLOCK}.intermediate.dense.", f"{_DISTIL_BLOCK}.ffn.lin1."),
        (f"{_BLOCK}.output.dense.", f"{_DISTIL_BLOCK}.ffn.lin2."),
        (f"{_BLOCK}.output.LayerNorm.", f"{_DISTIL_BLOCK}.output_layer_norm."),
        ("bert.", "distilbert."),
        (f"{_HEAD}.transform.dense.", "vocab_transform."),
        (f"{_HEAD}.transform.LayerNorm.", "vocab_layer_norm."),
        (f"{_HEAD}.decoder.", "vocab_projector."),
        (f"{_HEAD}.bias", "vocab_projector.bias"),
    ),
    class_tensors={_SEQUENCE_CLASS: _PRE_CLASSIFIER, _MULTIPLE_CHOICE: _PRE_CLASSIFIER},
    sizes={"n_layers": "num_layers", "dim": "hidden_size", "n_heads": "num_heads", "hidden_dim": "feedforward_size"}
    | {"max_position_embeddings": "max_positions", "vocab_size": "vocabulary_size"},
    aliases={"num_hidden_layers": "n_layers", "hidden_size": "dim", "num_attention_heads": "n_heads"},
    rates={"dropout": "dropout", "attention_dropout": "attention_dropout", "initializer_range": "initializer_range"},
    defaults={"vocab_size": 30522, "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072}
    | {"max_position_embeddings": 512, "activation": "gelu"}
    | {"dropout": 0.1, "attention_dropout": 0.1, "initializer_range": 0.02},
    fixed={"tie_word_embeddings": True, "pruned_heads": {}},
    activations=("activation",),
    settings={"num_segments": 0, "pooler": "relu"},
    lacks=frozenset({"bert/pooler", "next_sentence"}),
    tokenizer="DistilBertTokenizer",
)
_NOMIC_BLOCK = "nomic_bert.encoder.layers.{layer}"
_NOMICBERT = Relative(
    classes="NomicBert",
    title="NomicBERT",
    tensors=(
        *((f"{_BLOCK}.attention.self.{name}.", f"{_NOMIC_BLOCK}.attn.Wqkv.") for name, _ in _QUERY_KEY_VALUE),
        (f"{_BLOCK}.attention.output.dense.", f"{_NOMIC_BLOCK}.attn.out_proj."),
        (f"{_BLOCK}.attention.output.LayerNorm.", f"{_NOMIC_BLOCK}.norm1."),
        (f"{_BLOCK}.intermediate.dense.", f"{_NOMIC_BLOCK}.mlp.fc12."),
        (f"{_BLOCK}.intermediate.gate.", f"{_NOMIC_BLOCK}.mlp.fc11."),
        (f"{_BLOCK}.output.dense.", f"{_NOMIC_BLOCK}.mlp.fc2."),
        (f"{_BLOCK}.output.LayerNorm.", f"{_NOMIC_BLOCK}.norm2."),
        ("bert.embeddings.LayerNorm.", "nomic_bert.emb_ln."),
        ("bert.", "nomic_bert."),
        (f"{_HEAD}.transform.LayerNorm.", f"{_HEAD}.transform.layer_norm."),
    ),
    defaults=_DEFAULTS
    | {"vocab_size": 30528, "max_position_embeddings": 2048, "hidden_act": "silu"}
    | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    aliases={"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
    | {"n_inner": "intermediate_size", "n_positions": "max_position_embeddings"}
    | {"layer_norm_epsilon": "layer_norm_eps", "resid_pdrop": "hidden_dropout_prob"}
    | {"attn_pdrop": "attention_probs_dropout_prob"},
    fixed={"tie_word_embeddings": True},
    settings={"positions": "rotary", "feedforward": "gated", "block_biases": False},
    classless=frozenset({"ForQuestionAnswering", "ForMultipleChoice"}),
    lacks=frozenset({"bert/pooler", "next_sentence"}),
    conversion=NOMICBERT,
)
_EURO_BLOCK = "model.layers.{layer}"
_EUROBERT = Relative(
    classes="EuroBert",
    title="EuroBERT",
    tensors=(
        *(
            (f"{_BLOCK}.attention.self.{name}.", f"{_EURO_BLOCK}.self_attn.{own}_proj.")
            for name, own in _QUERY_KEY_VALUE
        ),
        (f"{_BLOCK}.attention.output.dense.", f"{_EURO_BLOCK}.self_attn.o_proj."),
        (f"{_BLOCK}.attention.output.LayerNorm.", f"{_EURO_BLOCK}.input_layernorm."),
        (f"{_BLOCK}.intermediate.dense.", f"{_EURO_BLOCK}.mlp.gate_proj."),
        (f"{_BLOCK}.intermediate.gate.", f"{_EURO_BLOCK}.mlp.up_proj."),
        (f"{_BLOCK}.output.dense.", f"{_EURO_BLOCK}.mlp.down_proj."),
        (f"{_BLOCK}.output.LayerNorm.", f"{_EURO_BLOCK}.post_attention_layernorm."),
        ("bert.encoder.norm.", "model.norm."),
        ("bert.embeddings.word_embeddings.", "model.embed_tokens."),
        ("bert.", "model."),
        (f"{_HEAD}.decoder.", "lm_head."),
    ),
    sizes=_WITHOUT_SEGMENTS,
    rates={"attention_dropout": "attention_dropout", "initializer_range": "initializer_range"}
    | {"rms_norm_eps": "layer_norm_epsilon"},
    defaults={key: _DEFAULTS[key] for key in SIZES if key != "type_vocab_size"}
    | {"vocab_size": 128256, "max_position_embeddings": 8192, "hidden_act": "silu", "attention_dropout": 0.0}
    | {"initializer_range": 0.02, "rms_norm_eps": 1e-5},
    fixed={"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False},
    settings={
        "positions": "rotary",
        "num_segments": 0,
        "norm": "pre",
        "norm_kind": "rms",
        "embedding_norm": False,
        "feedforward": "gated",
        "biases": False,
        "head": "product",
        "tied_words": False,
        "pooler": "gelu",
        "dropout": 0.0,
    },
    class_tensors={_SEQUENCE_CLASS: (("bert.pooler.dense.", "dense."),)},
    lacks=frozenset({"bert/pooler", "next_sentence"}),
    classless=frozenset({"ForQuestionAnswering", "ForMultipleChoice"}),
    conversion=EUROBERT,
    tokenizer=None,
)
_CONTEXT_POOLER = (("bert.pooler.dense.", "pooler.dense."),)
_DEBERTA = Relative(
    classes="DebertaV2",
    title="DeBERTa",
    tensors=(
        *(
            (f"{_BLOCK}.attention.self.{name}.", f"deberta.encoder.layer.{{layer}}.attention.self.{name}_proj.")
            for name, _ in _QUERY_KEY_VALUE
        ),
        ("bert.", "deberta."),
    ),
    class_tensors={
        _SEQUENCE_CLASS: _CONTEXT_POOLER,
        _MULTIPLE_CHOICE: _CONTEXT_POOLER,
        "TokenClassification": (("discriminator_predictions.dense_prediction.", "classifier."),),
    },
    suffixes={"ForPreTraining": "ForTokenClassification"},
    discriminator=TOKEN_CLASSIFIER,
    sizes=_WITHOUT_SEGMENTS,
    defaults={key: value for key, value in _DEFAULTS.items() if key != "type_vocab_size"}
    | {"vocab_size": 128100, "hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 24}
    | {"intermediate_size": 6144, "layer_norm_eps": 1e-7},
    tensors_if={
        ("legacy", False): (
            (f"{_HEAD}.transform.", "lm_predictions.lm_head."),
            (f"{_HEAD}.bias", "lm_predictions.lm_head.bias"),
        )
    },
    fixed={"type_vocab_size": 0, "tie_word_embeddings": True, "pooler_hidden_act": "gelu"},
    settings={"positions": "disentangled", "num_segments": 0, "pooler": "gelu"},
    lacks=frozenset({"bert/pooler", "next_sentence"}),
    conversion=DEBERTA,
    tokenizer="DebertaV2Tokenizer",
)
_MPNET_BLOCK = "mpnet.encoder.layer.{layer}.attention"
_MPNET = _ROBERTA._replace(
    classes="MPNet",
    title="MPNet",
    tensors=(
        *((f"{_BLOCK}.attention.self.{name}.", f"{_MPNET_BLOCK}.attn.{own}.") for name, own in _QUERY_KEY_VALUE),
        (f"{_BLOCK}.attention.output.dense.", f"{_MPNET_BLOCK}.attn.o."),
        (f"{_BLOCK}.attention.output.LayerNorm.", f"{_MPNET_BLOCK}.LayerNorm."),
        ("bert.", "mpnet."),
        *_ROBERTA.tensors[1:],
    ),
    sizes=_WITHOUT_SEGMENTS,
    defaults={key: value for key, value in _DEFAULTS.items() if key != "type_vocab_size"} | {"vocab_size": 30527},
    fixed={"tie_word_embeddings": True, "relative_attention_num_buckets": 32, "pad_token_id": 1},
    settings={"positions": "bucketed", "num_segments": 0},
    tokenizer="MPNetTokenizer",
)
_ERNIE = Relative(classes="Ernie", title="ERNIE", tensors=(("bert.", "ernie."),), conversion=TASK_TYPES)

_REL_ATTN = {
    **{"self.query.weight": "q", "self.key.weight": "k", "self.value.weight": "v", "self.position.weight": "r"},
    **{"self.content.bias": "r_w_bias", "self.position.bias": "r_r_bias", "self.segment.bias": "r_s_bias"},
    **{"self.segment.weight": "seg_embed", "output.dense.weight": "o", "output.LayerNorm.": "layer_norm."},
}
_HEAD_AXES = ("heads", "head")
_REL_FF = {"intermediate.dense.": "layer_1.", "output.dense.": "layer_2.", "output.LayerNorm.": "layer_norm."}
_SUMMARY = (("bert.pooler.dense.", "sequence_summary.summary."), ("classifier.", "logits_proj."))
_XLNET = Relative(
    classes="XLNet",
    title="XLNet",
    tensors=(
        *(
            (f"{_BLOCK}.attention.{name}", f"transformer.layer.{{layer}}.rel_attn.{own}")
            for name, own in _REL_ATTN.items()
        ),
        *((f"{_BLOCK}.{name}", f"transformer.layer.{{layer}}.ff.{own}") for name, own in _REL_FF.items()),
        ("bert.embeddings.word_embeddings.", "transformer.word_embedding."),
        ("bert.embeddings.mask", "transformer.mask_emb"),
        ("bert.", "transformer."),
        (f"{_HEAD}.decoder.", "lm_loss."),
        (f"{_HEAD}.bias", "lm_loss.bias"),
    ),
    class_tensors={_SEQUENCE_CLASS: _SUMMARY, _MULTIPLE_CHOICE: _SUMMARY},
    axes={
        **dict.fromkeys((f"attention/{name}kernel" for name in ("", "output/", "position/")), ("width", *_HEAD_AXES)),
        **dict.fromkeys((f"attention/{name}_bias" for name in ("content", "position", "segment")), _HEAD_AXES),
        "attention/segment": ("segment", *_HEAD_AXES),
        "embeddings/mask": ("", "", "vector"),
    },
    suffixes={"ForPreTraining": "LMHeadModel", "ForQuestionAnswering": "ForQuestionAnsweringSimple"},
    sizes={"n_layer": "num_layers", "d_model": "hidden_size", "n_head": "num_heads", "d_inner": "feedforward_size"}
    | {"vocab_size": "vocabulary_size"},
    aliases={"num_hidden_layers": "n_layer", "hidden_size": "d_model", "num_attention_heads": "n_head"}
    | {"n_token": "vocab_size"},
    rates={"dropout": "dropout", "initializer_range": "initializer_range", "layer_norm_eps": "layer_norm_epsilon"},
    defaults={"vocab_size": 32000, "d_model": 1024, "n_layer": 24, "n_head": 16, "d_inner": 4096}
    | {"ff_activation": "gelu", "dropout": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-12},
    conversion=XLNET,
    fixed={"attn_type": "bi", "bi_data": False, "same_length": False, "tie_word_embeddings": True}
    | {"summary_type": "last", "summary_use_proj": True, "summary_activation": "tanh"},
    activations=("ff_activation",),
    settings={"positions": "relative", "num_segments": 0, "class_token": "last"},
    tokenizer="XLNetTokenizer",
    facts={
        "longest sequence": "512 tokens; distances have no limit",
        "memory": "none: every sequence is read by itself, so mem_len, reuse_len and use_mems change nothing",
    },
)

RELATIVES: dict[str, Relative] = {
    "bert": Relative(classes="Bert", title="BERT"),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA._replace(
        classes="XLMRoberta", title="XLM-R", defaults=_DEFAULTS, tokenizer="XLMRobertaTokenizer"
    ),
    "camembert": _ROBERTA._replace(
        classes="Camembert", title="CamemBERT", defaults=_DEFAULTS, tokenizer="CamembertTokenizer"
    ),
    "albert": _ALBERT,
    "ernie": _ERNIE,
    "electra": _ELECTRA,
    "distilbert": _DISTILBERT,
    "mpnet": _MPNET,
    "nomic_bert": _NOMICBERT,
    "deberta-v2": _DEBERTA,
    "eurobert": _EUROBERT,
    "modernbert": _MODERNBERT,
    "modernbert-decoder": _DECODER,
    "xlnet": _XLNET,
}
"""The relatives, by model_type in config.json."""
_MISSPELT = 0.9
"""Least similarity of a misspelt model_type to the right one. The similarity of mobilebert and modernbert, two
different models, is 0.7."""


def relative_of(values: JsonObject, place: str) -> Relative:
    """The relative that the model_type in `values` of a config.json names; BERT if it names none. Raises UsageError,
    naming `place`, if the model_type is unknown."""
    model_type = values.get("model_type", "bert")
    if relative := isinstance(model_type, str) and RELATIVES.get(model_type):
        return relative
    remedy = did_you_mean(str(model_type), RELATIVES, "give a model of one of these", _MISSPELT)
    own = "; auto_map names the author's code, which isn't run here" if values.get("auto_map") else ""
    raise UsageError(
        f"{place}: model_type is {quoted(model_type)}{own}; bert_jax knows {', '.join(RELATIVES)}; {remedy}"
    )


def exported_type(model: ModelConfig) -> str:
    """The model_type that `model` has in files, where a causal model has a type of its own. Raises UsageError if its
    relative has no causal class that is known here."""
    relative = RELATIVES[model.model_type]
    if not model.causal:
        return model.model_type
    if relative.causal_type is None:
        raise UsageError(
            f"the model is causal ({Setting('model.causal')}), and the classes of {relative.title} in transformers "
            f"attend to both sides; only models without {Setting('model.causal')} can be exported, and causal ones of "
            "ModernBERT's block"
        )
    return relative.causal_type
