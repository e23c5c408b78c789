"""The tables of bert-jax bench."""

from rich import box
from rich.markup import escape
from rich.table import Table

from bert_jax.planning.bench import Bench, Part
from bert_jax.planning.bench_record import Difference, Record, Scalar
from bert_jax.system.errors import shown

COLUMNS = """\
runs        how often a step runs it; other figures of operations: of one run
GFLOP       matrix products, by formula, without recomputation
MB          memory traffic: of a part, as its compiled program has it; of an
            operation, its arguments and results, each once
limit, by   the longer of GFLOP at the matrix rate and MB at the bandwidth
time        median; backward and optimizer are differences of programs
limit/time  100% is the best that this hardware allows; ~: lost in the noise
of step     share of the step's time, all runs together"""
"""What the columns of `roofline_table` mean; it fits into 80 columns."""

RATIOS = "ratio: here over there; of times, below 1 is faster here; ~: lost in the noise"
"""What the last column of `comparison_table` means."""


def step_table(measured: Bench, device: str) -> Table:
    """Times, rates and memory of the whole step; `device`: the machine in words."""
    step = measured.step
    table = Table(title=device, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    spread = f"80% in {step.low * 1e3:,.1f} to {_ms(step.high)}"
    table.add_row("step", _ms(step.median), f"median of {step.rounds}; {spread}")
    table.add_row(
        "sequences",
        f"{measured.sequences_per_second:,.4g} /s",
        f"{measured.sequences_per_second * step.median:,.4g} a step",
    )
    table.add_row(
        "tokens", f"{measured.tokens_per_second:,.0f} /s", f"without padding; {measured.fill:.1%} of the positions"
    )
    flops = f"{measured.model_flops_per_step / 1e9:,.1f} GFLOP a step, by formula"
    table.add_row("model", _flops(measured.model_flops_per_second), flops)
    table.add_row("matrix products", _flops(measured.rates.matrix.measured), "large square matrices, best of several")
    table.add_row("share of that", f"{measured.share_of_matrix_rate:.1%}", "")
    if measured.mfu is not None:
        table.add_row("MFU", f"{measured.mfu:.1%}", "of the bfloat16 peak in the data sheet")
    table.add_row("transfer", _ms(measured.transfer.median), "of a batch to the device; not in the step")
    table.add_row("compilation", f"{measured.compile_seconds:,.1f} s", "short if the program was cached")
    table.add_row("memory", f"{measured.peak_memory_bytes / 1e9:,.2f} GB", "at the peak")
    if measured.input_sequences_per_second:
        table.add_row("input alone", f"{measured.input_sequences_per_second:,.0f} sequences/s", "reading and batching")
    return table


def roofline_table(measured: Bench) -> Table:
    """Work, limit and time of each part of a step and of each operation that was measured."""
    matrix, memory = measured.rates
    title = f"Limits of a device: {_flops(matrix.per_second)} {matrix.source}, "
    title += f"{memory.per_second / 1e9:,.1f} GB/s {memory.source}"
    table = _plain_table(title)
    for column in ("runs", "GFLOP", "MB", "limit\nms", "by", "time\nms", "limit/\ntime", "of\nstep"):
        table.add_column(column, justify="right")
    for part in measured.parts:
        table.add_row(*_cells(part, measured.step.median), end_section=part.name == "step")
    for part in measured.operations:
        table.add_row(*_cells(part, measured.step.median))
    return table


def comparison_table(there: Record, here: Record, path: str) -> Table:
    """Times of the parts that both records have, side by side."""
    table = _plain_table(f"Compared with {escape(path)}")
    for column in ("there", "here", "ratio"):
        table.add_column(column, justify="right")
    for name, time in here.times.items():
        if before := there.times.get(name):
            # Of a difference of times that is lost in their noise there is no ratio.
            ratio = f"{time.median / before.median:.2f}" if time.low > 0 and before.low > 0 else "~"
            table.add_row(name, f"{before.median * 1e3:,.2f} ms", f"{time.median * 1e3:,.2f} ms", ratio)
    table.add_section()
    table.add_row("tokens", *_sides(there.tokens_per_second, here.tokens_per_second, "/s", ",.0f"))
    a, b = there.rates, here.rates
    matrix = _sides(a.matrix.per_second / 1e9, b.matrix.per_second / 1e9, "GFLOP/s", ",.1f")
    memory = _sides(a.memory.per_second / 1e9, b.memory.per_second / 1e9, "GB/s", ",.1f")
    table.add_row("matrix rate", *matrix)
    table.add_row("memory bandwidth", *memory)
    return table


def _sides(there: float, here: float, unit: str, form: str) -> tuple[str, str, str]:
    return f"{there:{form}} {unit}", f"{here:{form}} {unit}", f"{here / there:.2f}"


def _plain_table(title: str) -> Table:
    """A table without borders, whose first column is the part; eight columns of figures beside it fit into 80."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    table.add_column("part", no_wrap=True)
    return table


def difference_lines(found: list[Difference]) -> list[str]:
    """What differs between two records, a line each, below a line that says whether the work does."""
    if not found:
        return ["Machine, versions and settings are the same."]
    named = ", ".join(_printable(each.name) for each in found if each.work)
    first = f"The work of a step differs ({named}): the times are not of the same work." if named else ""
    first = first or "The work of a step is the same. What differs:"
    sides = [f"{_shown(each.there)} there, {_shown(each.here)} here" for each in found]
    return [first, *(f"  {_printable(each.name)}: {values}" for each, values in zip(found, sides, strict=True))]


def unmatched_lines(there: Record, here: Record) -> list[str]:
    """The parts and operations that only one of two records has; none where both have the same."""
    lines = []
    for side, one, other in (("there", there, here), ("here", here, there)):
        if alone := [_printable(name) for name in one.times if name not in other.times]:
            lines.append(f"Measured only {side}: {', '.join(alone)}")
    return lines


def _shown(value: Scalar) -> str:
    return "nothing" if value is None else f"{value:,}" if type(value) is int else _printable(str(value))


def _printable(text: str) -> str:
    """`text` of a file that somebody else may have written: control characters would steer the terminal."""
    return text if text.isprintable() else shown(text)


def _cells(part: Part, step: float) -> list[str]:
    share = part.limit_share
    return [
        part.name,
        f"{part.count:,}",
        _short(part.flops / 1e9),
        _short(part.bytes / 1e6),
        _short(part.limit.seconds * 1e3),
        part.limit.binds,
        _short(part.time.median * 1e3),
        "~" if share is None else _percent(share),
        _percent(part.count * part.time.median / step),
    ]


def _short(value: float) -> str:
    return f"{value:,.{0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2}f}"


def _percent(share: float) -> str:
    return f"{share:.0%}" if abs(share) >= 0.1 else f"{share:.1%}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"


def _flops(rate: float) -> str:
    return f"{rate / 1e12:,.1f} TFLOP/s" if rate > 1e13 else f"{rate / 1e9:,.1f} GFLOP/s"
