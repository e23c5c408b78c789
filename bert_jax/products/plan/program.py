"""Reads a compiled step as XLA prints it (HLO text): the bytes that it moves to and from memory and sends to others.

The compiler's own `cost_analysis` counts what stays on the chip, too, and a loop's body once: of BERT-base on v5e:4x4
1.24 times the bytes counted here at 128 tokens and 1.27 times at 512 (libtpu 0.0.42).
"""

import itertools
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_END = re.compile(r"^\}(, execution_thread=.*)?$")
_CALLED = re.compile(
    r"\b(?:calls|body|condition|to_apply|branch_computations|called_computations|true_computation|false_computation)"
    r"=(\{[^}]*\}|%?[\w.\-]+)"
)
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?:\{([^}]*)\})?")
_OTHER_MEMORY = re.compile(r"S\([1-9]\d*\)")
_BRACKET_OR_COMMA = re.compile(r"[(){}\[\],]")

_MOVES_NOTHING = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call")
_NAMES_ONLY = 'custom_call_target="AllocateBuffer"'
"""Attribute of a custom call that only names a buffer."""
_SLICES = ("slice", "dynamic-slice", "gather")
_COLLECTIVES = "all-reduce reduce-scatter all-gather all-to-all collective-permute collective-broadcast".split()


class Buffer(NamedTuple):
    """An array of the program on one device."""

    bytes: int
    """Size without padding by the layout."""
    main_memory: bool
    """Whether it is in the device's main memory; otherwise it is on the chip, where access is almost free."""


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    kind: str
    """XLA's name of the operation, such as `fusion`, `all-reduce` or `while`."""
    elements: list[list[Buffer]]
    """The arrays of each element of a tuple result; of a plain result, its only array."""
    operands: tuple[str, ...]
    """Names of the instructions, of the same computation, whose results it takes."""
    attributes: str
    """Text after the operands."""
    literal: str
    """The first argument as text: for example the value of a constant or the number of a parameter."""

    @property
    def called(self) -> list[str]:
        return [name for names in _CALLED.findall(self.attributes) for name in re.findall(r"[\w.\-]+", names)]

    @property
    def collective(self) -> str | None:
        """Its kind if it is one of _COLLECTIVES or the start of an asynchronous one; otherwise None."""
        kind = self.kind.removesuffix("-start")
        return kind if kind in _COLLECTIVES else None

    @property
    def buffers(self) -> list[Buffer]:
        return list(itertools.chain.from_iterable(self.elements))

    @property
    def bytes(self) -> int:
        return sum(buffer.bytes for buffer in self.buffers)


class Computation(NamedTuple):
    """A function of the program."""

    name: str
    instructions: dict[str, Instruction]
    root: str
    """Name of the instruction whose result is the computation's."""


class Program:
    """The computations of a compiled program."""

    def __init__(self, text: str):
        """Parses HLO text. Raises ValueError if it has no entry computation."""
        self.computations: dict[str, Computation] = {}
        self._entry = ""
        lines = iter(text.splitlines())
        for line in lines:
            if header := _HEADER.match(line):
                computation = _computation(header[2], lines)
                self.computations[computation.name] = computation
                self._entry = computation.name if header[1] else self._entry
        if not self._entry:
            raise ValueError("no ENTRY computation in the program's text")
        match = re.search(r"\bnum_partitions=(\d+)", text[: text.find("\n")])
        self.devices = int(match[1]) if match else 1

    def executed(self) -> Iterator[tuple[Computation, Instruction, int]]:
        """Yields every instruction that a device runs, with its computation and how often it runs.

        Instructions within a fusion aren't yielded. A loop whose number of iterations depends on data counts once.
        """
        yield from self._run(self._entry, 1)

    def turns(self, loop: Instruction) -> int | None:
        """The number of iterations of a `while`; None if it depends on data.

        It is in an attribute if XLA knows it, otherwise in the condition: JAX's loops of fixed length count from 0.
        """
        if known := re.search(r'known_trip_count"?:\{"n":"(\d+)"', loop.attributes):
            return int(known[1])
        condition = self.computations[re.findall(r"\bcondition=%?([\w.\-]+)", loop.attributes)[0]]
        root = condition.instructions[condition.root]
        if root.kind == "compare" and "direction=LT" in root.attributes:
            limit = condition.instructions[root.operands[1]]
            return int(limit.literal) if limit.kind == "constant" else None
        return None

    def moved_bytes(self) -> int:
        """Bytes that a step reads from and writes to a device's main memory.

        Operands and results of every instruction count. If only a slice of an array is read or replaced, only that
        slice counts. Collectives aren't counted.
        """
        return sum(times * self._moved(computation, one) for computation, one, times in self.executed())

    def sent_bytes(self) -> int:
        """Bytes that a device sends in a step if each collective uses a ring over its group."""
        sent: dict[tuple[str, str, str], int] = {}
        for computation, instruction, times in self.executed():
            for kind, one in self._collectives(computation, instruction):
                # A collective that overlaps with several fusions appears in each of them, with the same channel.
                channel = re.search(r"channel_id=(\d+)", one.attributes)
                key = (kind, computation.name, channel[1] if channel else one.name)
                sent.setdefault(key, times * _sent(kind, one, _group(one, self.devices)))
        return sum(sent.values())

    def _run(self, name: str, times: int) -> Iterator[tuple[Computation, Instruction, int]]:
        computation = self.computations[name]
        for instruction in computation.instructions.values():
            yield computation, instruction, times
            if instruction.kind in ("while", "call", "conditional"):
                turns = self.turns(instruction) if instruction.kind == "while" else None
                for called in instruction.called:
                    yield from self._run(called, times * (turns or 1))

    def _moved(self, computation: Computation, one: Instruction) -> int:
        if one.kind in _MOVES_NOTHING or one.collective or one.kind.endswith(("-done", "-update")):
            return 0
        if one.kind == "custom-call" and _NAMES_ONLY in one.attributes:
            return 0
        if one.kind == "copy-start":  # the result is a tuple of the copy, the source and a flag
            return sum(buffer.bytes for element in one.elements[:2] for buffer in element if buffer.main_memory)
        if one.kind == "slice-start":  # a tuple of the source, the slice and a flag; between main memory and the chip
            return sum(buffer.bytes for buffer in one.elements[1])
        return self._written(computation, one) + sum(
            self._read(computation, one, number)
            for number, name in enumerate(one.operands)
            if any(buffer.main_memory for buffer in computation.instructions[name].buffers)
        )

    def _read(self, computation: Computation, one: Instruction, number: int) -> int:
        whole = computation.instructions[one.operands[number]].bytes
        if one.kind == "tuple" or one.collective:
            return 0
        if one.kind == "dynamic-update-slice" and number == 0:
            return 0  # it is updated in place
        if one.kind in _SLICES and number == 0:
            return min(whole, one.bytes)
        if one.kind == "bitcast":
            return self._read_by_users(computation, one.name, whole)
        if one.kind == "fusion":
            inner = self.computations[one.called[0]]
            for parameter in inner.instructions.values():
                if parameter.kind == "parameter" and parameter.literal == str(number):
                    return self._read_by_users(inner, parameter.name, whole)
        return whole

    def _read_by_users(self, computation: Computation, name: str, whole: int) -> int:
        """Bytes of `name` that all its users read together, at most those of the whole array."""
        taken = sum(
            self._read(computation, user, number)
            for user in computation.instructions.values()
            for number, operand in enumerate(user.operands)
            if operand == name
        )
        return min(whole, taken)

    def _written(self, computation: Computation, one: Instruction) -> int:
        elements = [sum(buffer.bytes for buffer in element if buffer.main_memory) for element in one.elements]
        if one.kind == "dynamic-update-slice":
            return min(elements[0], computation.instructions[one.operands[1]].bytes)
        if one.kind == "fusion":
            inner = self.computations[one.called[0]]
            root = inner.instructions[inner.root]
            names = root.operands if root.kind == "tuple" else (inner.root,)
            results = zip(elements, names, strict=False)
            return sum(min(element, _computed(inner, inner.instructions[name])) for element, name in results)
        return sum(elements)

    def _collectives(self, computation: Computation, instruction: Instruction) -> Iterator[tuple[str, Instruction]]:
        """Yields the instruction if it is a collective, and the collectives that are fused into it, with their kind."""
        if kind := instruction.collective:
            # The TPU compiler writes a reduce-scatter as an all-reduce in a computation of this name.
            yield ("reduce-scatter" if computation.name.startswith("all-reduce-scatter") else kind), instruction
        elif instruction.kind in ("fusion", "async-start", "custom-call"):
            for name in instruction.called:
                inner = self.computations[name]
                for each in inner.instructions.values():
                    yield from self._collectives(inner, each)


def _computed(computation: Computation, one: Instruction) -> int:
    """Bytes of its result that an instruction of a fused computation computes itself; what it passes through doesn't
    count."""
    if one.kind == "parameter" or one.collective:
        return 0
    if one.kind == "dynamic-update-slice":
        return computation.instructions[one.operands[1]].bytes
    return one.bytes


def _sent(kind: str, one: Instruction, group: int) -> int:
    """Bytes that a device sends in a collective of this kind over a group of `group` devices."""
    if one.kind == "reduce-scatter":
        size = one.bytes * group
    elif one.kind in (kind, "all-reduce", "all-reduce-start"):
        size = one.bytes
    else:  # the result of an asynchronous start is a tuple of operand, result and flags
        size = max(sum(buffer.bytes for buffer in element) for element in one.elements)
    if kind in ("collective-permute", "collective-broadcast"):
        return size
    rounds = 2 if kind == "all-reduce" else 1  # a reduce-scatter and an all-gather
    return round(rounds * (group - 1) / group * size)


def _group(one: Instruction, devices: int) -> int:
    """The number of devices in one group of a collective.

    XLA prints groups in three forms: written out, `{{0,1},{2,3}}`; counted, `[groups,size]<=[...]`; or by the axes of a
    mesh, `mesh['a'=2,'b'=4] {'b'}`, where `'b':(2)2` means a part of an axis, of size 2.
    """
    if written := re.search(r"replica_groups=\{\{([\d,]*)\}", one.attributes):
        return written[1].count(",") + 1
    if counted := re.search(r"replica_groups=\[\d+,(\d+)\]<=", one.attributes):
        return int(counted[1])
    if named := re.search(r"replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}", one.attributes):
        sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", named[1])}
        axes = re.findall(r"'([^']*)'(?::\(\d+\)(\d+))?", named[2])
        return math.prod(int(part) if part else sizes[name] for name, part in axes)
    return devices


def _computation(name: str, lines: Iterator[str]) -> Computation:
    instructions, root = {}, ""
    for text in _whole_instructions(lines):
        if match := _INSTRUCTION.match(text):
            instruction = _instruction(match[2], match[3])
            instructions[instruction.name] = instruction
            root = instruction.name if match[1] else root
    return Computation(name, instructions, root)


def _whole_instructions(lines: Iterator[str]) -> Iterator[str]:
    """The instructions of a computation, each as one line: a kernel's attributes may have breaks, and the text after a
    break may begin with a brace."""
    text = ""
    for line in lines:
        if _END.match(line):
            break
        if _INSTRUCTION.match(line) and text:
            yield text
            text = ""
        text += line
    yield text


def _instruction(name: str, text: str) -> Instruction:
    """Parses `shape kind(operands), attributes`; the shape of a tuple is `(shape, shape)`."""
    if text.startswith("("):
        shapes, rest = _in_parentheses(text)
    else:
        shape, _, rest = text.partition(" ")
        shapes = [shape]
    kind, parenthesis, rest = rest.lstrip().partition("(")
    arguments, attributes = _in_parentheses(parenthesis + rest)
    operands = re.findall(r"%([\w.\-]+)", " ".join(arguments))
    literal = arguments[0] if arguments else ""
    return Instruction(name, kind, [_buffers(shape) for shape in shapes], tuple(operands), attributes, literal)


def _in_parentheses(text: str) -> tuple[list[str], str]:
    """The items between the parenthesis at the beginning of `text` and the one that closes it, and the text after."""
    depth, begin, items = 0, 1, []
    for match in _BRACKET_OR_COMMA.finditer(text):
        depth += (match[0] in "({[") - (match[0] in ")}]")
        if not depth or depth == 1 and match[0] == ",":
            items.append(text[begin : match.start()].strip())
            begin = match.end()
        if not depth:
            return [item for item in items if item], text[begin:]
    raise ValueError(f"a parenthesis stays open in {text[:80]!r}")


def _buffers(shape: str) -> list[Buffer]:
    buffers = []
    for kind, sizes, layout in _ARRAY.findall(shape):
        width = re.search(r"\d+", kind)  # 16 for bf16, 32 for s32, 8 for f8e4m3fn; a truth value takes 8, a token 0
        bits = int(width[0]) if width else 8 * (kind == "pred")
        elements = math.prod(int(size) for size in sizes.split(",") if size)
        buffers.append(Buffer(elements * bits // 8, not _OTHER_MEMORY.search(layout)))
    return buffers
