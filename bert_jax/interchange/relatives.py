"""BERT and its relatives as transformers names them: settings in config.json, tensors, and classes.

To us they are one model with different settings. A table says what each calls them; a relative with other settings and
tensor names is another row.
"""

import difflib
import functools
import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from bert_jax.config.model import ModelConfig
from bert_jax.system.errors import UsageError, shown

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
_SEQUENCE_CLASS = "SequenceClassification"


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
    ours: dict[str, Any] = {}
    """Settings of ours that all such models have."""
    lacks: frozenset[str] = frozenset()
    """Parts of ours (model/bert.py, OPTIONAL_PARTS) that its classes don't have."""
    matrix_after_tables: Literal["never", "where narrower", "always"] = "never"
    """Where a matrix leads from the tables to the blocks. With "where narrower" there is none between equal widths."""
    discriminator: str | None = None
    """Its class of a discriminator, which tells replaced tokens from true ones."""
    has_task_types: bool = False
    """Whether a model may have a table of task types."""
    after_padding: bool = False
    """Whether positions are numbered from the padding's id on, as in fairseq, and the table is longer by so many."""

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
    discriminator="ElectraForPreTraining",
    lacks=frozenset({"bert/pooler", "next_sentence"}),
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
}
"""By model_type in config.json."""


def relative_of(model_type: Any, place: str) -> Relative:
    """The relative of this model_type. Raises UsageError, naming `place`, for one that isn't known."""
    if found := isinstance(model_type, str) and RELATIVES.get(model_type):
        return found
    near = difflib.get_close_matches(str(model_type), RELATIVES, 1, cutoff=0.5)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(f"{place}: model_type is {shown(model_type)}; bert_jax knows {', '.join(RELATIVES)}{meant}")


def further_settings(relative: Relative, values: dict[str, Any]) -> dict[str, Any]:
    """Settings of ours that config.json says by more than one value."""
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
    return found


def further_values(relative: Relative, model: ModelConfig) -> dict[str, Any]:
    """The inverse of `further_settings`."""
    found: dict[str, Any] = {}
    if relative.after_padding:
        found["max_position_embeddings"] = model.first_position + model.max_positions
    if relative.matrix_after_tables != "never":
        found["embedding_size"] = model.table_size
    if relative.has_task_types:
        found |= {"use_task_id": model.num_task_types > 0, "task_type_vocab_size": model.num_task_types or 3}
    return found
