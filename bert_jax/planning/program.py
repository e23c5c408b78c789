"""Parses HLO text, XLA's print of a compiled program: its instructions, and how often each runs."""

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


class Buffer(NamedTuple):
    """An array of the program on one device."""

    bytes: int
    """Size without padding by the layout."""
    in_memory: bool
    """Whether it is in the device's main memory; otherwise it is on the chip, where access is almost free."""


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    kind: str
    """XLA's name of the operation, such as `fusion`, `all-reduce` or `while`."""
    parts: list[list[Buffer]]
    """The arrays of each element of a tuple result; of a plain result, its only array."""
    operands: tuple[str, ...]
    """Names of the instructions, of the same computation, whose results it takes."""
    attributes: str
    """Text after the operands."""
    literal: str
    """The first argument as text: for example the value of a constant or the number of a parameter."""

    @property
    def called(self) -> list[str]:
        """Names of the computations that it calls."""
        return [name for names in _CALLED.findall(self.attributes) for name in re.findall(r"[\w.\-]+", names)]

    def attribute(self, name: str) -> str:
        """The name of the computation in an attribute such as `body` or `condition`; "" without this attribute."""
        match = re.search(rf"\b{name}=%?([\w.\-]+)", self.attributes)
        return match[1] if match else ""

    @property
    def buffers(self) -> list[Buffer]:
        """All arrays of the result."""
        return list(itertools.chain.from_iterable(self.parts))

    @property
    def bytes(self) -> int:
        """Bytes of the whole result."""
        return sum(buffer.bytes for buffer in self.buffers)


class Computation(NamedTuple):
    """A function of the program."""

    name: str
    instructions: dict[str, Instruction]
    root: str
    """Name of the instruction whose result is the computation's."""

    def users(self, name: str) -> list[Instruction]:
        """The instructions that use the result of the instruction `name`."""
        return [instruction for instruction in self.instructions.values() if name in instruction.operands]


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
        condition = self.computations[loop.attribute("condition")]
        root = condition.instructions[condition.root]
        if root.kind == "compare" and "direction=LT" in root.attributes:
            limit = condition.instructions[root.operands[1]]
            return int(limit.literal) if limit.kind == "constant" else None
        return None

    def _run(self, name: str, times: int) -> Iterator[tuple[Computation, Instruction, int]]:
        computation = self.computations[name]
        for instruction in computation.instructions.values():
            yield computation, instruction, times
            if instruction.kind == "while":
                turns = times * (self.turns(instruction) or 1)
                yield from self._run(instruction.attribute("body"), turns)
                yield from self._run(instruction.attribute("condition"), turns)
            elif instruction.kind in ("call", "conditional"):
                for called in instruction.called:
                    yield from self._run(called, times)


def buffers(shape: str) -> list[Buffer]:
    """The arrays of a printed shape, in order."""
    return [
        Buffer(math.prod(map(int, filter(None, sizes.split(",")))) * _bits(kind) // 8, not _OTHER_MEMORY.search(layout))
        for kind, sizes, layout in _ARRAY.findall(shape)
    ]


def _bits(kind: str) -> int:
    """Bits of one element: 16 for bf16, 32 for s32, 8 for f8e4m3fn and for a truth value, 0 for a token."""
    width = re.search(r"\d+", kind)
    return int(width[0]) if width else 8 * (kind == "pred")


def _computation(name: str, lines: Iterator[str]) -> Computation:
    """Parses the lines of a computation up to its closing brace."""
    instructions, root = {}, ""
    for text in _whole_instructions(lines):
        if match := _INSTRUCTION.match(text):
            instruction = _instruction(match[2], match[3])
            instructions[instruction.name] = instruction
            root = instruction.name if match[1] else root
    return Computation(name, instructions, root)


def _whole_instructions(lines: Iterator[str]) -> Iterator[str]:
    """The instructions of a computation, each as one line: a kernel's attributes may have breaks, and what follows one
    may begin with a brace."""
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
    return Instruction(name, kind, [buffers(shape) for shape in shapes], tuple(operands), attributes, literal)


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
