"""The tables of bert-jax bench."""

from collections.abc import Iterator

from rich import box

from bert_jax.cli.tables import Table, facts_table, milliseconds
from bert_jax.planning.bench_record import Bench, Part, Scalar, differences
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


def step_table(measured: Bench) -> Table:
    """Times, rates and memory of the whole step."""
    table = facts_table("{devices} x {device}, {processor}, {cores} cores".format(**measured.machine), _facts(measured))
    table.columns[1].justify = "right"
    return table


def _facts(measured: Bench) -> Iterator[tuple[str, str, str]]:
    step, sequences = measured.step, measured.sequences_per_second
    spread = f"80% in {step.low * 1e3:,.1f} to {milliseconds(step.high, 1)}"
    yield "step", milliseconds(step.median, 1), f"median of {step.rounds}; {spread}"
    yield "sequences", f"{sequences:,.4g} /s", f"{sequences * step.median:,.4g} a step"
    padding = f"without padding; {measured.fill:.1%} of the positions"
    yield "tokens", f"{measured.tokens_per_second:,.0f} /s", padding
    by_formula = f"{measured.model_flops_per_step / 1e9:,.1f} GFLOP a step, by formula"
    yield "model", _flops(measured.model_flops_per_second), by_formula
    yield "matrix products", _flops(measured.rates.matrix.measured), "large square matrices, best of several"
    yield "share of that", f"{measured.share_of_matrix_rate:.1%}", ""
    if measured.mfu is not None:
        yield "MFU", f"{measured.mfu:.1%}", "of the bfloat16 peak in the data sheet"
    yield "transfer", milliseconds(measured.transfer.median, 1), "of a batch to the device; not in the step"
    yield "compilation", f"{measured.compile_seconds:,.1f} s", "short if the program was cached"
    yield "memory", f"{measured.peak_memory_bytes / 1e9:,.2f} GB", "at the peak"
    if measured.input_sequences_per_second:
        yield "input alone", f"{measured.input_sequences_per_second:,.0f} sequences/s", "reading and batching"


def roofline_table(measured: Bench) -> Table:
    """Work, limit and time of each part of a step and of each operation that was measured."""
    matrix, memory = measured.rates.matrix, measured.rates.memory
    title = f"Limits of a device: {_flops(matrix.per_second)} {matrix.source}, "
    title += f"{memory.per_second / 1e9:,.1f} GB/s {memory.source}"
    table = _plain_table(
        title, ">runs", ">GFLOP", ">MB", ">limit\nms", ">by", ">time\nms", ">limit/\ntime", ">of\nstep"
    )
    for part in [*measured.parts, *measured.operations]:
        table.add_row(*_cells(part, measured.step.median), end_section=part is measured.parts[-1])
    return table


def _cells(part: Part, step: float) -> list[str]:
    return [
        part.name,
        f"{part.count:,}",
        _short(part.flops / 1e9),
        _short(part.bytes / 1e6),
        _short(part.limit.seconds * 1e3),
        part.limit.binds,
        _short(part.time.median * 1e3),
        "~" if part.limit_share is None else _percent(part.limit_share),
        _percent(part.count * part.time.median / step),
    ]


def comparison_table(there: Bench, here: Bench, path: str) -> Table:
    """Times of the parts that both benches have, side by side."""
    table = _plain_table(f"Compared with {path}", ">there", ">here", ">ratio")
    for name, time in here.times.items():
        if earlier := there.times.get(name):
            # There is no ratio of a difference of times that is lost in their noise.
            ratio = f"{time.median / earlier.median:.2f}" if time.low > 0 and earlier.low > 0 else "~"
            table.add_row(name, milliseconds(earlier.median), milliseconds(time.median), ratio)
    table.add_section()
    a, b = there.rates, here.rates
    for name, before, now, unit, form in (
        ("tokens", there.tokens_per_second, here.tokens_per_second, "/s", ",.0f"),
        ("matrix rate", a.matrix.per_second / 1e9, b.matrix.per_second / 1e9, "GFLOP/s", ",.1f"),
        ("memory bandwidth", a.memory.per_second / 1e9, b.memory.per_second / 1e9, "GB/s", ",.1f"),
    ):
        table.add_row(name, f"{before:{form}} {unit}", f"{now:{form}} {unit}", f"{now / before:.2f}")
    return table


def _plain_table(title: str, *headings: str) -> Table:
    """A table without borders, whose first column is the part; eight columns of figures beside it fit into 80."""
    table = Table(title, "part", *headings, box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    table.columns[0].no_wrap = True
    return table


def comparison_lines(there: Bench, here: Bench) -> Iterator[str]:
    """Yields the parts that only one of two benches has, then whether the work of a step differs, then what differs."""
    for side, one, other in (("there", there, here), ("here", here, there)):
        if alone := [_printable(name) for name in one.times if name not in other.times]:
            yield f"Measured only {side}: {', '.join(alone)}"
    found = differences(there, here)
    if work := ", ".join(_printable(each.name) for each in found if each.work):
        yield f"The work of a step differs ({work}): the times are not of the same work."
    elif found:
        yield "The work of a step is the same. What differs:"
    else:
        yield "Machine, versions and settings are the same."
    for each in found:
        yield f"  {_printable(each.name)}: {_value(each.there)} there, {_value(each.here)} here"


def _value(value: Scalar) -> str:
    return "nothing" if value is None else f"{value:,}" if type(value) is int else _printable(str(value))


def _printable(text: str) -> str:
    """`text` of a file that somebody else may have written: control characters would steer the terminal."""
    return text if text.isprintable() else shown(text)


def _short(value: float) -> str:
    return f"{value:,.{0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2}f}"


def _percent(share: float) -> str:
    return f"{share:.0%}" if abs(share) >= 0.1 else f"{share:.1%}"


def _flops(rate: float) -> str:
    return f"{rate / 1e12:,.1f} TFLOP/s" if rate > 1e13 else f"{rate / 1e9:,.1f} GFLOP/s"
