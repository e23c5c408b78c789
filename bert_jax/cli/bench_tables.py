"""The tables of bert-jax bench."""

from collections.abc import Iterator
from typing import Any

from rich import box

from bert_jax.cli.tables import Table, meanings_table, rows_table
from bert_jax.planning.bench_record import Bench, compared, differences
from bert_jax.run.environment import Scalar
from bert_jax.system.errors import quoted
from bert_jax.system.facts import bytes_per_second, flops_per_second

COLUMNS = """\
runs        how often a step runs it; other figures of operations: of one run
GFLOP       matrix products, by formula, without recomputation
MB          memory traffic: of a part, as its compiled program has it; of an
            operation, its arguments and results, each once
limit, by   the longer of GFLOP at the matrix rate and MB at the bandwidth
time        median; backward and optimizer are differences of programs
limit/time  100% is the best that this hardware allows; ~: lost in the noise
of step     share of the step's time, all runs together"""
"""Explains the columns of `bench_tables`, in lines of at most 80 characters."""

RATIOS = "ratio: here over there; of times, below 1 is faster here; ~: lost in the noise"
"""Explains the last column of `comparison_tables`."""
_NARROW: dict[str, Any] = {"box": box.SIMPLE_HEAD, "show_edge": False, "padding": 0}
"""Tables without borders: eight columns of figures beside the part fit into 80."""


_OF_STEP = (
    *("step", "sequences_per_second", "tokens_per_second", "fill", "model_flops_per_step", "model_flops_per_second"),
    *("matrix_rate", "share_of_matrix_rate", "mfu", "transfer", "compile_seconds", "peak_memory_bytes"),
    "input_sequences_per_second",
)
_OF_PARTS = (
    *("name", "count", "flops", "bytes", "limit.seconds", "limit.binds", "time.median", "limit_share", "step_share"),
)


def bench_tables(measured: Bench) -> Iterator[Table | str]:
    """Yields times, rates and memory of the whole step, then work, limit and time of its parts and operations."""
    yield meanings_table(
        "{devices} x {device}, {processor}, {cores} cores".format(**measured.machine), measured, _OF_STEP
    )
    matrix, memory = measured.rates.matrix, measured.rates.memory
    title = f"Limits of a device: {flops_per_second(matrix.per_second)} {matrix.source}, "
    title += f"{bytes_per_second(memory.per_second)} {memory.source}"
    table = rows_table(title, [*measured.parts, *measured.operations], _OF_PARTS, **_NARROW)
    table.rows[len(measured.parts) - 1].end_section = True
    yield table
    yield COLUMNS


def comparison_tables(there: Bench, here: Bench, path: str) -> Iterator[Table | str]:
    """Yields times and rates of both benches, side by side."""
    yield ""
    yield rows_table(f"Compared with {path}", list(compared(there, here)), **_NARROW)
    yield RATIOS


def comparison_lines(there: Bench, here: Bench) -> Iterator[str]:
    """Yields lines: the parts that only one bench has, whether the work of a step differs, and each difference."""
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
    return text if text.isprintable() else quoted(text)
