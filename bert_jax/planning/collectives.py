"""Collective operations of a compiled step."""

import math
import re
from collections.abc import Iterator

from bert_jax.planning.program import Computation, Instruction, Program
from bert_jax.system import facts
from bert_jax.system.facts import Facts

KINDS = (
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)


class Collective(Facts):
    """All collectives of one kind in a step, as one device sees them."""

    kind: str
    count: int
    """Number of executions in a step."""
    bytes: facts.Traffic
    """Bytes of the whole arrays that are summed, gathered, scattered or exchanged, in the device's own group."""
    sent: facts.Traffic
    """Bytes that the device sends if each collective uses a ring over its group."""

    def __str__(self) -> str:
        return f"{self.count:,} x, {facts.bytes_moved(self.bytes)}, {facts.bytes_moved(self.sent)}"


def collectives(program: Program) -> list[Collective]:
    """One item for each kind, in the order of KINDS; collectives in a loop count once for each iteration."""
    totals: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    for computation, instruction, times in program.executed():
        for kind, one in _within(program, computation, instruction):
            # A collective that overlaps with several fusions appears in each of them, with the same channel.
            channel = re.search(r"channel_id=(\d+)", one.attributes)
            key = (kind, computation.name, channel[1] if channel else one.name)
            size = _size(one, kind, group := _group(one, program.devices))
            totals.setdefault(key, (times, times * size, times * _sent(kind, size, group)))
    sums = {
        kind: [sum(column) for column in zip(*(row for key, row in totals.items() if key[0] == kind), strict=True)]
        for kind in KINDS
    }
    return [Collective(kind=kind, count=row[0], bytes=row[1], sent=row[2]) for kind, row in sums.items() if row]


def kind_of(instruction: Instruction) -> str | None:
    """The instruction's kind if it is one of KINDS or the start of an asynchronous one; otherwise None."""
    kind = instruction.kind.removesuffix("-start")
    return kind if kind in KINDS else None


def _within(program: Program, computation: Computation, instruction: Instruction) -> Iterator[tuple[str, Instruction]]:
    """Yields the instruction if it is a collective, and the collectives that are fused into it."""
    if kind := kind_of(instruction):
        # The TPU compiler writes a reduce-scatter as an all-reduce in a computation of this name.
        yield ("reduce-scatter" if computation.name.startswith("all-reduce-scatter") else kind), instruction
    elif instruction.kind in ("fusion", "async-start", "custom-call"):
        for name in instruction.called:
            inner = program.computations[name]
            for each in inner.instructions.values():
                yield from _within(program, inner, each)


def _size(instruction: Instruction, kind: str, group: int) -> int:
    """Bytes of the whole array that the collective works on."""
    if instruction.kind == "reduce-scatter":
        return instruction.bytes * group
    if instruction.kind in (kind, "all-reduce", "all-reduce-start"):
        return instruction.bytes
    # The result of an asynchronous start is a tuple of operand, result and flags.
    return max(sum(buffer.bytes for buffer in part) for part in instruction.parts)


def _sent(kind: str, size: int, group: int) -> int:
    others = (group - 1) / group
    match kind:
        case "all-reduce":  # a reduce-scatter and an all-gather
            return round(2 * others * size)
        case "collective-permute" | "collective-broadcast":
            return size
    return round(others * size)


def _group(instruction: Instruction, devices: int) -> int:
    """The number of devices in one group of a collective.

    XLA prints groups in three forms: written out, `{{0,1},{2,3}}`; counted, `[groups,size]<=[...]`; or by the axes of a
    mesh, `mesh['a'=2,'b'=4] {'b'}`, where `'b':(2)2` means a part of an axis, of size 2.
    """
    if written := re.search(r"replica_groups=\{\{([\d,]*)\}", instruction.attributes):
        return written[1].count(",") + 1
    if counted := re.search(r"replica_groups=\[\d+,(\d+)\]<=", instruction.attributes):
        return int(counted[1])
    if named := re.search(r"replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}", instruction.attributes):
        sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", named[1])}
        axes = re.findall(r"'([^']*)'(?::\(\d+\)(\d+))?", named[2])
        return math.prod(int(part) if part else sizes[name] for name, part in axes)
    return devices
