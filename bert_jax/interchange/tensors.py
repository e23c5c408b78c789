"""Reads tensors of safetensors files by Hugging Face's names, and selects those that a model needs."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.json_file import read_shape
from bert_jax.interchange.names import TIED, expected_tensors, part_of
from bert_jax.interchange.relatives import RELATIVES, Relative
from bert_jax.model.parameters import PARAMETERS
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.files import open_regular
from bert_jax.system.json_file import Shape
from bert_jax.system.progress import say

BERT = RELATIVES["bert"]
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_MOST_HEADER_BYTES = 10_000_000
"""Largest header that is read. It describes every tensor; for BERT-large it has 50 kB."""
_READABLE = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")
"""Types of safetensors that numpy supports. A BERT uses the first four; a later check refuses the others by name."""
_REASONS = (
    ("embeddings.position_ids", "the positions' numbers, not learned"),
    ("classifier.", "a fine-tuned model's head"),
    ("qa_outputs.", "a fine-tuned model's head"),
    ("output_weights", "a fine-tuned model's head"),
    ("output_bias", "a fine-tuned model's head"),
    ("cls.squad.", "a fine-tuned model's head"),
    ("discriminator_predictions.", "a discriminator's head, and config.json names another class"),
)
"""Prefixes of tensor names, without `bert.`, and the reason why such tensors aren't used."""
_SURE = ("bert.embeddings.word_embeddings.weight", "bert.encoder.layer.0.attention.output.dense.weight")
"""Tensors that every model has. In a wrapped model's file their names follow the wrapper's prefix."""
_OURS = re.compile(
    "|".join(
        re.escape(name).replace(r"\{layer\}", r"\d+")
        for row in PARAMETERS
        for name in row.tensors
        if row.group != "task head"
    )
    + "".join(f"|{re.escape(name)}" for name in TIED)
)
"""The names of all tensors that may be read."""
_LAYER = re.compile(r"bert\.encoder\.layer\.(\d+)\.")
_OF_NO_BERT = "not a tensor of BERT"


class _Index(Shape):
    """The contents of model.safetensors.index.json: the file that holds each tensor."""

    weight_map: dict[str, str]


class Tensor(NamedTuple):
    """One tensor in a file, which is read on demand."""

    source: str
    """Name of the tensor in the file."""
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


def read_safetensors(directory: Path, relative: Relative = BERT, kind: str = "") -> tuple[dict[str, Tensor], list[str]]:
    """The tensors of model.safetensors, or of the files in its index, by BERT's current names; reads only headers.

    `relative`: which one's names the files have, in the class `kind`.

    Also returns the names of tensors in these files that the index doesn't list. Raises UsageError if a header is
    damaged or doesn't match its file, if the index names a file outside `directory`, or if a file lacks a tensor that
    the index lists.
    """
    if not (directory / INDEX).is_file():
        return _by_todays_names(tensors_of(directory / WEIGHTS), directory, relative, kind), []
    places = read_shape(directory / INDEX, _Index).weight_map
    inside: dict[str, Tensor] = {}
    for file in sorted(set(places.values())):
        if Path(file).name != file or not file.endswith(".safetensors") or not file.isprintable():
            raise UsageError(
                f"{directory / INDEX} names {quoted(file)}, which is no safetensors file in its folder; fetch it again"
            )
        of_file = tensors_of(directory / file)
        inside |= of_file
        if missing := [name for name, place in places.items() if place == file and name not in of_file]:
            raise UsageError(f"{directory / file} lacks {missing[0]}, which {INDEX} says is there; fetch both again")
    listed = {name: inside[name] for name in places}
    return _by_todays_names(listed, directory, relative, kind), sorted(inside.keys() - listed.keys())


def tensors_of(path: Path) -> dict[str, Tensor]:
    """The tensors of one safetensors file, by their names in it.

    The library checks that the header describes each byte of the file exactly once. Raises UsageError if the file is
    damaged.
    """
    try:
        with open_regular(path) as file:
            size = int.from_bytes(file.read(8), "little")
        if size > _MOST_HEADER_BYTES:
            raise UsageError(f"{path} says that its header has {size:,} bytes; a BERT's has less than 100,000")
        opened = safe_open(path, "numpy")
        described = {name: opened.get_slice(name) for name in opened.keys()}
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror or error}); give a folder that has it") from None
    except SafetensorError as error:
        raise UsageError(f"{path} is no good safetensors file ({quoted(str(error))}); fetch it again") from None
    if unprintable := [name for name in described if not name.isprintable()]:
        raise UsageError(f"{path} has a tensor named {quoted(unprintable[0])}, which is no name; fetch it again")
    return {
        name: Tensor(name, tuple(slice.get_shape()), partial(_read, opened, name, slice.get_dtype()))
        for name, slice in described.items()
    }


def _read(opened: safe_open, name: str, dtype: str) -> np.ndarray:
    if dtype not in _READABLE:
        raise UsageError(f"{name} holds {dtype} numbers, which aren't read here; convert the model to float32")
    return opened.get_tensor(name)


def _by_todays_names(tensors: dict[str, Tensor], directory: Path, relative: Relative, kind: str) -> dict[str, Tensor]:
    """Renames a relative's tensors to the names in PARAMETERS.

    Old files have gamma and beta for weight and bias, and names of a bare encoder lack their beginning, `bert.`. Raises
    UsageError if two tensors get the same name.
    """
    tensors, others = _without_prefix(tensors, directory, relative, kind)
    alone = not any(name.startswith(relative.base) for name in tensors)
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        for old, today in ((".gamma", ".weight"), (".beta", ".bias")):
            if name.endswith(old):
                name = name.removesuffix(old) + today
        if alone and name.startswith(relative.bare):
            name = relative.base + name
        parts = relative.parts_of(name)
        for part, berts in enumerate(parts or [relative.berts(name, kind)]):
            if berts in renamed:
                raise UsageError(
                    f"{directory}: {renamed[berts].source} and {tensor.source} are names of one tensor; keep one"
                )
            renamed[berts] = _part(tensor, part, len(parts)) if parts else tensor
    for name, tied in TIED.items():
        if tied not in renamed and name in renamed:
            renamed[tied] = renamed.pop(name)
    if both := renamed.keys() & others.keys():
        raise UsageError(f"{directory}: {renamed[both.pop()].source} is there without its prefix too; keep one")
    return renamed | others


def _without_prefix(
    tensors: dict[str, Tensor], directory: Path, relative: Relative, kind: str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Removes a wrapper's prefix, such as DataParallel's `module.`, from the names of a model's tensors.

    Returns the model's tensors by their own names, and the other tensors.

    No prefix is removed if names fit as they are, or if one of the others would be used by its name. Raises UsageError
    if the names fit after two prefixes.
    """
    word, block = ({*_prefixes(tensors, relative.theirs(name, kind), relative)} for name in _SURE)
    prefixes = sorted(word & block)
    if not prefixes or "" in prefixes:
        return tensors, {}
    if len(prefixes) > 1:
        raise UsageError(
            f"{directory} has more than one model: names of tensors fit after {prefixes[0]} and after {prefixes[1]}; "
            "keep the tensors of one"
        )
    (prefix,) = prefixes
    inside = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    others = {name: tensor for name, tensor in tensors.items() if not name.startswith(prefix)}
    if any(_is_used(whole, relative, kind) for name in others for whole in (name, relative.base + name)):
        return tensors, {}
    whose = f"{len(inside):,} of {len(tensors):,}" if others else "all"
    say(f"{directory}: the names of {whose} tensors begin with {prefix}, which is left out")
    return inside, others


def _prefixes(names: Iterable[str], whole: str, relative: Relative) -> Iterator[str]:
    """The prefixes with which `whole` occurs in `names`, with or without its base, except other relatives' bases."""
    bases = {other.base for other in RELATIVES.values()} - {relative.base, "model."}
    for name in names:
        end = next((one for one in (whole, whole.removeprefix(relative.base)) if f".{name}".endswith(f".{one}")), None)
        if end and not (prefix := name.removesuffix(end)).endswith(tuple(bases)):
            yield prefix


def _is_used(name: str, relative: Relative, kind: str) -> bool:
    """Whether a file's tensor of this name is one of a model's."""
    return bool(relative.parts_of(name)) or _OURS.fullmatch(relative.berts(name, kind)) is not None


def _part(tensor: Tensor, number: int, count: int) -> Tensor:
    """Part `number` of a tensor that holds `count` of the same size one below the other; what remains of rows that
    don't divide is in the last one, whose shape is wrong then."""
    rows, *others = tensor.shape or (0,)
    begin, end = number * (rows // count), rows if number == count - 1 else (number + 1) * (rows // count)
    named = f"{tensor.source} (part {number + 1} of {count})"
    return Tensor(named, (end - begin, *others), lambda: tensor.read()[begin:end])


class Selection(NamedTuple):
    """Which tensors of a file a model uses."""

    absent: frozenset[str]
    """The members of OPTIONAL_PARTS without any tensor."""
    unused: dict[str, str]
    """The reason why each remaining tensor isn't used, by its name in the file."""


def select(tensors: dict[str, Tensor], config: ModelConfig, origin: Path) -> Selection:
    """Checks that `tensors` contain a model of this configuration; returns its missing parts and unused tensors.

    Raises UsageError, naming `origin`, if a tensor is missing or has another shape, or if the output embeddings differ
    from the word embeddings.
    """
    missing: dict[str, str] = {}
    partial_parts: set[str] = set()
    taken = set()
    for name, shape, path in expected_tensors(config):
        part = part_of(path)
        if name in tensors:
            taken.add(name)
            partial_parts |= {part} - {None}
            _check_shape(tensors[name], shape, origin)
        elif part is None:
            raise UsageError(_lacking(name, shape, tensors, config, origin))
        else:
            missing.setdefault(part, name)
    for part in partial_parts & missing.keys():
        raise UsageError(f"{origin} has a part of {part} only: the tensor {missing[part]} is missing")
    if "bert/pooler" in missing and "next_sentence" not in missing:
        raise UsageError(
            f"{origin} has a head for pairs and no pooler, on which it stands: {missing['bert/pooler']} is missing"
        )
    rest = {name: tensor for name, tensor in tensors.items() if name not in taken}
    for name, tensor in rest.items():
        if (layer := _LAYER.match(name)) and int(layer[1]) >= config.stored_layers:
            raise UsageError(
                f"{origin}: {tensor.source} is of layer {layer[1]}, numbered from 0, and its config has "
                f"{config.stored_layers} of them; tensors and config don't belong together"
            )
    for name in rest.keys() & TIED.keys():
        _check_tied(rest[name], tensors[TIED[name]], origin)
    return Selection(
        frozenset(missing), {tensor.source: _reason(name) for name, tensor in rest.items() if name not in TIED}
    )


def _lacking(name: str, shape: tuple[int, ...], tensors: dict[str, Tensor], config: ModelConfig, origin: Path) -> str:
    """The message about a tensor that isn't there, by the name that it has in files of this kind of model."""
    relative = RELATIVES[config.model_type]
    theirs = relative.whole_of(name) or relative.theirs(name)
    message = f"{origin} lacks the tensor {theirs}, of shape {shape}, that its config asks for"
    for kind, other in RELATIVES.items():
        if other.base != relative.base and any(tensor.source.startswith(other.base) for tensor in tensors.values()):
            message += f"; those that are there are a {kind}'s, and config.json calls it {config.model_type}"
            break
    return message


def _check_shape(tensor: Tensor, shape: tuple[int, ...], origin: Path) -> None:
    if tensor.shape != shape:
        raise UsageError(f"{origin}: {tensor.source} has shape {tensor.shape} and its config asks for {shape}")


def _check_tied(tensor: Tensor, other: Tensor, origin: Path) -> None:
    if tensor.shape != other.shape or not np.array_equal(tensor.read(), other.read()):
        raise UsageError(
            f"{origin}: {tensor.source} differs from {other.source}; BERT's output table is its word table, and so "
            "is that of bert_jax"
        )


def _reason(name: str) -> str:
    name = name.removeprefix("bert.")
    return next((reason for beginning, reason in _REASONS if name.startswith(beginning)), _OF_NO_BERT)
