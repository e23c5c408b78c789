"""Table of all parameters, one row each: axes, group, weight decay and names in other programs' files."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jax.tree_util import KeyPath
from jaxtyping import Bool

from bert_jax.config.model import WIDEST_FILTER
from bert_jax.config.training import TrainedPart
from bert_jax.model.parameter import HEAD_AXES, Parameter, layer_row, linear_rows, norm_rows
from bert_jax.model.positions import SCHEMES


def _character_layer(name: str, part: str, axes: tuple[str, ...], stacked: int = 0) -> tuple[Parameter, Parameter]:
    """Kernel and bias of a layer of the convolution over bytes. Their first `stacked` axes stack matrices."""
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
_WIDTH = ("width",)
_GATED, _GATED_TENSORS = ("projection", "inner"), ("intermediate.dense", "intermediate.gate")

PARAMETERS: tuple[Parameter, ...] = (
    _table("word", "vocabulary", "word table"),
    _table("segment", "segment", "segment table"),
    _table("position", "position", "position table"),
    _table("task_type", "segment", "task type table"),
    Parameter(
        "bert/embeddings/mask", ("vector",), "embeddings", "query stream", ("bert.embeddings.mask",), decays=True
    ),
    *norm_rows("bert/embeddings/norm", "embeddings", "LayerNorm", "bert.embeddings.LayerNorm"),
    *linear_rows(
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
    *linear_rows("attention", "block", "query, key, value", _PROJECTIONS, _WIDTH, "projection", *HEAD_AXES),
    *linear_rows("attention/query", "block", "query", _PROJECTIONS[:1], _WIDTH, *HEAD_AXES),
    *linear_rows("attention/key_value", "block", "key, value", _PROJECTIONS[1:], _WIDTH, "projection", *HEAD_AXES),
    *(parameter for scheme in SCHEMES.values() for parameter in scheme.parameters),
    *linear_rows("attention/output", "block", "attention output", ("attention.output.dense",), HEAD_AXES, "width"),
    *norm_rows("attention_norm", "block", "LayerNorm", "attention.output.LayerNorm"),
    *linear_rows("feedforward_in", "block", "feed-forward in", ("intermediate.dense",), _WIDTH, "inner"),
    *linear_rows("feedforward_gated", "block", "feed-forward in and gate", _GATED_TENSORS, _WIDTH, *_GATED),
    *linear_rows("feedforward_out", "block", "feed-forward out", ("output.dense",), ("inner",), "width"),
    *norm_rows("feedforward_norm", "block", "LayerNorm", "output.LayerNorm"),
    layer_row("inputs/kernel", ("direction", "width", "gate", "cell"), "block", "LSTM inputs", (), "weight", 1),
    layer_row("inputs/bias", ("direction", "gate", "vector"), "block", "LSTM inputs", (), "bias"),
    layer_row("recurrence/kernel", ("direction", "width", "gate", "cell"), "block", "LSTM recurrence", (), "weight", 1),
    layer_row("projection/kernel", ("direction", "cell", "width"), "block", "LSTM projection", (), "weight", 1),
    *norm_rows("bert/encoder/norm", "last norm", "LayerNorm after the blocks", "bert.encoder.norm"),
    *linear_rows("bert/pooler/dense", "pooler", "pooler", ("bert.pooler.dense",), _WIDTH, "features"),
    *norm_rows("bert/pooler/norm", "pooler", "pooler LayerNorm", "bert.pooler.norm"),
    *linear_rows("masked_lm/dense", "MLM head", "MLM dense", ("cls.predictions.transform.dense",), _WIDTH, "features"),
    *norm_rows("masked_lm/norm", "MLM head", "MLM LayerNorm", "cls.predictions.transform.LayerNorm"),
    Parameter("masked_lm/bias", ("vocabulary",), "MLM head", "MLM bias", ("cls.predictions.bias",), decays=False),
    Parameter(
        "masked_lm/table",
        ("vocabulary", "width"),
        "MLM head",
        "MLM table",
        ("cls.predictions.decoder.weight",),
        decays=True,
    ),
    Parameter("masked_lm/position", ("position", "width"), "MLM head", "decoder's positions", (), decays=True),
    *linear_rows("next_sentence/dense", "pair head", "pair dense", ("cls.seq_relationship",), _WIDTH, "outputs"),
    *linear_rows("replaced/dense", "RTD head", "RTD dense", ("discriminator_predictions.dense",), _WIDTH, "features"),
    *linear_rows(
        "replaced/output", "RTD head", "RTD output", ("discriminator_predictions.dense_prediction",), _WIDTH, "outputs"
    ),
    *linear_rows("tag/dense", "tag head", "tag dense", (), _WIDTH, "outputs"),
    *linear_rows("task/dense", "task head", "task dense", ("classifier",), _WIDTH, "outputs"),
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
    Raises ValueError if there is none."""
    names = path.split("/")
    for begin in range(len(names)):
        if parameter := _BY_PATH.get("/".join(names[begin:])):
            return parameter
    raise ValueError(f"PARAMETERS (model/parameters.py) has no row for the parameter {path}; add one")


def trained_parameters(params: Any, trained: TrainedPart) -> Any:
    """For each array of the tree `params`, a boolean as an array without axes: whether a phase whose `trains` is
    `trained` (config/training.py) changes it."""

    def changes(path: KeyPath, _: object) -> Bool[np.ndarray, ""]:
        parameter = parameter_at(path_of(path))
        of_head, of_words = parameter.group.endswith(" head"), parameter.padded and parameter.is_table
        return np.array({"all": True, "head": of_head, "words": of_head or of_words, "blocks": not of_words}[trained])

    return jax.tree_util.tree_map_with_path(changes, params)
