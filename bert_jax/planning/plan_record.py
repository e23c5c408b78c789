"""The facts of a plan: memory, work, traffic and time of each phase's step on a TPU slice."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import computed_field

from bert_jax.config.phase import Phase
from bert_jax.planning.collectives import Collective
from bert_jax.planning.topology import Topology
from bert_jax.system import facts
from bert_jax.system.facts import Facts


class Memory(Facts):
    """Bytes of a step on one chip, as the compiled program reports them."""

    parameters: facts.Memory
    optimizer: Annotated[facts.Memory, "optimizer state"]
    """Bytes of the optimizer state."""
    other_arguments: Annotated[facts.Memory, "batch, counters, padding"]
    """The batch, counters, and padding by layouts."""
    outputs: facts.Memory
    """Outputs that don't reuse the memory of an argument."""
    temporaries: facts.Memory
    """Gradients, activations and other arrays within the step."""
    code: Annotated[facts.Memory, "program"]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> facts.Memory:
        """Sum of all parts."""
        return sum(getattr(self, name) for name in type(self).model_fields)


class PhaseTime(Facts):
    """How long phases take on a slice."""

    hours: Annotated[facts.Hours, "the phase"]
    chip_hours: Annotated[float, facts.Unit("{:,.1f}".format), "chip-hours"]

    @classmethod
    def total(cls, phases: Iterable["PhaseTime"]) -> "PhaseTime":
        """The sum of all `phases`."""
        hours, chip_hours = map(sum, zip(*((each.hours, each.chip_hours) for each in phases), strict=True))
        return PhaseTime(hours=hours, chip_hours=chip_hours)


class Pace(PhaseTime):
    """A step and its phase, at one estimate of the step's time."""

    step_seconds: Annotated[facts.Milliseconds, "step"]
    sequences_per_second: Annotated[facts.PerSecond, "sequences"]
    mfu: Annotated[facts.Share, "MFU"]
    """Model FLOPs over the peak of all chips."""

    @classmethod
    def of(cls, phase: Phase, flops: float, seconds: float, topology: Topology, sequences: int) -> "Pace":
        """The pace of a phase whose step has `sequences` and `flops` and takes `seconds`."""
        hours = phase.steps * seconds / 3600
        return cls(
            hours=hours,
            chip_hours=hours * topology.chips,
            step_seconds=seconds,
            sequences_per_second=sequences / seconds,
            mfu=topology.seconds(flops) / seconds,
        )


class StepTime(Facts):
    """Least seconds of a step by three limits of the hardware, computed rather than measured."""

    compute: Annotated[facts.Milliseconds, "products at the peak"]
    """Matrix products, including recomputation, at the peak of the chips."""
    memory: Annotated[facts.Milliseconds, "memory at its bandwidth"]
    """Memory traffic of the program at the memory bandwidth."""
    links: Annotated[facts.Milliseconds, "links at their bandwidth"]
    """Bytes sent by collectives, over all links of a chip in parallel, without latency."""
    at_best: Annotated[Pace, "all at once"]
    """If all three overlap: the shortest time."""
    in_turn: Annotated[Pace, "one after the other"]
    """If nothing overlaps: the longest time that the limits explain."""

    @classmethod
    def of(
        cls,
        phase: Phase,
        topology: Topology,
        *,
        sequences: int,
        flops: float,
        computed: float,
        moved: float,
        sent: float,
    ) -> "StepTime":
        """The times of a step of `sequences` and `flops`, which with recomputation are `computed`. `moved`: bytes to
        and from a chip's memory; `sent`: bytes that a chip sends."""
        chip = topology.chip
        compute, memory = topology.seconds(computed), moved / chip.memory_bandwidth
        links = sent / (chip.link_bandwidth * max(topology.links, 1))
        limits = (compute, memory, links)
        best, turn = (Pace.of(phase, flops, seconds, topology, sequences) for seconds in (max(limits), sum(limits)))
        return cls(compute=compute, memory=memory, links=links, at_best=best, in_turn=turn)


ESTIMATES = ("at_best", "in_turn")
"""Names of the two estimates in StepTime."""


class PhaseWork(Facts):
    """The work of one phase's step."""

    phase: int
    steps: int
    length: int
    batch_size: Annotated[int, "batch"]
    flops: Annotated[facts.Flops, "FLOPs a step, by formula"]
    """FLOPs of one step over all chips by formula, without recomputation."""


def work_of(number: int, phase: Phase, flops: float) -> dict[str, Any]:
    """The fields of PhaseWork for a phase whose step takes so many `flops`."""
    return {"phase": number, **phase.model_dump(include={"steps", "length", "batch_size"}), "flops": flops}


class FormulaPlan(PhaseWork):
    """The plan of one phase's step without a compiler."""

    at_best: Pace
    """Times if the chips compute at their peak."""


class PhasePlan(PhaseWork):
    """The plan of one phase's compiled step."""

    mesh: dict[str, int]
    remat: str
    accumulation: int
    compile_seconds: Annotated[facts.Seconds, "compiled in"]
    memory: Annotated[Memory | None, "memory a chip"]
    """Memory of the program on a chip; None if it doesn't fit, where the compiler stops."""
    needed_bytes: Annotated[facts.Memory | None, "needed"]
    """Bytes needed on a chip: the total, or the figure in the compiler's refusal; None if the refusal has none."""
    available_bytes: Annotated[facts.Memory, "available"]
    """Bytes of a chip's memory that a program may use."""
    fits: bool
    collectives: Annotated[list[Collective], "collectives a step: number, bytes, bytes sent"]
    traffic_bytes: Annotated[facts.Traffic | None, "moved to and from memory"]
    """Bytes that a chip moves to and from its main memory in a step."""
    time: Annotated[StepTime | None, "least time of a step, nothing measured"]
