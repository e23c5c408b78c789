"""Which of Hugging Face's tensors is which of our parameters, and how each is laid out."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from bert_jax.config.model import ModelConfig
from bert_jax.model.bert import OPTIONAL_PARTS, Parameters, parameter_shapes
from bert_jax.model.embeddings import sinusoids
from bert_jax.model.size import PADDED


class Rule(NamedTuple):
    """One of our parameters and the tensors that it is made of."""

    path: str
    """Ours, from the root of the parameter tree."""
    names: tuple[str, ...]
    """Theirs; {layer} stands for a block's number. Of several, ours holds one beside the other on its third last
    axis."""
    contracted: int = 0
    """Of a matrix, how many of our axes are those of its input. Theirs has the output's axis first. 0: no matrix."""


def _linear(path: str, name: str, contracted: int = 1) -> tuple[Rule, Rule]:
    return Rule(f"{path}/kernel", (f"{name}.weight",), contracted), Rule(f"{path}/bias", (f"{name}.bias",))


def _norm(path: str, name: str) -> tuple[Rule, Rule]:
    return Rule(f"{path}/scale", (f"{name}.weight",)), Rule(f"{path}/bias", (f"{name}.bias",))


_LAYERS, _LAYER = "bert/encoder/layers", "bert.encoder.layer.{layer}"
_PROJECTIONS = tuple(f"{_LAYER}.attention.self.{part}" for part in ("query", "key", "value"))
_WORDS, _WORD_TABLE = "bert/embeddings/word", "bert.embeddings.word_embeddings.weight"
_POSITIONS = "bert.embeddings.position_embeddings.weight"
_MLM_BIAS = "cls.predictions.bias"

NAME_TABLE: tuple[Rule, ...] = (
    Rule(_WORDS, (_WORD_TABLE,)),
    Rule("bert/embeddings/segment", ("bert.embeddings.token_type_embeddings.weight",)),
    Rule("bert/embeddings/position", (_POSITIONS,)),
    *_norm("bert/embeddings/norm", "bert.embeddings.LayerNorm"),
    Rule(f"{_LAYERS}/attention/kernel", tuple(f"{name}.weight" for name in _PROJECTIONS), 1),
    Rule(f"{_LAYERS}/attention/bias", tuple(f"{name}.bias" for name in _PROJECTIONS)),
    *_linear(f"{_LAYERS}/attention/output", f"{_LAYER}.attention.output.dense", 2),
    *_norm(f"{_LAYERS}/attention_norm", f"{_LAYER}.attention.output.LayerNorm"),
    *_linear(f"{_LAYERS}/feedforward_in", f"{_LAYER}.intermediate.dense"),
    *_linear(f"{_LAYERS}/feedforward_out", f"{_LAYER}.output.dense"),
    *_norm(f"{_LAYERS}/feedforward_norm", f"{_LAYER}.output.LayerNorm"),
    *_linear("bert/pooler/dense", "bert.pooler.dense"),
    *_linear("masked_lm/dense", "cls.predictions.transform.dense"),
    *_norm("masked_lm/norm", "cls.predictions.transform.LayerNorm"),
    Rule("masked_lm/bias", (_MLM_BIAS,)),
    *_linear("next_sentence/dense", "cls.seq_relationship"),
    *_linear("task/dense", "classifier"),
)
"""Exactly one row a parameter. A head for answers is called otherwise: see export.py."""

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
    for rule in NAME_TABLE:
        if rule.path in shapes:
            shape = _shape_of_theirs(rule, _true_shape(rule.path, shapes[rule.path].shape, config))
            for layer in range(config.num_layers) if _of_a_block(rule) else (0,):
                for name in rule.names:
                    yield Expected(name.format(layer=layer), shape, rule.path)


def to_parameters(read: Callable[[str], np.ndarray], config: ModelConfig, absent: frozenset[str]) -> Parameters:
    """Our parameter tree in float32, the vocabulary padded with zeros, from tensors as `expected_tensors` has them.

    `read` is called once for each. Parts that are `absent` (see OPTIONAL_PARTS) are left out.
    """
    params: Parameters = {}
    shapes = _flat(parameter_shapes(config))
    for rule in NAME_TABLE:
        if rule.path in shapes and part_of(rule.path) not in absent:
            whole = np.zeros(shapes[rule.path].shape, np.float32)
            for name, place in _places(rule, whole, config):
                tensor = read(name)
                place[...] = (tensor.T if rule.contracted else tensor).reshape(place.shape)
            _put(params, rule.path, whole)
    return params


def to_tensors(params: Parameters, config: ModelConfig) -> dict[str, Float[np.ndarray, "..."]]:
    """Their tensors by name from our parameters, of which optional parts may be missing; the head of a task is written
    where there is one.

    Fixed positions (`config.positions` sinusoidal) become a table, which is what Hugging Face's BERT has.
    """
    tensors = {}
    leaves = _flat(params)
    for rule in NAME_TABLE:
        if rule.path in leaves:
            whole = np.asarray(leaves[rule.path])
            shape = _shape_of_theirs(rule, _true_shape(rule.path, whole.shape, config))
            for name, place in _places(rule, whole, config):
                tensor = place.reshape(shape[::-1]).T if rule.contracted else place.reshape(shape)
                tensors[name] = np.ascontiguousarray(tensor)
    if config.positions == "sinusoidal":
        tensors[_POSITIONS] = sinusoids(config, config.max_positions)
    return tensors


def _places(rule: Rule, whole: np.ndarray, config: ModelConfig) -> Iterator[tuple[str, np.ndarray]]:
    """Each tensor of a rule and the part of our parameter that it is, a view; padding of the vocabulary left out."""
    inside = whole[: config.vocabulary_size] if rule.path in PADDED else whole
    for layer, block in enumerate(inside if _of_a_block(rule) else [inside]):
        for number, name in enumerate(rule.names):
            yield name.format(layer=layer), block[..., number, :, :] if len(rule.names) > 1 else block


def _of_a_block(rule: Rule) -> bool:
    return rule.path.startswith(_LAYERS)


def _true_shape(path: str, shape: tuple[int, ...], config: ModelConfig) -> tuple[int, ...]:
    return (config.vocabulary_size, *shape[1:]) if path in PADDED else shape


def _shape_of_theirs(rule: Rule, ours: tuple[int, ...]) -> tuple[int, ...]:
    """Of one tensor, from the shape of our whole parameter."""
    one = ours[1:] if _of_a_block(rule) else ours
    if len(rule.names) > 1:
        one = one[:-3] + one[-2:]
    if rule.contracted:
        return math.prod(one[rule.contracted :]), math.prod(one[: rule.contracted])
    return one if _is_table(rule) else (math.prod(one),)


def _is_table(rule: Rule) -> bool:
    return rule.names[0].endswith("_embeddings.weight")


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
