"""The tables of bert-jax bench."""

from rich.table import Table

from bert_jax.planning.bench import Bench, OperationCost


def step_table(measured: Bench) -> Table:
    """Times, rates and memory of the whole step."""
    step = measured.step
    table = Table(title=f"{measured.devices} x {measured.device}", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    table.add_row("step", _ms(step.median), f"median of {step.count}; 80% in {_ms(step.low)} to {_ms(step.high)}")
    table.add_row("sequences", f"{measured.sequences_per_second:,.4g} /s", f"{measured.batch_size:,} a step")
    table.add_row("tokens", f"{measured.tokens_per_second:,.0f} /s", "without padding")
    flops = f"{measured.model_flops_per_step / 1e9:,.1f} GFLOP a step, by formula"
    table.add_row("model", _rate(measured.model_flops_per_second), flops)
    table.add_row("matrix products", _rate(measured.matrix_flops_per_second), "large square matrices, best of several")
    table.add_row("share of that", f"{measured.share_of_matrix_rate:.1%}", "")
    if measured.mfu is not None:
        table.add_row("MFU", f"{measured.mfu:.1%}", "of the peak in the data sheet")
    table.add_row("compilation", f"{measured.compile_seconds:,.1f} s", "short if the program was cached")
    table.add_row("memory", f"{measured.peak_memory_bytes / 1e9:,.2f} GB", "at the peak")
    if measured.input_sequences_per_second:
        table.add_row("input alone", f"{measured.input_sequences_per_second:,.0f} sequences/s", "reading and batching")
    return table


def parts_table(measured: Bench) -> Table:
    """The time of each part of a step."""
    table = Table(title="Time of the parts of a step", title_justify="left")
    table.add_column("part")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    for name, seconds in measured.parts.items():
        # The measured step gets a batch that is on the device already.
        share = "not in the step" if name == "input" else f"{seconds / measured.step.median:.1%}"
        table.add_row(name, _ms(seconds), share)
    return table


def operations_table(costs: list[OperationCost], bandwidth: float, step: float) -> Table:
    """Operations measured one by one; `bandwidth` in bytes a second, `step` in seconds."""
    title = f"Operations measured one by one, forward and backward; memory {bandwidth / 1e9:,.1f} GB/s"
    table = Table(title=title, title_justify="left")
    table.add_column("operation")
    for column in ("a step", "each", "its limit", "of its limit", "of the step"):
        table.add_column(column, justify="right")
    for cost in costs:
        table.add_row(
            cost.name,
            f"{cost.count} x",
            _ms(cost.seconds),
            _ms(cost.limit_seconds),
            f"{cost.share_of_limit:.0%}",
            f"{cost.share_of_step(step):.1%}",
        )
    return table


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"


def _rate(flops: float) -> str:
    return f"{flops / 1e12:,.1f} TFLOP/s" if flops > 1e13 else f"{flops / 1e9:,.1f} GFLOP/s"
