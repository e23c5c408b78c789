"""Names of the tensors of our parameters in BERT's files, and the selection of tensors from a file, which may have a
relative's names."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import EllipsisType
from typing import NamedTuple

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Float

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.relatives import RELATIVES, Relative, exported_type
from bert_jax.interchange.tensors import Tensor
from bert_jax.model.bert import OPTIONAL_PARTS, Parameters, parameter_shapes
from bert_jax.model.parameter import STACKED_AXES
from bert_jax.model.parameters import PARAMETERS
from bert_jax.model.positions import SCHEMES
from bert_jax.system.errors import UsageError
from bert_jax.system.progress import say

SEGMENTS = "bert.embeddings.token_type_embeddings.weight"
_WORD_TABLE = "bert.embeddings.word_embeddings.weight"
_POSITIONS = "bert.embeddings.position_embeddings.weight"
_TIED = {"cls.predictions.decoder.weight": _WORD_TABLE, "cls.predictions.decoder.bias": "cls.predictions.bias"}
"""Names of tensors, each with the name of the tensor that it must equal."""
_REASONS = (
    ("embeddings.position_ids", "the positions' numbers, not learned"),
    ("classifier.", "a fine-tuned model's head"),
    ("pre_classifier.", "a fine-tuned model's head"),
    ("qa_outputs.", "a fine-tuned model's head"),
    ("output_weights", "a fine-tuned model's head"),
    ("output_bias", "a fine-tuned model's head"),
    ("cls.squad.", "a fine-tuned model's head"),
    ("sequence_summary.", "a fine-tuned model's head"),
    ("logits_proj.", "a fine-tuned model's head"),
    ("lm_predictions.", "a head that config.json doesn't name; set legacy to false there to take it"),
    ("mask_predictions.", "a discriminator's head"),
    ("discriminator_predictions.", "a discriminator's head, and config.json names another class"),
    ("", "not a tensor of BERT"),
)
"""Prefixes of tensor names, after the encoder's prefix, and why such tensors aren't used. The first prefix that fits
counts."""
_SURE = (_WORD_TABLE, "bert.encoder.layer.0.attention.output.dense.weight")
"""Tensors that every model has. In a wrapped model's file their names follow the wrapper's prefix."""
_LAYER = re.compile(r"(?:(?:encoder|transformer)\.)?layers?\.(\d+)\.")
"""Prefix of the names of a block's tensors, after the encoder's prefix."""
_OLD_ENDINGS = {"weight": "gamma", "bias": "beta"}
"""Last parts of the names of a LayerNorm's tensors: today's, each with the one used until 2019."""


_ROWS_AT_ONCE = 4096
"""Rows of a table that are read at once."""
_ALIGNMENT = 64
"""An array's address must be a multiple of this number of bytes, so that JAX uses its memory without a copy."""


class NamedTensor(NamedTuple):
    """One of Hugging Face's tensors, and its place in our parameters."""

    name: str
    """Its name in files of BERT."""
    shape: tuple[int, ...]
    """Its shape in Hugging Face's layout, in which the vocabulary isn't padded."""
    path: str
    """Path of the parameter that holds it."""
    place: tuple[int | slice | EllipsisType, ...]
    """Index of this tensor within the parameter."""
    order: tuple[int, ...]
    """The axes of `place` in the order of Hugging Face's layout, which may join several axes into one."""

    @property
    def part(self) -> str | None:
        """The member of OPTIONAL_PARTS that contains the parameter, or None for the encoder."""
        return next((part for part in OPTIONAL_PARTS if self.path.startswith(f"{part}/")), None)


def _named_tensors(
    arrays: Mapping[str, np.ndarray | jax.ShapeDtypeStruct], config: ModelConfig
) -> Iterator[NamedTensor]:
    """Yields the tensors of `arrays`, which maps paths to parameters or their shapes. The tensors are sorted by
    parameter, then by block."""
    relative = RELATIVES[config.model_type]
    for parameter in PARAMETERS:
        if parameter.path not in arrays:
            continue
        whole = arrays[parameter.path].shape
        shape, own_axes = parameter.own_shape(whole, config.num_word_rows), list(parameter.axes)
        if parameter.of_a_block:
            own_axes.remove("layer")
        stack: tuple[slice, ...] | None = None
        if len(parameter.tensors) > 1:
            number = next(number for number, axis in enumerate(own_axes) if axis in STACKED_AXES)
            stack, shape = (slice(None),) * number, shape[:number] + shape[number + 1 :]
            del own_axes[number]
        order = (*range(parameter.inputs, len(shape)), *range(parameter.inputs))
        if axes := next((axes for end, axes in relative.axes.items() if parameter.path.endswith(f"/{end}")), None):
            order = tuple(own_axes.index(axis) for axis in axes if axis)
            shape = tuple(shape[own_axes.index(axis)] if axis else 1 for axis in axes)
        elif parameter.inputs:
            shape = math.prod(shape[parameter.inputs :]), math.prod(shape[: parameter.inputs])
        elif not parameter.is_table:
            shape = (math.prod(shape),)
        blocks = whole[0] if parameter.of_a_block else 1
        for block in range(blocks):
            index: tuple[int | slice | EllipsisType, ...] = ()
            if parameter.of_a_block:
                index = (block,)
            elif parameter.padded:
                index = (slice(config.num_word_rows),)
            # If an array has fewer blocks than the model, they are the model's last blocks.
            layer = config.stored_layers - blocks + block
            for number, name in enumerate(parameter.tensors):
                place = index if stack is None else (*index, *stack, number)
                yield NamedTensor(name.format(layer=layer), shape, parameter.path, place, order)


def expected_tensors(config: ModelConfig) -> list[NamedTensor]:
    """Every tensor of a model with all parts. Allocates no arrays."""
    return list(_named_tensors(flatten_dict(parameter_shapes(config), sep="/"), config))


def _aligned_zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros in float32 that JAX takes as an array on a CPU without a copy."""
    size = 4 * math.prod(shape)
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + size].view(np.float32).reshape(shape)


def to_parameters(read: Callable[..., np.ndarray], config: ModelConfig, absent: frozenset[str]) -> Parameters:
    """Builds our parameter tree in float32 from Hugging Face's tensors; the vocabulary is padded with zeros.

    `read(name)` gives a tensor of `expected_tensors`, and `read(name, begin, end)` its rows from `begin` to `end`
    (exclusive), in which large tables are read. Members of OPTIONAL_PARTS in `absent` are left out.
    """
    shapes = flatten_dict(parameter_shapes(config, absent), sep="/")
    arrays = {path: _aligned_zeros(shape.shape) for path, shape in shapes.items()}
    for named in _named_tensors(arrays, config):
        place = arrays[named.path][named.place]
        if named.order == (0, 1) and place.shape == named.shape:
            for begin in range(0, len(place), _ROWS_AT_ONCE):
                place[begin : begin + _ROWS_AT_ONCE] = read(named.name, begin, begin + _ROWS_AT_ONCE)
            continue
        tensor = read(named.name)
        ordered = tensor.reshape([place.shape[axis] for axis in named.order])
        place[...] = ordered.transpose(np.argsort(named.order))
    return unflatten_dict(arrays, sep="/")


def to_tensors(params: Parameters, config: ModelConfig) -> dict[str, Float[np.ndarray, "..."]]:
    """Converts our parameters to Hugging Face's tensors by name. Includes the head of a task if there is one. Optional
    parts may be missing. Fixed vectors of positions become a table, as Hugging Face's BERT has only tables."""
    tensors, arrays = {}, {path: np.asarray(leaf) for path, leaf in flatten_dict(params, sep="/").items()}
    for named in _named_tensors(arrays, config):
        place = arrays[named.path][named.place]
        tensors[named.name] = np.ascontiguousarray(place.transpose(named.order).reshape(named.shape))
    if fixed_vectors := SCHEMES[config.positions].fixed_vectors:
        vectors = fixed_vectors(config, config.max_positions)
        tensors[_POSITIONS] = np.pad(vectors, [(config.first_position, 0), (0, 0)])
    return tensors


class Selection(NamedTuple):
    """The tensors of a file that a model uses."""

    tensors: dict[str, Tensor]
    """The tensors by BERT's current names."""
    absent: frozenset[str]
    """The members of OPTIONAL_PARTS without any tensor."""
    unused: dict[str, str]
    """The reason why each remaining tensor isn't used, by its name in the file."""


def select(
    tensors: dict[str, Tensor], config: ModelConfig, origin: Path, relative: Relative, class_name: str = ""
) -> Selection:
    """The tensors of a model of this configuration; `tensors` have the names of `relative`'s class `class_name`.

    Tensors with old names, names of an encoder alone or names with a wrapper's prefix are found too. Raises UsageError,
    naming `origin`, if a tensor is missing, has another shape or occurs twice, if the file has more layers than
    `config`, or if tied output embeddings differ from the word embeddings.
    """
    expected = expected_tensors(config)
    by_theirs: dict[str, list[str]] = {}
    for named in expected:
        by_theirs.setdefault(relative.theirs(named.name, class_name), []).append(named.name)
    for name in _TIED:
        by_theirs.setdefault(relative.theirs(name, class_name), [name])
    inside, others = _without_prefix(tensors, by_theirs.keys(), relative, origin)
    selected, unused = _matched(inside, by_theirs, relative.base, origin)
    own = {named.name for named in expected}
    for name, tied in _TIED.items():
        if name in own:
            continue
        if tied not in selected and name in selected:
            selected[tied] = selected.pop(name)
        elif name in selected:
            tensor, other = selected.pop(name), selected[tied]
            if tensor.shape != other.shape or not np.array_equal(tensor.read(), other.read()):
                which = "bias for the vocabulary" if name.endswith("bias") else "table for input and output"
                raise UsageError(
                    f"{origin}: {tensor.source} differs from {other.source}; BERT has one {which}, and so has "
                    f"bert_jax; delete {tensor.source} from the file to use {other.source} in its place"
                )
    for name, tensor in unused:
        if (layer := _LAYER.match(name)) and int(layer[1]) >= config.stored_layers:
            raise UsageError(
                f"{origin}: {tensor.source} is of layer {layer[1]}, numbered from 0, and its config has "
                f"{config.stored_layers} of them; tensors and config don't belong together"
            )
    absent = _absent_parts(selected, expected, relative, exported_type(config), tensors, origin)
    reasons = {
        tensor.source: next(reason for beginning, reason in _REASONS if name.startswith(beginning))
        for name, tensor in (*unused, *others.items())
    }
    return Selection(selected, absent, reasons)


def _without_prefix(
    tensors: dict[str, Tensor], names: Collection[str], relative: Relative, origin: Path
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Removes a wrapper's prefix, such as DataParallel's `module.`, from the names of a model's tensors.

    Returns the model's tensors by their own names, and the other tensors. No prefix is removed if names fit as they
    are, or if a tensor without the prefix has a name that the model uses. Raises UsageError if the names fit after two
    prefixes.
    """
    word, block = ({*_prefixes(tensors, relative.theirs(name), relative.base)} for name in _SURE)
    prefixes = sorted(word & block)
    if not prefixes or "" in prefixes:
        return tensors, {}
    if len(prefixes) > 1:
        raise UsageError(
            f"{origin} has more than one model: names of tensors fit after {prefixes[0]} and after {prefixes[1]}; "
            "keep the tensors of one"
        )
    (prefix,) = prefixes
    inside = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    others = {name: tensor for name, tensor in tensors.items() if not name.startswith(prefix)}
    if others.keys() & {*names, *(name.removeprefix(relative.base) for name in names)}:
        return tensors, {}
    whose = f"{len(inside):,} of {len(tensors):,}" if others else "all"
    say(f"{origin}: the names of {whose} tensors begin with {prefix}, which is left out")
    return inside, others


def _prefixes(names: Iterable[str], whole: str, base: str) -> Iterator[str]:
    """Yields what precedes `whole`, or `whole` without `base`, in each of `names` that ends with it. Leaves out
    prefixes that end with another relative's base."""
    bases = {other.base for other in RELATIVES.values()} - {base, "model."}
    for name in names:
        end = next((one for one in (whole, whole.removeprefix(base)) if f".{name}".endswith(f".{one}")), None)
        if end and not (prefix := name.removesuffix(end)).endswith(tuple(bases)):
            yield prefix


def _matched(
    inside: dict[str, Tensor], by_theirs: dict[str, list[str]], base: str, origin: Path
) -> tuple[dict[str, Tensor], list[tuple[str, Tensor]]]:
    """The tensors of a file by BERT's names; and the tensors without such a name, by their own names without the
    encoder's prefix. `by_theirs`: BERT's names, by the relative's name of the tensor that holds them. Old files have
    gamma and beta for weight and bias, and files of an encoder alone lack the prefix `base`. Raises UsageError for a
    tensor under two names."""
    alone = not any(name.startswith(base) for name in inside)
    selected: dict[str, Tensor] = {}
    rest = dict(inside)
    for theirs, names in by_theirs.items():
        current = theirs.removeprefix(base) if alone else theirs
        beginning, _, ending = current.rpartition(".")
        found = [rest.pop(one) for one in (current, f"{beginning}.{_OLD_ENDINGS.get(ending, ending)}") if one in rest]
        if len(found) > 1:
            raise UsageError(f"{origin}: {found[0].source} and {found[1].source} are names of one tensor; keep one")
        for tensor in found:
            selected |= {name: tensor.part(number, len(names)) for number, name in enumerate(names)}
    return selected, [(name.removeprefix(base), tensor) for name, tensor in rest.items()]


def _absent_parts(
    selected: dict[str, Tensor],
    expected: list[NamedTensor],
    relative: Relative,
    model_type: str,
    tensors: dict[str, Tensor],
    origin: Path,
) -> frozenset[str]:
    """The members of OPTIONAL_PARTS without any tensor. Raises UsageError if a tensor of the encoder or of another part
    is missing, if a tensor has another shape, or if there is a head for pairs without a pooler."""
    missing = [named for named in expected if named.name not in selected]
    present = {named.part for named in expected if named.name in selected}
    for named in missing:
        theirs = relative.theirs(named.name)
        if named.part is None:
            message = f"{origin} lacks the tensor {theirs}, of shape {named.shape}, that its config asks for"
            for other_type, other in RELATIVES.items():
                others = any(tensor.source.startswith(other.base) for tensor in tensors.values())
                if other.base != relative.base and others:
                    message += f"; those that are there are a {other_type}'s, and config.json calls it {model_type}"
                    break
            raise UsageError(message)
        if named.part in present:
            raise UsageError(f"{origin} has a part of {named.part} only: the tensor {theirs} is missing")
    for named in expected:
        if named.name in selected and selected[named.name].shape != named.shape:
            tensor = selected[named.name]
            raise UsageError(
                f"{origin}: {tensor.source} has shape {tensor.shape} and its config asks for {named.shape}"
            )
    absent = frozenset(named.part for named in missing if named.part)
    if "bert/pooler" in absent and "next_sentence" in present:
        raise UsageError(f"{origin} has a head for pairs and no pooler, on which it stands; give a model with both")
    return absent
