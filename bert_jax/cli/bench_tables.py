"""The tables of bert-jax bench."""

from collections.abc import Iterator
from typing import Any

from rich import box

from bert_jax.planning.bench_record import Bench
from bert_jax.system.facts import Table, bytes_per_second, flops_per_second, meanings_table, rows_table

COLUMNS = """\
GFLOP       matrix products, by formula, without recomputation
MB          memory traffic of the compiled program
limit, by   the longer of GFLOP at the matrix rate and MB at the bandwidth
time        median; backward and optimizer are differences of programs
limit/time  100% is the best that this hardware allows; ~: lost in the noise
of step     share of the step's time"""
"""Explains the columns of `bench_tables`, in lines of at most 80 characters."""
_NARROW: dict[str, Any] = {"box": box.SIMPLE_HEAD, "show_edge": False, "padding": 0}
"""Tables without borders: seven columns of figures beside the part fit into 80."""


_OF_STEP = (
    *("step", "sequences_per_second", "tokens_per_second", "fill", "model_flops_per_step", "model_flops_per_second"),
    *("matrix_rate", "share_of_matrix_rate", "mfu", "transfer", "compile_seconds", "peak_memory_bytes"),
    "input_sequences_per_second",
)
_OF_PARTS = ("name", "flops", "bytes", "limit.seconds", "limit.binds", "time.median", "limit_share", "step_share")


def bench_tables(measured: Bench) -> Iterator[Table | str]:
    """Yields times, rates and memory of the whole step, then work, limit and time of its parts."""
    yield meanings_table(
        "{devices} x {device}, {processor}, {cores} cores".format(**measured.machine), measured, _OF_STEP
    )
    matrix, memory = measured.rates.matrix, measured.rates.memory
    title = f"Limits of a device: {flops_per_second(matrix.per_second)} {matrix.source}, "
    title += f"{bytes_per_second(memory.per_second)} {memory.source}"
    yield rows_table(title, measured.parts, _OF_PARTS, **_NARROW)
    yield COLUMNS
