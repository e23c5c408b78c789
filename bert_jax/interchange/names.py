"""Which of Hugging Face's tensors is which of our parameters, and how each is laid out."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from bert_jax.config.model import ModelConfig
from bert_jax.model.bert import OPTIONAL_PARTS, Parameters, parameter_shapes
from bert_jax.model.embeddings import sinusoids
from bert_jax.model.parameters import PARAMETERS, Parameter

_WORD_TABLE = "bert.embeddings.word_embeddings.weight"
_POSITIONS = "bert.embeddings.position_embeddings.weight"
_MLM_BIAS = "cls.predictions.bias"
TIED = {"cls.predictions.decoder.weight": _WORD_TABLE, "cls.predictions.decoder.bias": _MLM_BIAS}
"""Tensors that repeat another one."""


def part_of(path: str) -> str | None:
    """Which of OPTIONAL_PARTS the parameter at `path` belongs to; None for the encoder's."""
    return next((part for part in OPTIONAL_PARTS if path.startswith(f"{part}/")), None)


class Expected(NamedTuple):
    """A tensor that a model needs."""

    name: str
    shape: tuple[int, ...]
    """Theirs: the vocabulary not padded."""
    path: str
    """Of the parameter that it goes into."""


def expected_tensors(config: ModelConfig) -> Iterator[Expected]:
    """Every tensor of the model with all its parts, block by block within a parameter; nothing is allocated."""
    shapes = _flat(parameter_shapes(config))
    for parameter in PARAMETERS:
        if parameter.path in shapes:
            shape = _shape_of_theirs(
                parameter, parameter.own_shape(shapes[parameter.path].shape, config.vocabulary_size)
            )
            for layer in range(config.num_layers) if parameter.of_a_block else (0,):
                for name in parameter.tensors:
                    yield Expected(name.format(layer=layer), shape, parameter.path)


def to_parameters(read: Callable[[str], np.ndarray], config: ModelConfig, absent: frozenset[str]) -> Parameters:
    """Our parameter tree in float32, the vocabulary padded with zeros, from tensors as `expected_tensors` has them.

    `read` is called once for each. Parts that are `absent` (see OPTIONAL_PARTS) are left out.
    """
    params: Parameters = {}
    shapes = _flat(parameter_shapes(config))
    for parameter in PARAMETERS:
        if parameter.path in shapes and part_of(parameter.path) not in absent:
            whole = np.zeros(shapes[parameter.path].shape, np.float32)
            for name, place in _places(parameter, whole, config):
                tensor = read(name)
                place[...] = (tensor.T if parameter.inputs else tensor).reshape(place.shape)
            _put(params, parameter.path, whole)
    return params


def to_tensors(params: Parameters, config: ModelConfig) -> dict[str, Float[np.ndarray, "..."]]:
    """Their tensors by name from our parameters, of which optional parts may be missing; the head of a task is written
    where there is one.

    Fixed positions (`config.positions` sinusoidal) become a table, which is what Hugging Face's BERT has.
    """
    tensors = {}
    leaves = _flat(params)
    for parameter in PARAMETERS:
        if parameter.path in leaves:
            whole = np.asarray(leaves[parameter.path])
            shape = _shape_of_theirs(parameter, parameter.own_shape(whole.shape, config.vocabulary_size))
            for name, place in _places(parameter, whole, config):
                tensor = place.reshape(shape[::-1]).T if parameter.inputs else place.reshape(shape)
                tensors[name] = np.ascontiguousarray(tensor)
    if config.positions == "sinusoidal":
        tensors[_POSITIONS] = sinusoids(config, config.max_positions)
    return tensors


def _places(parameter: Parameter, whole: np.ndarray, config: ModelConfig) -> Iterator[tuple[str, np.ndarray]]:
    """Each tensor of a parameter and the part of ours that it is, a view; the vocabulary's padding is left out."""
    inside = whole[: config.vocabulary_size] if parameter.padded else whole
    for layer, block in enumerate(inside if parameter.of_a_block else [inside]):
        for number, name in enumerate(parameter.tensors):
            yield name.format(layer=layer), block[..., number, :, :] if len(parameter.tensors) > 1 else block


def _shape_of_theirs(parameter: Parameter, own: tuple[int, ...]) -> tuple[int, ...]:
    """Of one tensor, from the shape of our parameter of one block."""
    if len(parameter.tensors) > 1:
        own = own[:-3] + own[-2:]
    if parameter.inputs:
        return math.prod(own[parameter.inputs :]), math.prod(own[: parameter.inputs])
    return own if parameter.is_table else (math.prod(own),)


def _flat(tree: Parameters, path: str = "") -> dict[str, Any]:
    """Leaves by their path from the root."""
    flat = {}
    for name, child in tree.items():
        flat |= _flat(child, f"{path}{name}/") if isinstance(child, dict) else {f"{path}{name}": child}
    return flat


def _put(tree: Parameters, path: str, leaf: np.ndarray) -> None:
    *parents, name = path.split("/")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    tree[name] = leaf
