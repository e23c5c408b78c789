"""Selects the tensors of a model among those of a file, by the names that BERT or a relative gives them."""

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.names import TIED, Stored, expected_tensors
from bert_jax.interchange.relatives import RELATIVES, Relative
from bert_jax.interchange.tensors import Tensor
from bert_jax.model.bert import OPTIONAL_PARTS
from bert_jax.system.errors import UsageError
from bert_jax.system.progress import say

_REASONS = (
    ("embeddings.position_ids", "the positions' numbers, not learned"),
    ("classifier.", "a fine-tuned model's head"),
    ("qa_outputs.", "a fine-tuned model's head"),
    ("output_weights", "a fine-tuned model's head"),
    ("output_bias", "a fine-tuned model's head"),
    ("cls.squad.", "a fine-tuned model's head"),
    ("discriminator_predictions.", "a discriminator's head, and config.json names another class"),
)
"""Prefixes of tensor names, without the encoder's, and the reason why such tensors aren't used."""
_SURE = ("bert.embeddings.word_embeddings.weight", "bert.encoder.layer.0.attention.output.dense.weight")
"""Tensors that every model has. In a wrapped model's file their names follow the wrapper's prefix."""
_LAYER = re.compile(r"(?:encoder\.layer|layers)\.(\d+)\.")
"""Beginning of the names of a block's tensors, after the encoder's."""
_OLD_ENDINGS = {"weight": "gamma", "bias": "beta"}
"""What the ends of a LayerNorm's names were until 2019, by today's."""


class Selection(NamedTuple):
    """The tensors of a file that a model uses."""

    tensors: dict[str, Tensor]
    """By BERT's current names."""
    absent: frozenset[str]
    """The members of OPTIONAL_PARTS without any tensor."""
    unused: dict[str, str]
    """The reason why each remaining tensor isn't used, by its name in the file."""


def select(
    tensors: dict[str, Tensor], config: ModelConfig, origin: Path, relative: Relative, class_name: str = ""
) -> Selection:
    """The tensors of a model of this configuration; `tensors` have the names of `relative`'s class `class_name`.

    Old names, those of an encoder alone and those with a wrapper's prefix are found too. Raises UsageError, naming
    `origin`, if a tensor is missing, has another shape or occurs twice, if there are tensors of more layers, or if the
    output embeddings differ from the word embeddings.
    """
    expected = expected_tensors(config)
    by_theirs: dict[str, list[str]] = {}
    for stored in expected:
        by_theirs.setdefault(relative.theirs(stored.name, class_name), []).append(stored.name)
    for name in TIED:
        by_theirs.setdefault(relative.theirs(name, class_name), [name])
    inside, others = _without_prefix(tensors, by_theirs.keys(), relative, origin)
    selected, unused = _matched(inside, by_theirs, relative.base, origin)
    for name, tied in TIED.items():
        if tied not in selected and name in selected:
            selected[tied] = selected.pop(name)
        elif name in selected:
            tensor, other = selected.pop(name), selected[tied]
            if tensor.shape != other.shape or not np.array_equal(tensor.read(), other.read()):
                raise UsageError(
                    f"{origin}: {tensor.source} differs from {other.source}; BERT's output table is its word table, "
                    "and so is that of bert_jax"
                )
    _check_layers(unused, config.stored_layers, origin)
    absent = _absent_parts(selected, expected, config.model_type, tensors, origin)
    reasons = {tensor.source: _reason(name) for name, tensor in (*unused, *others.items())}
    return Selection(selected, absent, reasons)


def _matched(
    inside: dict[str, Tensor], by_theirs: dict[str, list[str]], base: str, origin: Path
) -> tuple[dict[str, Tensor], list[tuple[str, Tensor]]]:
    """The tensors of a file by BERT's names; and those that have none, by their names without the encoder's beginning.

    `by_theirs`: BERT's names by the relative's name of the tensor that holds them. Old files have gamma and beta for
    weight and bias, and names of an encoder alone lack `base`. Raises UsageError for a tensor under two names.
    """
    alone = not any(name.startswith(base) for name in inside)
    selected: dict[str, Tensor] = {}
    rest = dict(inside)
    for theirs, names in by_theirs.items():
        current = theirs.removeprefix(base) if alone else theirs
        beginning, _, ending = current.rpartition(".")
        found = [rest.pop(one) for one in (current, f"{beginning}.{_OLD_ENDINGS[ending]}") if one in rest]
        if len(found) > 1:
            raise UsageError(f"{origin}: {found[0].source} and {found[1].source} are names of one tensor; keep one")
        for tensor in found:
            selected |= {name: _part(tensor, number, len(names)) for number, name in enumerate(names)}
    return selected, [(name.removeprefix(base), tensor) for name, tensor in rest.items()]


def _absent_parts(
    selected: dict[str, Tensor], expected: list[Stored], model_type: str, tensors: dict[str, Tensor], origin: Path
) -> frozenset[str]:
    """The parts without any tensor. Raises UsageError if another tensor is missing, or one has another shape."""
    relative = RELATIVES[model_type]
    missing = [stored for stored in expected if stored.name not in selected]
    present = {part_of(stored) for stored in expected if stored.name in selected}
    for stored in missing:
        part = part_of(stored)
        if part is None:
            raise UsageError(_lacking(stored, model_type, tensors, origin))
        if part in present:
            raise UsageError(
                f"{origin} has a part of {part} only: the tensor {relative.theirs(stored.name)} is missing"
            )
    for stored in expected:
        if stored.name in selected and selected[stored.name].shape != stored.shape:
            source, shape, _ = selected[stored.name]
            raise UsageError(f"{origin}: {source} has shape {shape} and its config asks for {stored.shape}")
    absent = frozenset(part for part in map(part_of, missing) if part)
    if "bert/pooler" in absent and "next_sentence" in present:
        raise UsageError(f"{origin} has a head for pairs and no pooler, on which it stands; give a model with both")
    return absent


def _check_layers(unused: Iterable[tuple[str, Tensor]], layers: int, origin: Path) -> None:
    """Raises UsageError if one of the tensors is of a layer beyond the `layers` of the model."""
    for name, tensor in unused:
        if (layer := _LAYER.match(name)) and int(layer[1]) >= layers:
            raise UsageError(
                f"{origin}: {tensor.source} is of layer {layer[1]}, numbered from 0, and its config has {layers} of "
                "them; tensors and config don't belong together"
            )


def _without_prefix(
    tensors: dict[str, Tensor], names: Collection[str], relative: Relative, origin: Path
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Removes a wrapper's prefix, such as DataParallel's `module.`, from the names of a model's tensors.

    Returns the model's tensors by their own names, and the other tensors. No prefix is removed if names fit as they
    are, or if one of the others would be used by its name. Raises UsageError if the names fit after two prefixes.
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
    """The prefixes with which `whole` occurs in `names`, with or without `base`, except other relatives' bases."""
    bases = {other.base for other in RELATIVES.values()} - {base, "model."}
    for name in names:
        end = next((one for one in (whole, whole.removeprefix(base)) if f".{name}".endswith(f".{one}")), None)
        if end and not (prefix := name.removesuffix(end)).endswith(tuple(bases)):
            yield prefix


def _part(tensor: Tensor, number: int, count: int) -> Tensor:
    """Part `number` of a tensor that holds `count` of the same size one below the other.

    The last part has the rows that remain if they don't divide, so that its shape is refused.
    """
    if count == 1:
        return tensor
    rows, *others = tensor.shape or (0,)
    begin, end = number * (rows // count), rows if number == count - 1 else (number + 1) * (rows // count)
    source = f"{tensor.source} (part {number + 1} of {count})"
    return Tensor(source, (end - begin, *others), lambda: tensor.read()[begin:end])


def part_of(stored: Stored) -> str | None:
    """The member of OPTIONAL_PARTS that contains the parameter of a tensor, or None for the encoder."""
    return next((part for part in OPTIONAL_PARTS if stored.path.startswith(f"{part}/")), None)


def _lacking(stored: Stored, model_type: str, tensors: dict[str, Tensor], origin: Path) -> str:
    """The message about a tensor of the encoder that isn't there."""
    own = RELATIVES[model_type]
    message = f"{origin} lacks the tensor {own.theirs(stored.name)}, of shape {stored.shape}, that its config asks for"
    for other_type, other in RELATIVES.items():
        if other.base != own.base and any(tensor.source.startswith(other.base) for tensor in tensors.values()):
            return f"{message}; those that are there are a {other_type}'s, and config.json calls it {model_type}"
    return message


def _reason(name: str) -> str:
    """Why a tensor isn't used; `name` lacks the encoder's beginning."""
    return next((reason for beginning, reason in _REASONS if name.startswith(beginning)), "not a tensor of BERT")
