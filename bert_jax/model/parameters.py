"""One row for each parameter with all its facts: axes, group, weight decay and names in other programs' files."""

from collections.abc import Iterable
from typing import Any, NamedTuple

_LAYER = ("layer",)
STACKED_AXES = ("layer", "projection")
"""Axes that stack tensors which are separate in BERT."""


class Parameter(NamedTuple):
    """A parameter of the model."""

    path: str
    """Its path from the root of the parameter tree."""
    axes: tuple[str, ...]
    """The names of its axes; `model/sharding.py` maps each name to the mesh axes that split it. Axes of one length have
    different names where they are split differently: `width` in a matrix, `vector` in a bias or a norm."""
    group: str
    """Its group in counts of parameters: embeddings, block, last norm, pooler, or a head."""
    part: str
    """Its name within the group."""
    tensors: tuple[str, ...]
    """Its names in Hugging Face's files; {layer} stands for a block's number. If there are several, our array
    stacks them along its third last axis."""
    decays: bool
    """Whether weight decay applies: to matrices and tables, not to biases and norms."""
    inputs: int = 0
    """Number of a matrix's axes that belong to its input; 0 for a parameter that is no matrix. Hugging Face's matrices
    have the output's axis first."""

    @property
    def stacked(self) -> tuple[int, ...]:
        """Numbers of the axes that are in STACKED_AXES."""
        return tuple(number for number, axis in enumerate(self.axes) if axis in STACKED_AXES)

    @property
    def reduced(self) -> tuple[int, ...]:
        """The axes of a matrix that belong to its input, over which its product sums."""
        return self._own_axes[: self.inputs]

    @property
    def produced(self) -> tuple[int, ...]:
        """The axes of a matrix that belong to its output."""
        return self._own_axes[self.inputs :]

    @property
    def _own_axes(self) -> tuple[int, ...]:
        return tuple(number for number in range(len(self.axes)) if number not in self.stacked)

    @property
    def of_a_block(self) -> bool:
        """Whether it belongs to a block: the array stacks those of all layers along its first axis."""
        return self.axes[0] == "layer"

    @property
    def padded(self) -> bool:
        """Whether its first axis is the vocabulary, which is padded in memory."""
        return self.axes[0] == "vocabulary"

    @property
    def is_table(self) -> bool:
        """Whether it is a table of vectors."""
        return self.decays and not self.inputs

    def own_shape(self, shape: tuple[int, ...], table_rows: int) -> tuple[int, ...]:
        """`shape` without the layer axis of a block's parameter, or without the padding of the vocabulary."""
        if self.padded:
            return (table_rows, *shape[1:])
        return shape[1:] if self.of_a_block else shape


def _linear(
    path: str, group: str, part: str, tensors: str | tuple[str, ...], inputs: tuple[str, ...], *outputs: str
) -> tuple[Parameter, Parameter]:
    """The kernel and the bias of a linear layer. A bias over _SPLIT_OUTPUTS has their axes, any other is whole."""
    stack = _LAYER if group == "block" else ()
    names = (tensors,) if isinstance(tensors, str) else tensors
    weights, biases = (tuple(f"{name}.{kind}" for name in names) for kind in ("weight", "bias"))
    of_bias = outputs if outputs[-1] in _SPLIT_OUTPUTS else ("vector",)
    return (
        Parameter(f"{path}/kernel", (*stack, *inputs, *outputs), group, part, weights, True, len(inputs)),
        Parameter(f"{path}/bias", (*stack, *of_bias), group, part, biases, decays=False),
    )


def _norm(path: str, group: str, part: str, tensor: str) -> tuple[Parameter, Parameter]:
    """The scale and the shift of a LayerNorm."""
    axes = (*(_LAYER if group == "block" else ()), "vector")
    return (
        Parameter(f"{path}/scale", axes, group, part, (f"{tensor}.weight",), decays=False),
        Parameter(f"{path}/bias", axes, group, part, (f"{tensor}.bias",), decays=False),
    )


def _table(path: str, rows: str, part: str, tensor: str) -> Parameter:
    """A table of vectors."""
    return Parameter(path, (rows, "width"), "embeddings", part, (tensor,), decays=True)


_BLOCK, _BLOCK_TENSORS = "bert/encoder/layers", "bert.encoder.layer.{layer}"
_PROJECTIONS = tuple(f"{_BLOCK_TENSORS}.attention.self.{name}" for name in ("query", "key", "value"))
_HEADS = ("heads", "head")
_SPLIT_OUTPUTS = ("head", "inner")
"""Last axes of outputs that are split in the bias too."""

PARAMETERS: tuple[Parameter, ...] = (
    _table("bert/embeddings/word", "vocabulary", "word table", "bert.embeddings.word_embeddings.weight"),
    _table("bert/embeddings/segment", "segment", "segment table", "bert.embeddings.token_type_embeddings.weight"),
    _table("bert/embeddings/position", "position", "position table", "bert.embeddings.position_embeddings.weight"),
    _table("bert/embeddings/task_type", "segment", "task type table", "bert.embeddings.task_type_embeddings.weight"),
    *_norm("bert/embeddings/norm", "embeddings", "LayerNorm", "bert.embeddings.LayerNorm"),
    *_linear(
        "bert/embeddings/projection", "embeddings", "projection", "bert.embeddings_project", ("width",), "features"
    ),
    *_linear(f"{_BLOCK}/attention", "block", "query, key, value", _PROJECTIONS, ("width",), "projection", *_HEADS),
    *_linear(
        f"{_BLOCK}/attention/output",
        "block",
        "attention output",
        f"{_BLOCK_TENSORS}.attention.output.dense",
        _HEADS,
        "width",
    ),
    *_norm(f"{_BLOCK}/attention_norm", "block", "LayerNorm", f"{_BLOCK_TENSORS}.attention.output.LayerNorm"),
    *_linear(
        f"{_BLOCK}/feedforward_in",
        "block",
        "feed-forward in",
        f"{_BLOCK_TENSORS}.intermediate.dense",
        ("width",),
        "inner",
    ),
    *_linear(
        f"{_BLOCK}/feedforward_gated",
        "block",
        "feed-forward in and gate",
        f"{_BLOCK_TENSORS}.intermediate.dense",
        ("width",),
        *("projection", "inner"),
    ),
    *_linear(
        f"{_BLOCK}/feedforward_out", "block", "feed-forward out", f"{_BLOCK_TENSORS}.output.dense", ("inner",), "width"
    ),
    *_norm(f"{_BLOCK}/feedforward_norm", "block", "LayerNorm", f"{_BLOCK_TENSORS}.output.LayerNorm"),
    *_norm("bert/encoder/norm", "last norm", "LayerNorm after the blocks", "bert.encoder.norm"),
    *_linear("bert/pooler/dense", "pooler", "pooler", "bert.pooler.dense", ("width",), "features"),
    *_norm("bert/pooler/norm", "pooler", "pooler LayerNorm", "bert.pooler.norm"),
    *_linear("masked_lm/dense", "MLM head", "MLM dense", "cls.predictions.transform.dense", ("width",), "features"),
    *_norm("masked_lm/norm", "MLM head", "MLM LayerNorm", "cls.predictions.transform.LayerNorm"),
    Parameter("masked_lm/bias", ("vocabulary",), "MLM head", "MLM bias", ("cls.predictions.bias",), decays=False),
    *_linear("next_sentence/dense", "pair head", "pair dense", "cls.seq_relationship", ("width",), "outputs"),
    *_linear("replaced/dense", "RTD head", "RTD dense", "discriminator_predictions.dense", ("width",), "features"),
    *_linear(
        "replaced/output", "RTD head", "RTD output", "discriminator_predictions.dense_prediction", ("width",), "outputs"
    ),
    *_linear("task/dense", "task head", "task dense", "classifier", ("width",), "outputs"),
)
"""Every parameter that a model may have, in the order in which they are listed. (In files the tensors
of a head for answers have other names: see interchange/export.py.)"""

_BY_PATH = {parameter.path: parameter for parameter in PARAMETERS}


def path_of(keys: Iterable[Any]) -> str:
    """A key path of JAX's tree functions as a string: names separated by slashes, as in PARAMETERS."""
    return "/".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in keys)


def parameter_at(path: str) -> Parameter:
    """The parameter whose path `path` ends with; the names of an optimizer's slot or of a second model may precede it.

    Raises ValueError if there is none.
    """
    names = path.split("/")
    for begin in range(len(names)):
        if found := _BY_PATH.get("/".join(names[begin:])):
            return found
    raise ValueError(f"PARAMETERS (model/parameters.py) has no row for the parameter {path}; add one")
