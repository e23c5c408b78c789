"""What a plan says of each phase's step on a TPU slice: memory, work and least time; its JSON and its tables."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import computed_field

from bert_jax.products.plan.topology import Topology
from bert_jax.system import figures
from bert_jax.system.figures import Figures, Table, figures_table, rows_table
from bert_jax.system.json_file import Shape
from bert_jax.training.estimate import Estimate

_FORMULA_FACTS = (
    *("length", "batch_size", "flops"),
    *(f"at_best.{name}" for name in ("step_seconds", "hours", "chip_hours")),
)


class ChipMemory(Figures):
    """Bytes of a step on one chip, as the compiled program reports them."""

    arguments: Annotated[figures.MemoryBytes, "state and batch"]
    """Parameters, optimizer state and batch, with padding by layouts."""
    outputs: figures.MemoryBytes
    """Outputs that don't reuse the memory of an argument."""
    temporaries: figures.MemoryBytes
    """Gradients, activations and other arrays within the step."""
    code: Annotated[figures.MemoryBytes, "program"]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> figures.MemoryBytes:
        """Sum of all parts."""
        return self.arguments + self.outputs + self.temporaries + self.code


class SliceTime(Estimate):
    """How long phases take on a slice, and the hours of all its chips together."""

    chip_hours: Annotated[float, figures.Unit("{:,.1f}".format), "chip-hours"]


class Pace(SliceTime):
    """A step and its phase, at one estimate of the step's time."""

    step_seconds: Annotated[figures.Milliseconds, "step"]
    sequences_per_second: Annotated[figures.PerSecond, "sequences"]
    mfu: Annotated[figures.Percentage, "MFU"]
    """Model FLOPs over the peak of all chips."""


class StepTime(Figures):
    """Least seconds of a step by three limits of the hardware, computed rather than measured."""

    compute: Annotated[figures.Milliseconds, "products at the peak"]
    """Matrix products, including recomputation, at the peak of the chips."""
    memory: Annotated[figures.Milliseconds, "memory at its bandwidth"]
    """Memory traffic of the program at the memory bandwidth."""
    links: Annotated[figures.Milliseconds, "links at their bandwidth"]
    """Bytes sent by collectives, over all links of a chip in parallel, without latency."""
    at_best: Annotated[Pace, "all at once"]
    """If all three overlap: the shortest time."""
    in_turn: Annotated[Pace, "one after the other"]
    """If nothing overlaps: the longest time that the limits explain."""


class StepWork(Figures):
    """The work of one phase's step."""

    phase: int
    steps: int
    length: int
    batch_size: Annotated[int, "batch"]
    flops: Annotated[figures.Flops, "FLOPs a step, by formula"]
    """FLOPs of one step over all chips by formula, without recomputation."""


class FormulaPhase(StepWork):
    """The account of one phase's step without a compiler."""

    at_best: Pace
    """Times if the chips compute at their peak."""


class CompiledPhase(StepWork):
    """The account of one phase's compiled step."""

    mesh: dict[str, int]
    remat: str
    accumulation: int
    compile_seconds: Annotated[figures.Seconds, "compiled in"]
    memory: Annotated[ChipMemory | None, "memory a chip"]
    """Memory of the program on a chip; None where the compiler stops because it doesn't fit."""
    needed_bytes: Annotated[figures.MemoryBytes | None, "needed"]
    """Bytes needed on a chip: the total, or the figure in the compiler's refusal; None if the refusal has none."""
    available_bytes: Annotated[figures.MemoryBytes, "available"]
    """Bytes of a chip's memory that a program may use."""
    fits: bool
    traffic_bytes: Annotated[figures.Traffic | None, "moved to and from memory"]
    """Bytes that a chip moves to and from its main memory in a step."""
    sent_bytes: Annotated[figures.Traffic | None, "sent over the links"]
    """Bytes that a chip sends in a step's collectives if each uses a ring."""
    time: Annotated[StepTime | None, "least time of a step, nothing measured"]


class SliceAccount(Shape):
    """The JSON object of `bert-jax plan`."""

    topology: str
    chips: int
    chip: dict[str, float]
    """Peak FLOPs a second, bytes of memory and bandwidths of a chip, by name."""
    parameters: int
    compiled: bool
    libtpu: str | None
    """The compiler's version; None without one."""
    exact: bool
    """Whether it was compiled with the effort of a real run."""
    fits: bool | None
    """Whether the steps of all phases fit a chip; None without a compiler."""
    phases: list[CompiledPhase] | list[FormulaPhase]
    total: dict[str, SliceTime] | None
    """The time of all phases, by the names of both estimates in StepTime; None without a compiler, or where a step
    doesn't fit."""


def account_tables(topology: Topology, account: SliceAccount) -> Iterator[Table | str]:
    """Yields the tables of an account of a slice, and the sentences between them."""
    slice_ = f"{account.chips:,} x TPU {topology.family}"
    if not account.compiled:
        title = f"By formula alone: {account.parameters:,} parameters, {slice_} at their peak"
        yield rows_table(title, account.phases, _FORMULA_FACTS)
        return
    chip = topology.chip
    rates = f"{chip.flops / 1e12:,.0f} TFLOP/s, {chip.memory_bandwidth / 1e9:,.0f} GB/s"
    title = f"{slice_}: a chip has {rates}, {topology.links} links of {chip.link_bandwidth / 1e9:,.0f} GB/s"
    headings = {f"{phase.length} tokens, batch {phase.batch_size:,}": phase for phase in account.phases}
    yield figures_table(title, headings, list(CompiledPhase.model_fields))
    if account.total:
        yield rows_table("All phases. Real steps take longer.", list(account.total.values()))
    else:
        yield "It doesn't fit. Try a larger --execution.accumulation, --execution.remat full, or a smaller batch."
    if not account.exact:
        yield "Compiled with the least effort: a real run moves fewer bytes; see --exact."
