"""Maps Hugging Face's tensors to our parameters and back, with their names and layouts."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Float

from bert_jax.config.model import ModelConfig
from bert_jax.model.bert import OPTIONAL_PARTS, Parameters, parameter_shapes
from bert_jax.model.embeddings import sinusoids
from bert_jax.model.parameters import PARAMETERS, Parameter

_WORD_TABLE = "bert.embeddings.word_embeddings.weight"
_POSITIONS = "bert.embeddings.position_embeddings.weight"
_MLM_BIAS = "cls.predictions.bias"
TIED = {"cls.predictions.decoder.weight": _WORD_TABLE, "cls.predictions.decoder.bias": _MLM_BIAS}
"""Tensors that must equal another one, by name."""


def part_of(path: str) -> str | None:
    """The member of OPTIONAL_PARTS that contains the parameter at `path`, or None for the encoder."""
    return next((part for part in OPTIONAL_PARTS if path.startswith(f"{part}/")), None)


class Expected(NamedTuple):
    """A tensor that a model of Hugging Face must have."""

    name: str
    shape: tuple[int, ...]
    """Shape in Hugging Face's layout, in which the vocabulary isn't padded."""
    path: str
    """Path of the parameter that the tensor is a part of."""


def expected_tensors(config: ModelConfig) -> Iterator[Expected]:
    """Yields every tensor of a model with all parts, by parameter and then by block. Allocates no arrays."""
    shapes = flatten_dict(parameter_shapes(config), sep="/")
    for parameter in PARAMETERS:
        if parameter.path in shapes:
            shape = _shape_of_theirs(parameter, parameter.own_shape(shapes[parameter.path].shape, config.table_rows))
            for layer in _layers(parameter, shapes[parameter.path].shape, config):
                for name in parameter.tensors:
                    yield Expected(name.format(layer=layer), shape, parameter.path)


def to_parameters(read: Callable[[str], np.ndarray], config: ModelConfig, absent: frozenset[str]) -> Parameters:
    """Builds our parameter tree in float32 from Hugging Face's tensors; the vocabulary is padded with zeros.

    `read` is called once for each name of `expected_tensors`. Members of OPTIONAL_PARTS in `absent` are left out.
    """
    leaves: dict[str, np.ndarray] = {}
    shapes = flatten_dict(parameter_shapes(config), sep="/")
    for parameter in PARAMETERS:
        if parameter.path in shapes and part_of(parameter.path) not in absent:
            whole = np.zeros(shapes[parameter.path].shape, np.float32)
            for name, place in _places(parameter, whole, config):
                tensor = read(name)
                place[...] = (tensor.T if parameter.inputs else tensor).reshape(place.shape)
            leaves[parameter.path] = whole
    return unflatten_dict(leaves, sep="/")


def to_tensors(params: Parameters, config: ModelConfig) -> dict[str, Float[np.ndarray, "..."]]:
    """Converts our parameters to Hugging Face's tensors by name. Includes the head of a task if there is one.

    Optional parts may be missing. Sinusoidal positions become a table, as Hugging Face's BERT has only tables.
    """
    tensors = {}
    leaves = flatten_dict(params, sep="/")
    for parameter in PARAMETERS:
        if parameter.path in leaves:
            whole = np.asarray(leaves[parameter.path])
            shape = _shape_of_theirs(parameter, parameter.own_shape(whole.shape, config.table_rows))
            for name, place in _places(parameter, whole, config):
                tensor = place.reshape(shape[::-1]).T if parameter.inputs else place.reshape(shape)
                tensors[name] = np.ascontiguousarray(tensor)
    if config.positions == "sinusoidal":
        tensors[_POSITIONS] = sinusoids(config, config.max_positions)
    return tensors


def _places(parameter: Parameter, whole: np.ndarray, config: ModelConfig) -> Iterator[tuple[str, np.ndarray]]:
    """Yields each tensor's name and the view of `whole`, our parameter, that holds it, without vocabulary padding."""
    inside = whole[: config.table_rows] if parameter.padded else whole
    for layer, block in zip(_layers(parameter, whole.shape, config), inside if parameter.of_a_block else [inside]):
        for number, name in enumerate(parameter.tensors):
            yield name.format(layer=layer), block[..., number, :, :] if len(parameter.tensors) > 1 else block


def _layers(parameter: Parameter, shape: tuple[int, ...], config: ModelConfig) -> range:
    """The numbers of the blocks whose parameters an array of `shape` holds: of fewer than all the last ones. What is in
    no block has number 0."""
    return range(config.stored_layers - shape[0], config.stored_layers) if parameter.of_a_block else range(1)


def _shape_of_theirs(parameter: Parameter, own: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one tensor in Hugging Face's layout, from the shape of our parameter in one block."""
    if len(parameter.tensors) > 1:
        own = own[:-3] + own[-2:]
    if parameter.inputs:
        return math.prod(own[parameter.inputs :]), math.prod(own[: parameter.inputs])
    return own if parameter.is_table else (math.prod(own),)
