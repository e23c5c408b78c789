"""Memory traffic of a compiled step: the bytes it moves to and from a device's main memory."""

from bert_jax.planning.collectives import kind_of
from bert_jax.planning.program import Computation, Instruction, Program

_MOVES_NOTHING = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call")
_NAMES_ONLY = ('custom_call_target="AllocateBuffer"', 'custom_call_target="ConcatBitcast"')
"""Custom calls that only name a buffer."""
_SLICES = ("slice", "dynamic-slice", "gather")


def traffic(program: Program) -> int:
    """Bytes that a step reads from and writes to main memory.

    Operands and results of every instruction count; of an array of which a slice is read or replaced, that slice.
    Collectives aren't counted.
    """
    return sum(times * _moved(program, computation, one) for computation, one, times in program.executed())


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
