"""BERT and its relatives as transformers names them: settings in config.json, tensors, and classes.

To us they are one model with different settings. A table says what each calls them; a relative with other settings and
tensor names is another row.
"""

import difflib
import functools
import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from bert_jax.system.errors import UsageError, quoted

SIZES = {
    "num_hidden_layers": "num_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_heads",
    "intermediate_size": "feedforward_size",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "num_segments",
    "vocab_size": "vocabulary_size",
}
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
_SEQUENCE_CLASS, _MULTIPLE_CHOICE = "SequenceClassification", "MultipleChoice"


class Relative(NamedTuple):
    """What transformers calls one kind of model."""

    classes: str
    """Beginning of its classes' names."""
    title: str
    """Its name in text."""
    tensors: tuple[tuple[str, str], ...] = ()
    """Beginnings of BERT's tensor names and what stands for them, the first that fits; {layer} is a block's number.
    Ours are BERT's."""
    of_class: dict[str, tuple[tuple[str, str], ...]] = {}
    """More of these, which come first, in the files of one class."""
    sizes: dict[str, str] = SIZES
    """Its sizes in config.json, and ours."""
    rates: dict[str, str] = RATES
    """Its other numbers in config.json, and ours."""
    fixed: dict[str, Any] = FIXED
    """Settings that change the computation and of which only this value is supported; it is also their default."""
    activations: tuple[str, ...] = ("hidden_act",)
    """What config.json calls the activation; where it has one of the heads, too, that is the same here."""
    ours: dict[str, Any] = {}
    """Settings of ours that all such models have."""
    lacks: frozenset[str] = frozenset()
    """Parts of ours (model/bert.py, OPTIONAL_PARTS) that its pretrained classes don't have."""
    joined: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Its tensors that hold several of BERT's, one below the other, and the names of these; {layer} as in `tensors`."""
    matrix_after_tables: Literal["never", "where narrower", "always"] = "never"
    """Where a matrix leads from the tables to the blocks. With "where narrower" there is none between equal widths."""
    pair: Literal["next_sentence", "sentence_order"] = "next_sentence"
    """The question that its published head for pairs answers."""
    discriminator: str | None = None
    """Its class of a discriminator, which tells replaced tokens from true ones."""
    has_task_types: bool = False
    """Whether a model may have a table of task types."""
    after_padding: bool = False
    """Whether positions are numbered from the padding's id on, as in fairseq, and the table is longer by so many."""
    takes_turns: bool = False
    """Whether blocks of global and local attention take turns, each kind with a rotation of its own."""

    @property
    def base(self) -> str:
        """What the names of the encoder's tensors begin with."""
        return self.theirs("bert.")

    def theirs(self, name: str, kind: str = "") -> str:
        """The relative's name of BERT's tensor `name`, in files of the class `kind`."""
        return _renamed(name, self._named(kind))

    def berts(self, name: str, kind: str = "") -> str:
        """BERT's name of the relative's tensor `name`, in files of the class `kind`."""
        return _renamed(name, [(theirs, berts) for berts, theirs in self._named(kind)])

    @property
    def bare(self) -> tuple[str, ...]:
        """What the names of the encoder's tensors begin with in files of the encoder alone, which lack `base`."""
        named = (*(theirs for _, theirs in self.tensors), *(whole for whole, _ in self.joined))
        inside = {name.removeprefix(self.base) for name in named if name.startswith(self.base)} - {""}
        firsts = {name.partition(".")[0] + "." for name in inside}
        return ("embeddings.", "encoder.", "pooler.", "embeddings_project.", *firsts)

    def parts_of(self, name: str) -> tuple[str, ...]:
        """BERT's names of the tensors that the relative's tensor `name` holds one below the other; none of one."""
        for whole, parts in self.joined:
            if found := _pattern(whole).fullmatch(name):
                return tuple(part.replace("{layer}", found[1]) for part in parts)
        return ()

    def whole_of(self, name: str) -> str | None:
        """The relative's tensor that holds BERT's tensor `name` beside others; None if it is one by itself."""
        for whole, parts in self.joined:
            for part in parts:
                if found := _pattern(part).fullmatch(name):
                    return whole.replace("{layer}", found[1])
        return None

    def _named(self, kind: str) -> list[tuple[str, str]]:
        return [*self.of_class.get(kind.removeprefix(self.classes).removeprefix("For"), ()), *self.tensors]


def _renamed(name: str, names: Iterable[tuple[str, str]]) -> str:
    for old, new in names:
        if found := _pattern(old).match(name):
            return new.replace("{layer}", found[1] if found.lastindex else "") + name[found.end() :]
    return name


@functools.cache
def _pattern(beginning: str) -> re.Pattern[str]:
    return re.compile(re.escape(beginning).replace(r"\{layer\}", r"(\d+)"))


_HEAD = "cls.predictions"
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
    # The head of a sentence has what is BERT's pooler in it.
    of_class={_SEQUENCE_CLASS: (("bert.pooler.dense.", "classifier.dense."), ("classifier.", "classifier.out_proj."))},
    after_padding=True,
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
    fixed=FIXED | {"num_hidden_groups": 1, "inner_group_num": 1},
    ours={"shared_layers": True},
    matrix_after_tables="always",
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
    matrix_after_tables="where narrower",
    ours={"pooler": "gelu"},
    of_class={
        _SEQUENCE_CLASS: (("bert.pooler.dense.", "classifier.dense."), ("classifier.", "classifier.out_proj.")),
        _MULTIPLE_CHOICE: (("bert.pooler.dense.", "sequence_summary.summary."),),
    },
    discriminator="ElectraForPreTraining",
    lacks=frozenset({"bert/pooler", "next_sentence"}),
)
_BLOCK, _MODERN_BLOCK = "bert.encoder.layer.{layer}", "model.layers.{layer}"
_MODERN_HEAD = (("bert.pooler.", "head."), ("qa_outputs.", "classifier."))
_MODERNBERT = Relative(
    classes="ModernBert",
    title="ModernBERT",
    tensors=(
        (f"{_BLOCK}.attention.output.dense.", f"{_MODERN_BLOCK}.attn.Wo."),
        (f"{_BLOCK}.attention.output.LayerNorm.", f"{_MODERN_BLOCK}.attn_norm."),
        (f"{_BLOCK}.intermediate.dense.", f"{_MODERN_BLOCK}.mlp.Wi."),
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
    joined=(
        (
            f"{_MODERN_BLOCK}.attn.Wqkv.weight",
            tuple(f"{_BLOCK}.attention.self.{name}.weight" for name in ("query", "key", "value")),
        ),
    ),
    of_class=dict.fromkeys(
        (_SEQUENCE_CLASS, _MULTIPLE_CHOICE, "TokenClassification", "QuestionAnswering"), _MODERN_HEAD
    ),
    sizes={theirs: ours for theirs, ours in SIZES.items() if theirs != "type_vocab_size"},
    rates={
        "embedding_dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "initializer_range": "initializer_range",
        "norm_eps": "layer_norm_epsilon",
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
    ours={
        "positions": "rotary",
        "num_segments": 0,
        "norm": "pre",
        "feedforward": "gated",
        "biases": False,
        "pooler": "transform",
    },
    lacks=frozenset({"bert/pooler", "next_sentence"}),
    takes_turns=True,
)
_ERNIE = Relative(classes="Ernie", title="ERNIE", tensors=(("bert.", "ernie."),), has_task_types=True)

RELATIVES: dict[str, Relative] = {
    "bert": Relative(classes="Bert", title="BERT"),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA._replace(classes="XLMRoberta", title="XLM-R"),
    "camembert": _ROBERTA._replace(classes="Camembert", title="CamemBERT"),
    "albert": _ALBERT,
    "ernie": _ERNIE,
    "electra": _ELECTRA,
    "modernbert": _MODERNBERT,
}
"""By model_type in config.json."""


def relative_of(model_type: Any, place: str) -> Relative:
    """The relative of this model_type. Raises UsageError, naming `place`, for one that isn't known."""
    if found := isinstance(model_type, str) and RELATIVES.get(model_type):
        return found
    near = difflib.get_close_matches(str(model_type), RELATIVES, 1, cutoff=0.5)
    remedy = f"did you mean {near[0]}?" if near else "give a model of one of these"
    raise UsageError(f"{place}: model_type is {quoted(model_type)}; bert_jax knows {', '.join(RELATIVES)}; {remedy}")
