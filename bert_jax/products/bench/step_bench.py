"""What a bench measured, where and with which settings: its JSON and its tables."""

import statistics
from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field
from rich import box

from bert_jax.run.environment import Scalar
from bert_jax.system import figures
from bert_jax.system.figures import Figures, Table, meanings_table, rows_table
from bert_jax.system.json_file import Shape

KIND: Final = "bert-jax bench"
BENCH_FORMAT = 1

_COLUMNS = """\
GFLOP           matrix products, by formula, without recomputation
time            median; backward and optimizer are differences of programs
of step         share of the step's time
of matrix rate  GFLOP a second over the matrix rate; ~: lost in the noise"""
"""Explains the columns of the parts' table, in lines of at most 80 characters."""
_STEP_FACTS = (
    *("step", "sequences_per_second", "tokens_per_second", "fill", "model_flops_per_step", "model_flops_per_second"),
    *("matrix_rate", "share_of_matrix_rate", "mfu", "transfer", "compile_seconds", "peak_memory_bytes"),
    "input_sequences_per_second",
)
_PART_FACTS = ("name", "flops", "time.median", "step_share", "matrix_share")


class Timing(Figures):
    """Seconds of repeated measurements of one thing."""

    median: Annotated[figures.BareMilliseconds, "time\nms"]
    low: float
    """The 10th percentile."""
    high: float
    """The 90th percentile."""
    rounds: int
    """How often it was measured."""

    @classmethod
    def of(cls, seconds: list[float]) -> "Timing":
        deciles = statistics.quantiles(seconds, n=10, method="inclusive")
        return cls(median=statistics.median(seconds), low=deciles[0], high=deciles[-1], rounds=len(seconds))

    def __str__(self) -> str:
        spread = f"80% in {self.low * 1e3:,.1f} to {figures.milliseconds(self.high, 1)}"
        return f"{figures.milliseconds(self.median, 1)}; median of {self.rounds}; {spread}"


class StepPart(Figures):
    """The work and the time of a part of a step."""

    name: Annotated[str, "part"]
    flops: Annotated[figures.Gigaflops, "GFLOP"]
    """FLOPs of its matrix products by formula, without recomputation."""
    time: Timing
    step_share: Annotated[float, figures.Unit(figures.percent), "of\nstep"]
    """Share of the step's time."""
    matrix_share: Annotated[float | None, figures.Unit(figures.percent, unknown="~"), "of matrix\nrate"]
    """FLOPs over the median time, as a share of the matrix rate that was measured in this process; None for a
    difference of times that is lost in their noise."""


class MatrixRate(Shape):
    """FLOPs a second of matrix products in the compute dtype on one device (on the whole machine, if it is a CPU)."""

    per_second: Annotated[float, Field(gt=0)]
    source: Literal["data sheet", "measured"]
    measured: float
    """The rate that this process measured, also where `per_second` is that of the data sheet."""


class StepBench(Figures):
    """The JSON object of a bench. Figures are over all devices."""

    kind: Literal["bert-jax bench"]
    format: int
    versions: dict[str, str]
    machine: dict[str, Scalar]
    settings: dict[str, Scalar]
    compile_seconds: Annotated[figures.Seconds, "compilation"]
    """Tracing, lowering and compiling the step; short if the program was cached."""
    parts: list[StepPart]
    """Forward, backward, optimizer and step. Forward and step are measured by themselves; backward and optimizer are
    the differences between forward, forward with backward, and step, round by round."""
    rates: dict[Literal["matrix"], MatrixRate]
    transfer: Timing
    """Time to copy a batch to the device; the step doesn't include it."""
    sequences_per_second: Annotated[float, figures.Unit("{:,.4g} /s".format), "sequences"]
    tokens_per_second: Annotated[float, figures.Unit("{:,.0f} /s".format), "tokens"]
    """Without padding."""
    fill: Annotated[figures.Percentage, "positions filled"]
    """Share of the batch's positions that hold tokens."""
    model_flops_per_step: Annotated[float, figures.Unit(lambda flops: f"{flops / 1e9:,.1f} GFLOP"), "model"]
    """FLOPs of the model in a step, by formula."""
    model_flops_per_second: Annotated[figures.FlopRate, "model rate"]
    """The model's FLOPs over the median time of a step."""
    share_of_matrix_rate: Annotated[figures.Percentage, "share of that"]
    """Model FLOPs a second over the rate of square products that was measured in this process."""
    mfu: Annotated[figures.Percentage | None, "MFU"]
    """Model FLOPs utilisation: share of the bfloat16 peak in the data sheet."""
    peak_memory_bytes: Annotated[figures.MemoryBytes, "memory"]
    """Peak memory of the fullest device; on a CPU, of this process."""
    input_sequences_per_second: Annotated[figures.PerSecond | None, "input alone"]
    """Rate of reading and batching the run's data; None for random sequences."""

    @property
    def step(self) -> Timing:
        """Time of the whole step."""
        return self.parts[-1].time

    @property
    def matrix_rate(self) -> Annotated[figures.FlopRate, "matrix products"]:
        """Large square matrices, best of several."""
        return self.rates["matrix"].measured

    def tables(self) -> Iterator[Table | str]:
        """Yields times, rates and memory of the whole step, then work and time of its parts."""
        title = "{devices} x {device}, {processor}, {cores} cores".format(**self.machine)
        yield meanings_table(title, self, _STEP_FACTS)
        # Without borders, so that all columns fit into 80.
        yield rows_table("Parts of a step", self.parts, _PART_FACTS, box=box.SIMPLE_HEAD, show_edge=False, padding=0)
        yield _COLUMNS
