"""Table of all parameters, one row each: axes, group, weight decay and names in other programs' files."""

from collections.abc import Iterable
from typing import NamedTuple

from bert_jax.config.model import WIDEST_FILTER

STACKED_AXES = ("layer", "projection", "direction", "gate", "highway")
"""Axes that stack matrices which are separate in formulas, and in BERT's files."""


class Parameter(NamedTuple):
    """A parameter of the model."""

    path: str
    """Its path from the root of the parameter tree."""
    axes: tuple[str, ...]
    """The names of its axes; `model/sharding.py` maps each name to the mesh axes that split it. Axes of equal length
    have different names if they are split differently: `width` in a matrix, `vector` in a bias or a norm."""
    group: str
    """Its group in counts of parameters: embeddings, block, last norm, pooler, or a head."""
    part: str
    """Its name within the group."""
    tensors: tuple[str, ...]
    """Its names in Hugging Face's files; {layer} stands for a block's number. If there are several, our array
    stacks them along its third last axis. Empty: no such file has it."""
    decays: bool
    """Whether weight decay applies: to matrices and tables, not to biases and norms."""
    inputs: int = 0
    """Number of axes of a matrix that belong to its input; 0 for other parameters. Hugging Face's matrices have the
    output's axis first."""
    constant: bool = False
    """Whether it is never trained, and not counted as a parameter."""

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

    def own_shape(self, shape: tuple[int, ...], num_word_rows: int) -> tuple[int, ...]:
        """`shape` without the layer axis of a block's parameter, or without the padding of the vocabulary."""
        if self.padded:
            return (num_word_rows, *shape[1:])
        return shape[1:] if self.of_a_block else shape


def _linear(
    path: str, group: str, part: str, tensors: tuple[str, ...], inputs: tuple[str, ...], *outputs: str
) -> tuple[Parameter, Parameter]:
    """The kernel and the bias of a linear layer. The bias has the axes `outputs` if the last of them is in
    _SPLIT_OUTPUTS; any other bias is whole."""
    of_bias = outputs if outputs[-1] in _SPLIT_OUTPUTS else ("vector",)
    return (
        _parameter(f"{path}/kernel", (*inputs, *outputs), group, part, tensors, "weight", len(inputs)),
        _parameter(f"{path}/bias", of_bias, group, part, tensors, "bias"),
    )


def _norm(path: str, group: str, part: str, tensor: str) -> tuple[Parameter, Parameter]:
    """The scale and the shift of a LayerNorm."""
    return (
        _parameter(f"{path}/scale", ("vector",), group, part, (tensor,), "weight"),
        _parameter(f"{path}/bias", ("vector",), group, part, (tensor,), "bias"),
    )


def _parameter(
    path: str, axes: tuple[str, ...], group: str, part: str, tensors: tuple[str, ...], kind: str, inputs: int = 0
) -> Parameter:
    """A layer's parameter. In the group `block`, `path` and `tensors` are those within a block."""
    if group == "block":
        path, axes = f"bert/encoder/layers/{path}", ("layer", *axes)
        tensors = tuple(f"bert.encoder.layer.{{layer}}.{tensor}" for tensor in tensors)
    return Parameter(path, axes, group, part, tuple(f"{tensor}.{kind}" for tensor in tensors), inputs > 0, inputs)


def _character_layer(name: str, part: str, axes: tuple[str, ...], stacked: int = 0) -> tuple[Parameter, Parameter]:
    """Kernel and bias of a layer of the convolution over bytes, whose first axes `stacked` stack matrices."""
    path = f"bert/embeddings/{name}"
    return (
        Parameter(f"{path}_kernel", axes, "embeddings", part, (), True, len(axes) - 1 - stacked),
        Parameter(f"{path}_bias", (*axes[:stacked], "vector"), "embeddings", part, (), False),
    )


def _table(name: str, rows: str, part: str) -> Parameter:
    """A table of vectors."""
    tensor = f"bert.embeddings.{'token_type' if name == 'segment' else name}_embeddings.weight"
    return Parameter(f"bert/embeddings/{name}", (rows, "width"), "embeddings", part, (tensor,), decays=True)


_PROJECTIONS = ("attention.self.query", "attention.self.key", "attention.self.value")
_HEADS = ("heads", "head")
_WIDTH = ("width",)
_GATED = ("projection", "inner")
_SPLIT_OUTPUTS = ("head", "inner")
"""Last axes of outputs that are split in the bias as well as in the kernel."""

PARAMETERS: tuple[Parameter, ...] = (
    _table("word", "vocabulary", "word table"),
    _table("segment", "segment", "segment table"),
    _table("position", "position", "position table"),
    _table("task_type", "segment", "task type table"),
    Parameter(
        "bert/embeddings/mask", ("vector",), "embeddings", "query stream", ("bert.embeddings.mask",), decays=True
    ),
    *_norm("bert/embeddings/norm", "embeddings", "LayerNorm", "bert.embeddings.LayerNorm"),
    *_linear(
        "bert/embeddings/projection", "embeddings", "projection", ("bert.embeddings_project",), _WIDTH, "features"
    ),
    Parameter("bert/spelling/numbers", ("vocabulary", "letters"), "embeddings", "spelling", (), False, constant=True),
    Parameter("bert/embeddings/letters", ("letter", "letter_width"), "embeddings", "byte table", (), decays=True),
    *(
        parameter
        for width in range(1, WIDEST_FILTER + 1)
        for parameter in _character_layer(
            f"convolution_{width}", "convolutions", ("letters", "letter_width", "filters")
        )
    ),
    *_character_layer("highways", "highways", ("highway", "projection", "width", "filters"), stacked=2),
    *_character_layer("projection", "projection", ("filters", "width")),
    *_linear("attention", "block", "query, key, value", _PROJECTIONS, _WIDTH, "projection", *_HEADS),
    _parameter("attention/content_bias", _HEADS, "block", "biases of queries", ("attention.self.content",), "bias"),
    _parameter("attention/position_bias", _HEADS, "block", "biases of queries", ("attention.self.position",), "bias"),
    _parameter("attention/segment_bias", _HEADS, "block", "biases of queries", ("attention.self.segment",), "bias"),
    _linear("attention/position", "block", "position keys", ("attention.self.position",), _WIDTH, *_HEADS)[0],
    _parameter(
        "attention/segment", ("segment", *_HEADS), "block", "segments", ("attention.self.segment",), "weight"
    )._replace(decays=True),
    *_linear("attention/output", "block", "attention output", ("attention.output.dense",), _HEADS, "width"),
    *_norm("attention_norm", "block", "LayerNorm", "attention.output.LayerNorm"),
    *_linear("feedforward_in", "block", "feed-forward in", ("intermediate.dense",), _WIDTH, "inner"),
    *_linear("feedforward_gated", "block", "feed-forward in and gate", ("intermediate.dense",), _WIDTH, *_GATED),
    *_linear("feedforward_out", "block", "feed-forward out", ("output.dense",), ("inner",), "width"),
    *_norm("feedforward_norm", "block", "LayerNorm", "output.LayerNorm"),
    _parameter("inputs/kernel", ("direction", "width", "gate", "cell"), "block", "LSTM inputs", (), "weight", 1),
    _parameter("inputs/bias", ("direction", "gate", "vector"), "block", "LSTM inputs", (), "bias"),
    _parameter(
        "recurrence/kernel", ("direction", "width", "gate", "cell"), "block", "LSTM recurrence", (), "weight", 1
    ),
    _parameter("projection/kernel", ("direction", "cell", "width"), "block", "LSTM projection", (), "weight", 1),
    *_norm("bert/encoder/norm", "last norm", "LayerNorm after the blocks", "bert.encoder.norm"),
    *_linear("bert/pooler/dense", "pooler", "pooler", ("bert.pooler.dense",), _WIDTH, "features"),
    *_norm("bert/pooler/norm", "pooler", "pooler LayerNorm", "bert.pooler.norm"),
    *_linear("masked_lm/dense", "MLM head", "MLM dense", ("cls.predictions.transform.dense",), _WIDTH, "features"),
    *_norm("masked_lm/norm", "MLM head", "MLM LayerNorm", "cls.predictions.transform.LayerNorm"),
    Parameter("masked_lm/bias", ("vocabulary",), "MLM head", "MLM bias", ("cls.predictions.bias",), decays=False),
    Parameter("masked_lm/table", ("vocabulary", "width"), "MLM head", "MLM table", (), decays=True),
    *_linear("next_sentence/dense", "pair head", "pair dense", ("cls.seq_relationship",), _WIDTH, "outputs"),
    *_linear("replaced/dense", "RTD head", "RTD dense", ("discriminator_predictions.dense",), _WIDTH, "features"),
    *_linear(
        "replaced/output", "RTD head", "RTD output", ("discriminator_predictions.dense_prediction",), _WIDTH, "outputs"
    ),
    *_linear("task/dense", "task head", "task dense", ("classifier",), _WIDTH, "outputs"),
    Parameter("task/mix", ("vector",), "task head", "mix of layers", (), decays=False),
    Parameter("task/gamma", ("vector",), "task head", "mix of layers", (), decays=False),
)
"""Every parameter that a model may have, in the order in which they are listed. (In files the tensors
of a head for answers have other names: see interchange/export.py.)"""

_BY_PATH = {parameter.path: parameter for parameter in PARAMETERS}


def path_of(keys: Iterable[object]) -> str:
    """A key path of JAX's tree functions as a string: names separated by slashes, as in PARAMETERS."""
    return "/".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in keys)


def parameter_at(path: str) -> Parameter:
    """The parameter whose path `path` ends with; the name of an optimizer's slot or of a second model may precede it.

    Raises ValueError if there is none.
    """
    names = path.split("/")
    for begin in range(len(names)):
        if parameter := _BY_PATH.get("/".join(names[begin:])):
            return parameter
    raise ValueError(f"PARAMETERS (model/parameters.py) has no row for the parameter {path}; add one")
