"""Selects the tensors of a model among those of a file, by the names that BERT or a relative gives them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
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
    names = {name: relative.theirs(name, class_name) for name in (*(stored.name for stored in expected), *TIED)}
    inside, others = _without_prefix(tensors, names, relative, origin)
    selected, used = _matched(inside, names, Counter(names[stored.name] for stored in expected), relative, origin)
    for name, tied in TIED.items():
        if name in selected:
            tensor = selected.pop(name)
            _check_tied(tensor, selected.setdefault(tied, tensor), origin)
    missing = [stored for stored in expected if stored.name not in selected]
    present = {_part_of(stored) for stored in expected if stored.name in selected}
    for stored in missing:
        part = _part_of(stored)
        if part is None:
            raise UsageError(_lacking(stored, names, tensors, config.model_type, origin))
        if part in present:
            raise UsageError(f"{origin} has a part of {part} only: the tensor {names[stored.name]} is missing")
    for stored in expected:
        tensor = selected.get(stored.name)
        if tensor and tensor.shape != stored.shape:
            raise UsageError(
                f"{origin}: {tensor.source} has shape {tensor.shape} and its config asks for {stored.shape}"
            )
    absent = frozenset(part for part in map(_part_of, missing) if part)
    if "bert/pooler" in absent and "next_sentence" in present:
        raise UsageError(f"{origin} has a head for pairs and no pooler, on which it stands")
    rest = {name.removeprefix(relative.base): tensor for name, tensor in inside.items() if name not in used}
    for name, tensor in rest.items():
        if (layer := _LAYER.match(name)) and int(layer[1]) >= config.stored_layers:
            raise UsageError(
                f"{origin}: {tensor.source} is of layer {layer[1]}, numbered from 0, and its config has "
                f"{config.stored_layers} of them; tensors and config don't belong together"
            )
    unused = {tensor.source: _reason(name) for name, tensor in (*rest.items(), *others.items())}
    return Selection(selected, absent, unused)


def _matched(
    inside: dict[str, Tensor], names: dict[str, str], parts: Counter[str], relative: Relative, origin: Path
) -> tuple[dict[str, Tensor], set[str]]:
    """The tensors by those of BERT's `names` that the file has, and their names in the file.

    `parts`: how many tensors of BERT each name stands for. Old files have gamma and beta for weight and bias, and names
    of an encoder alone lack their beginning. Raises UsageError if a tensor is there under two names.
    """
    alone = not any(name.startswith(relative.base) for name in inside)
    selected: dict[str, Tensor] = {}
    used: set[str] = set()
    passed: Counter[str] = Counter()
    for name, theirs in names.items():
        current = theirs.removeprefix(relative.base) if alone else theirs
        beginning, _, ending = current.rpartition(".")
        found = [one for one in (current, f"{beginning}.{_OLD_ENDINGS[ending]}") if one in inside]
        if len(found) > 1:
            first, second = (inside[one].source for one in found)
            raise UsageError(f"{origin}: {first} and {second} are names of one tensor; keep one")
        for one in found:
            used.add(one)
            several = parts[theirs] > 1
            selected[name] = _part(inside[one], passed[theirs], parts[theirs]) if several else inside[one]
        passed[theirs] += 1
    return selected, used


def _without_prefix(
    tensors: dict[str, Tensor], names: dict[str, str], relative: Relative, origin: Path
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Removes a wrapper's prefix, such as DataParallel's `module.`, from the names of a model's tensors.

    Returns the model's tensors by their own names, and the other tensors. No prefix is removed if names fit as they
    are, or if one of the others would be used by its name. Raises UsageError if the names fit after two prefixes.
    """
    word, block = ({*_prefixes(tensors, names[name], relative.base)} for name in _SURE)
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
    if others.keys() & {name for theirs in names.values() for name in (theirs, theirs.removeprefix(relative.base))}:
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
    rows, *others = tensor.shape or (0,)
    begin, end = number * (rows // count), rows if number == count - 1 else (number + 1) * (rows // count)
    source = f"{tensor.source} (part {number + 1} of {count})"
    return Tensor(source, (end - begin, *others), lambda: tensor.read()[begin:end])


def _part_of(stored: Stored) -> str | None:
    """The member of OPTIONAL_PARTS that contains the parameter of a tensor, or None for the encoder."""
    return next((part for part in OPTIONAL_PARTS if stored.path.startswith(f"{part}/")), None)


def _lacking(stored: Stored, names: dict[str, str], tensors: dict[str, Tensor], model_type: str, origin: Path) -> str:
    """The message about a tensor of the encoder that isn't there."""
    message = f"{origin} lacks the tensor {names[stored.name]}, of shape {stored.shape}, that its config asks for"
    for other_type, other in RELATIVES.items():
        strange = other.base != RELATIVES[model_type].base
        if strange and any(tensor.source.startswith(other.base) for tensor in tensors.values()):
            return f"{message}; those that are there are a {other_type}'s, and config.json calls it {model_type}"
    return message


def _check_tied(tensor: Tensor, other: Tensor, origin: Path) -> None:
    if tensor is not other and (tensor.shape != other.shape or not np.array_equal(tensor.read(), other.read())):
        raise UsageError(
            f"{origin}: {tensor.source} differs from {other.source}; BERT's output table is its word table, and so "
            "is that of bert_jax"
        )


def _reason(name: str) -> str:
    """Why a tensor isn't used; `name` lacks the encoder's beginning."""
    return next((reason for beginning, reason in _REASONS if name.startswith(beginning)), "not a tensor of BERT")
