"""What is known of a parameter of the model: axes, group, weight decay and names in other programs' files."""

from typing import NamedTuple

HEAD_AXES = ("heads", "head")
"""Names of the axes of an array [H, K], which has one vector for each head."""
_SPLIT_OUTPUTS = ("head", "inner")
"""Last axes of outputs that are split in the bias as well as in the kernel."""
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
    """Its names in Hugging Face's files; {layer} stands for a block's number. If there are several, our array stacks
    them along its axis in STACKED_AXES. Empty: no such file has it."""
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


def linear_rows(
    path: str, group: str, part: str, tensors: tuple[str, ...], inputs: tuple[str, ...], *outputs: str
) -> tuple[Parameter, Parameter]:
    """The kernel and the bias of a linear layer. The bias has the axes `outputs` if the last of them is in
    _SPLIT_OUTPUTS; any other bias is whole."""
    of_bias = outputs if outputs[-1] in _SPLIT_OUTPUTS else ("vector",)
    return (
        layer_row(f"{path}/kernel", (*inputs, *outputs), group, part, tensors, "weight", len(inputs)),
        layer_row(f"{path}/bias", of_bias, group, part, tensors, "bias"),
    )


def norm_rows(path: str, group: str, part: str, tensor: str) -> tuple[Parameter, Parameter]:
    """The scale and the shift of a LayerNorm."""
    return (
        layer_row(f"{path}/scale", ("vector",), group, part, (tensor,), "weight"),
        layer_row(f"{path}/bias", ("vector",), group, part, (tensor,), "bias"),
    )


def layer_row(
    path: str, axes: tuple[str, ...], group: str, part: str, tensors: tuple[str, ...], kind: str, inputs: int = 0
) -> Parameter:
    """A layer's parameter. In the group `block`, `path` and `tensors` are those within a block."""
    if group == "block":
        path, axes = f"bert/encoder/layers/{path}", ("layer", *axes)
        tensors = tuple(f"bert.encoder.layer.{{layer}}.{tensor}" for tensor in tensors)
    return Parameter(path, axes, group, part, tuple(f"{tensor}.{kind}" for tensor in tensors), inputs > 0, inputs)
