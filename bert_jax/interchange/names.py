"""Maps Hugging Face's tensors to our parameters and back, with their names and layouts."""

import math
from collections.abc import Callable, Iterator, Mapping
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Float

from bert_jax.config.model import ModelConfig
from bert_jax.model.bert import Parameters, parameter_shapes
from bert_jax.model.embeddings import sinusoids
from bert_jax.model.parameters import PARAMETERS, Parameter

_WORD_TABLE = "bert.embeddings.word_embeddings.weight"
_POSITIONS = "bert.embeddings.position_embeddings.weight"
_MLM_BIAS = "cls.predictions.bias"
TIED = {"cls.predictions.decoder.weight": _WORD_TABLE, "cls.predictions.decoder.bias": _MLM_BIAS}
"""Tensors that must equal another one, by name."""


class Stored(NamedTuple):
    """One of Hugging Face's tensors, and its place in our parameters."""

    name: str
    """Its name in files of BERT."""
    shape: tuple[int, ...]
    """Its shape in Hugging Face's layout, in which the vocabulary isn't padded."""
    path: str
    """Path of the parameter that holds it."""
    place: tuple[int | slice | EllipsisType, ...]
    """Index of the part of the parameter that is this tensor."""
    transposed: bool
    """Whether Hugging Face's layout is the transpose of ours."""


def stored_tensors(arrays: Mapping[str, Any], config: ModelConfig) -> Iterator[Stored]:
    """Yields the tensors that `arrays`, parameters or their shapes by path, consist of: by parameter, then by block."""
    for parameter in PARAMETERS:
        if parameter.path not in arrays:
            continue
        whole = arrays[parameter.path].shape
        shape = _shape_of_theirs(parameter, parameter.own_shape(whole, config.num_word_rows))
        blocks = whole[0] if parameter.of_a_block else 1
        for block in range(blocks):
            index: tuple[int | slice | EllipsisType, ...] = ()
            if parameter.of_a_block:
                index = (block,)
            elif parameter.padded:
                index = (slice(config.num_word_rows),)
            # An array of fewer blocks than the model has holds the last ones.
            layer = config.stored_layers - blocks + block
            for number, name in enumerate(parameter.tensors):
                stacked = (..., number, slice(None), slice(None)) if len(parameter.tensors) > 1 else ()
                yield Stored(name.format(layer=layer), shape, parameter.path, (*index, *stacked), parameter.inputs > 0)


def expected_tensors(config: ModelConfig) -> list[Stored]:
    """Every tensor of a model with all parts. Allocates no arrays."""
    return list(stored_tensors(flatten_dict(parameter_shapes(config), sep="/"), config))


def to_parameters(read: Callable[[str], np.ndarray], config: ModelConfig, absent: frozenset[str]) -> Parameters:
    """Builds our parameter tree in float32 from Hugging Face's tensors; the vocabulary is padded with zeros.

    `read` is called once for each name of `expected_tensors`. Members of OPTIONAL_PARTS in `absent` are left out.
    """
    shapes = flatten_dict(parameter_shapes(config, absent), sep="/")
    arrays = {path: np.zeros(shape.shape, np.float32) for path, shape in shapes.items()}
    for stored in stored_tensors(arrays, config):
        place, tensor = arrays[stored.path][stored.place], read(stored.name)
        place[...] = (tensor.T if stored.transposed else tensor).reshape(place.shape)
    return unflatten_dict(arrays, sep="/")


def to_tensors(params: Parameters, config: ModelConfig) -> dict[str, Float[np.ndarray, "..."]]:
    """Converts our parameters to Hugging Face's tensors by name. Includes the head of a task if there is one.

    Optional parts may be missing. Sinusoidal positions become a table, as Hugging Face's BERT has only tables.
    """
    tensors, arrays = {}, {path: np.asarray(leaf) for path, leaf in flatten_dict(params, sep="/").items()}
    for stored in stored_tensors(arrays, config):
        place = arrays[stored.path][stored.place]
        tensor = place.reshape(stored.shape[::-1]).T if stored.transposed else place.reshape(stored.shape)
        tensors[stored.name] = np.ascontiguousarray(tensor)
    if config.positions == "sinusoidal":
        tensors[_POSITIONS] = sinusoids(config, config.max_positions)
    return tensors


def _shape_of_theirs(parameter: Parameter, own: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one tensor in Hugging Face's layout, from the shape of our parameter in one block."""
    if len(parameter.tensors) > 1:
        own = own[:-3] + own[-2:]
    if parameter.inputs:
        return math.prod(own[parameter.inputs :]), math.prod(own[: parameter.inputs])
    return own if parameter.is_table else (math.prod(own),)
