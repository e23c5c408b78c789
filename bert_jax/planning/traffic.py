"""Memory traffic of a compiled step: the bytes it moves to and from a device's main memory."""

import re
from collections import Counter
from typing import Annotated

from bert_jax.planning.collectives import kind_of
from bert_jax.planning.program import Computation, Instruction, Program
from bert_jax.system import facts
from bert_jax.system.facts import Facts

_MOVES_NOTHING = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call")
_NAMES_ONLY = ('custom_call_target="AllocateBuffer"', 'custom_call_target="ConcatBitcast"')
"""Custom calls that only name a buffer."""
_WRAPPERS = re.compile(r".*\(.*|while|body|closed_call|cond|branch_\d+_fun|checkpoint|rematted_computation|shard_map")
"""Components of an operation's name that JAX' transformations added; the others are modules."""
_MODULES_OF_ALL = ("bert", "encoder", "Block")
"""Modules left out of the names of parts, since most operations are in them."""
_SLICES = ("slice", "dynamic-slice", "gather")


class Mover(Facts):
    """Operations of a step that stand at the same place of the model, with their traffic."""

    part: str
    """The module, such as `attention/output`; `optimizer`, or `step` for what is neither."""
    direction: Annotated[str, "pass"]
    """`forward`, `backward` or, of the optimizer and the step, empty."""
    operation: str
    """JAX' name of the operation that ends the fusion, such as `dot_general`."""
    times: Annotated[int, facts.Unit("{:,} x".format), "how often"]
    """How often such operations run in a step, together."""
    bytes: facts.Traffic
    """Bytes that they move together."""
    share: Annotated[facts.Share, "of all"]
    """Share of all bytes that a step moves."""


def movers(program: Program) -> list[Mover]:
    """Bytes that a step reads from and writes to main memory, by part of the model and operation, largest first.

    Operands and results of every instruction count; of an array of which a slice is read or replaced, that slice.
    Collectives aren't counted.
    """
    moved: Counter[tuple[str, str, str]] = Counter()
    runs: Counter[tuple[str, str, str]] = Counter()
    for computation, one, times in program.executed():
        if size := _moved(program, computation, one):
            match = re.search(r'op_name="([^"]*)"', one.attributes)
            where = _where(match[1]) if match else ("step", "", one.kind)
            moved[where] += times * size
            runs[where] += times
    return [
        Mover(
            part=part,
            direction=way,
            operation=name,
            times=runs[part, way, name],
            bytes=size,
            share=size / moved.total(),
        )
        for (part, way, name), size in moved.most_common()
    ]


def _where(name: str) -> tuple[str, str, str]:
    """Module, direction and operation of JAX' name of an operation."""
    *path, operation = name.split("/")
    if "cond" in path:
        return "optimizer", "", operation
    inside = [part for part in dict.fromkeys(path) if not _WRAPPERS.fullmatch(part) and part not in _MODULES_OF_ALL]
    direction = "backward" if "transpose(" in name else "forward" if "jvp(" in name else ""
    return "/".join(inside) or ("encoder" if "encoder" in path else "step"), direction, operation


def _moved(program: Program, computation: Computation, one: Instruction) -> int:
    if one.kind in _MOVES_NOTHING or kind_of(one) or one.kind.endswith(("-done", "-update")):
        return 0
    if one.kind == "custom-call" and any(name in one.attributes for name in _NAMES_ONLY):
        return 0
    if one.kind == "copy-start":  # the result is a tuple of the copy, the source and a flag
        return sum(buffer.bytes for part in one.parts[:2] for buffer in part if buffer.in_memory)
    if one.kind == "slice-start":  # a tuple of the source, the slice and a flag; between main memory and the chip
        return sum(buffer.bytes for buffer in one.parts[1])
    written = sum(_written(program, computation, one))
    return written + sum(
        _read(program, computation, one, number)
        for number, name in enumerate(one.operands)
        if any(buffer.in_memory for buffer in computation.instructions[name].buffers)
    )


def _read(program: Program, computation: Computation, one: Instruction, number: int) -> int:
    """Bytes that an instruction reads of its operand `number`."""
    whole = computation.instructions[one.operands[number]].bytes
    if one.kind == "tuple" or kind_of(one):
        return 0
    if one.kind == "dynamic-update-slice" and number == 0:
        return 0  # it is updated in place
    if one.kind in _SLICES and number == 0:
        return min(whole, one.bytes)
    if one.kind == "bitcast":
        return _read_by_users(program, computation, one.name, whole)
    if one.kind == "fusion":
        inner = program.computations[one.called[0]]
        for parameter in inner.instructions.values():
            if parameter.kind == "parameter" and parameter.literal == str(number):
                return _read_by_users(program, inner, parameter.name, whole)
    return whole


def _read_by_users(program: Program, computation: Computation, name: str, whole: int) -> int:
    """Bytes of `name` that all its users read together; the whole array at most."""
    taken = sum(
        _read(program, computation, user, number)
        for user in computation.users(name)
        for number, operand in enumerate(user.operands)
        if operand == name
    )
    return min(whole, taken)


def _written(program: Program, computation: Computation, one: Instruction) -> list[int]:
    """Bytes that an instruction writes to main memory, for each element of its result."""
    parts = [sum(buffer.bytes for buffer in part if buffer.in_memory) for part in one.parts]
    if one.kind == "dynamic-update-slice":
        return [min(part, computation.instructions[one.operands[1]].bytes) for part in parts]
    if one.kind == "fusion":
        inner = program.computations[one.called[0]]
        roots = inner.instructions[inner.root]
        names = roots.operands if roots.kind == "tuple" else (inner.root,)
        return [min(part, _computed(program, inner, name)) for part, name in zip(parts, names, strict=False)]
    return parts


def _computed(program: Program, computation: Computation, name: str) -> int:
    """Bytes that a fused computation computes for the result `name`, rather than passing them through."""
    one = computation.instructions[name]
    if one.kind == "parameter" or kind_of(one):
        return 0
    if one.kind == "bitcast":
        return _computed(program, computation, one.operands[0])
    if one.kind == "dynamic-update-slice":
        return computation.instructions[one.operands[1]].bytes
    if one.kind == "fusion":
        inner = program.computations[one.called[0]]
        return _computed(program, inner, inner.root)
    return one.bytes
