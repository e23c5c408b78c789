"""The tables of bert-jax plan, made from its JSON object."""

from collections.abc import Iterator
from typing import Any

from bert_jax.cli.tables import Table, gib, milliseconds
from bert_jax.planning.topology import Topology
from bert_jax.system.progress import duration

_MOVERS_SHOWN = 15
_TIMES = {"at_best": "all at once", "in_turn": "one after the other"}


Facts = dict[str, Any]
"""A part of the plan's JSON object."""


def plan_tables(topology: Topology, result: Facts, with_operations: bool) -> Iterator[Table | str]:
    """The tables and lines of a plan, in their order; `result` is its JSON object."""
    if not result["compiled"]:
        yield _formulas_table(topology, result)
        return
    if "sweep" in result:
        yield _sweep_table(topology, result["sweep"])
    else:
        yield from _phase_tables(topology, result)
    if not result["exact"]:
        yield "Compiled with the least effort: a real run moves fewer bytes; see --exact."
    if with_operations:
        yield from _movers_tables(result)


def _phase_tables(topology: Topology, result: Facts) -> Iterator[Table | str]:
    """Memory, collectives and time of the phases; if they don't fit, also with the change that makes them fit."""
    phases, change, total = result["phases"], result["change"], result["total"]
    yield _memory_table(topology, phases)
    if change:
        yield (
            f"It doesn't fit. The smallest change that does: {change['flags']}. The result of the training stays the "
            "same."
        )
        phases = change["phases"]
        yield _memory_table(topology, phases)
    if total:
        yield _collectives_table(phases)
        yield _time_table(topology, phases, total)
    else:
        yield "No change that was tried makes it fit: use more chips or a smaller batch."


def _memory_table(topology: Topology, phases: list[Facts]) -> Table:
    table = _table(f"Memory a chip: {topology.chips:,} x TPU {topology.family}, {_mesh(phases[0])}", phases)
    for field, name in (
        ("parameters", "parameters"),
        ("optimizer", "optimizer state"),
        ("other_arguments", "batch, counters, padding"),
        ("outputs", "outputs"),
        ("temporaries", "temporaries"),
        ("code", "program"),
    ):
        table.add_row(name, *(gib(each["memory"][field]) if each["memory"] else "" for each in phases))
    totals = (gib(each["needed_bytes"]) if each["needed_bytes"] else "" for each in phases)
    table.add_row("total", *totals, style="bold")
    table.add_row("available", *[gib(topology.chip.memory)] * len(phases))
    table.add_row("fits", *("yes" if each["fits"] else "no" for each in phases), style="bold")
    return table


def _collectives_table(phases: list[Facts]) -> Table:
    table = _table("Collectives of a step: how many, the bytes of their arrays, what each chip sends", phases)
    found = [{one["kind"]: one for one in each["collectives"]} for each in phases]
    for kind in dict.fromkeys(kind for each in found for kind in each):
        ones = (each.get(kind) for each in found)
        table.add_row(
            kind, *(f"{one['count']:,} x, {_bytes(one['bytes'])}, {_bytes(one['sent'])}" if one else "" for one in ones)
        )
    return table


def _time_table(topology: Topology, phases: list[Facts], total: Facts) -> Table:
    chip = topology.chip
    table = _table("Time at peak and bandwidth; nothing was measured, and real steps take longer", phases)
    table.add_row("FLOPs a step, by formula", *(f"{each['flops']:.3e}" for each in phases))
    for field, name in (
        ("compute", f"products at {chip.flops / 1e12:,.0f} TFLOP/s"),
        ("memory", f"memory at {chip.memory_bandwidth / 1e9:,.0f} GB/s"),
        ("links", f"{topology.links} links at {chip.link_bandwidth / 1e9:,.0f} GB/s"),
    ):
        table.add_row(name, *(milliseconds(each["time"][field]) for each in phases))
    for field, name in _TIMES.items():
        times = [each["time"][field] for each in phases]
        table.add_section()
        table.add_row(f"step, {name}", *(milliseconds(time["step_seconds"]) for time in times), style="bold")
        rates, shares = zip(*(_speed(topology, each, field) for each in phases), strict=True)
        table.add_row("sequences a second", *rates)
        table.add_row("MFU", *shares)
        table.add_row("the phase", *(duration(3600 * time["hours"]) for time in times))
        table.add_row("chip-hours", *(f"{time['chip_hours']:,.1f}" for time in times))
        both = f"{duration(3600 * total[field]['hours'])}, {total[field]['chip_hours']:,.1f} chip-hours"
        table.add_row("all phases", both, style="bold")
    return table


def _sweep_table(topology: Topology, found: list[Facts]) -> Table:
    """One row for each batch size and mesh that fits."""
    title = f"What fits {topology.chips:,} x TPU {topology.family}, best first; times one after the other"
    mesh = " x ".join(found[0]["mesh"]) if found else "mesh"
    table = Table(title, "length", mesh, ">batch", ">memory", ">step", ">sequences/s", ">MFU")
    for each in found:
        table.add_row(
            f"{each['length']:,}",
            " x ".join(map(str, each["mesh"].values())),
            f"{each['batch_size']:,}",
            gib(each["needed_bytes"]),
            milliseconds(each["time"]["in_turn"]["step_seconds"]),
            *_speed(topology, each, "in_turn"),
        )
    return table


def _speed(topology: Topology, phase: Facts, time: str) -> tuple[str, str]:
    """Sequences a second, and MFU (model FLOPs over the peak of all chips), by the step's time of that name."""
    seconds = phase["time"][time]["step_seconds"]
    mfu = phase["flops"] / seconds / topology.chip.flops / topology.chips
    return f"{phase['batch_size'] / seconds:,.0f}", f"{mfu:.0%}"


def _movers_tables(result: Facts) -> Iterator[Table]:
    """For each phase that was compiled, what moves most bytes."""
    for phase in (result.get("change") or result)["phases"]:
        if not phase.get("movers"):
            continue
        moved = phase["traffic_bytes"]
        title = f"What moves most of the {moved / 1e9:,.2f} GB of a step of {phase['length']} tokens, on each chip"
        table = Table(title, "part", "pass", "operation", ">how often", ">bytes", ">of all")
        for each in phase["movers"][:_MOVERS_SHOWN]:
            numbers = f"{each['times']:,} x", _bytes(each["bytes"]), f"{each['bytes'] / moved:.1%}"
            table.add_row(each["part"], each["direction"], each["operation"], *numbers)
        yield table


def _formulas_table(topology: Topology, result: Facts) -> Table:
    """FLOPs and time by formula, for a machine without the TPU compiler."""
    slice_ = f"{topology.chips:,} x TPU {topology.family}"
    title = f"By formula alone: {result['parameters']:,} parameters, {slice_} at their peak"
    table = Table(title, ">length", ">batch", ">FLOPs a step", ">step", ">the phase", ">chip-hours")
    for phase in result["phases"]:
        best = phase["at_best"]
        table.add_row(
            str(phase["length"]),
            f"{phase['batch_size']:,}",
            f"{phase['flops']:.3e}",
            milliseconds(best["step_seconds"]),
            duration(3600 * best["hours"]),
            f"{best['chip_hours']:,.1f}",
        )
    return table


def _table(title: str, phases: list[Facts]) -> Table:
    return Table(title, "", *(f">{each['length']} tokens, batch {each['batch_size']:,}" for each in phases))


def _mesh(phase: Facts) -> str:
    return " x ".join(f"{name} {size}" for name, size in phase["mesh"].items())


def _bytes(size: int) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 1e8 else f"{size / 1e6:,.2f} MB"
