"""The tables of bert-jax plan."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from bert_jax.planning.changes import Change
from bert_jax.planning.plan import PhasePlan
from bert_jax.planning.topology import Topology
from bert_jax.system.progress import duration

_MOVERS_SHOWN = 15
_TIMES = {"at_best": "all at once", "in_turn": "one after the other"}


def plan_tables(topology: Topology, phases: list[PhasePlan], change: tuple[Change, list[PhasePlan]] | None) -> list:
    """Memory, collectives and time of the phases; if they don't fit, also with the change that makes them fit."""
    if not change:
        fits = all(each.fits for each in phases)
        last = [] if fits else ["No change that was tried makes it fit: use more chips or a smaller batch."]
        return [_memory_table(topology, phases), *_others(topology, phases), *last]
    found, with_it = change
    said = f"It doesn't fit. The smallest change that does: {found.flags}. The result of the training stays the same."
    return [_memory_table(topology, phases), said, _memory_table(topology, with_it), *_others(topology, with_it)]


def _others(topology: Topology, phases: list[PhasePlan]) -> list[Table]:
    return [_collectives_table(phases), _time_table(topology, phases)] if all(each.fits for each in phases) else []


def _memory_table(topology: Topology, phases: list[PhasePlan]) -> Table:
    table = _table(f"Memory a chip: {topology.chips:,} x TPU {topology.family}, {mesh_in_words(phases[0])}", phases)
    for field, name in (
        ("parameters", "parameters"),
        ("optimizer", "optimizer state"),
        ("other_arguments", "batch, counters, padding"),
        ("outputs", "outputs"),
        ("temporaries", "temporaries"),
        ("code", "program"),
    ):
        cells = [gib(getattr(each.memory, field)) if each.memory else "" for each in phases]
        table.add_row(name, *cells)
    totals = [gib(each.needed_bytes) if each.needed_bytes else "" for each in phases]
    verdicts = ["yes" if each.fits else "no" for each in phases]
    table.add_row("total", *totals, style="bold")
    table.add_row("available", *[gib(topology.chip.memory)] * len(phases))
    table.add_row("fits", *verdicts, style="bold")
    return table


def _collectives_table(phases: list[PhasePlan]) -> Table:
    table = _table("Collectives of a step: how many, the bytes of their arrays, what each chip sends", phases)
    found = [{one.kind: one for one in each.collectives} for each in phases]
    for kind in dict.fromkeys(one.kind for each in phases for one in each.collectives):
        cells = [
            f"{one.count:,} x, {_bytes(one.bytes)}, {_bytes(one.sent)}" if (one := each.get(kind)) else ""
            for each in found
        ]
        table.add_row(kind, *cells)
    return table


def _time_table(topology: Topology, phases: list[PhasePlan]) -> Table:
    chip = topology.chip
    table = _table("Time at peak and bandwidth; nothing was measured, and real steps take longer", phases)
    table.add_row("FLOPs a step, by formula", *(f"{each.flops:.3e}" for each in phases))
    for field, name in (
        ("compute", f"products at {chip.flops / 1e12:,.0f} TFLOP/s"),
        ("memory", f"memory at {chip.memory_bandwidth / 1e9:,.0f} GB/s"),
        ("links", f"{topology.links} links at {chip.link_bandwidth / 1e9:,.0f} GB/s"),
    ):
        table.add_row(name, *(_ms(getattr(each.time, field)) for each in phases))
    for field, name in _TIMES.items():
        seconds = [getattr(each.time, field) for each in phases]
        hours = [each.hours(one) for each, one in zip(phases, seconds)]
        table.add_section()
        table.add_row(f"step, {name}", *map(_ms, seconds), style="bold")
        rates = [each.rates(one, topology) for each, one in zip(phases, seconds)]
        table.add_row("sequences a second", *(f"{rate.sequences_per_second:,.0f}" for rate in rates))
        table.add_row("MFU", *(f"{rate.mfu:.0%}" for rate in rates))
        table.add_row("the phase", *(duration(3600 * each) for each in hours))
        table.add_row("chip-hours", *(f"{topology.chips * each:,.1f}" for each in hours))
        both = f"{duration(3600 * sum(hours))}, {topology.chips * sum(hours):,.1f} chip-hours"
        table.add_row("all phases", both, style="bold")
    return table


def sweep_table(topology: Topology, found: list[PhasePlan]) -> Table:
    """One row for each batch size and mesh that fits."""
    title = f"What fits {topology.chips:,} x TPU {topology.family}, best first; times one after the other"
    table = Table("length", " x ".join(found[0].mesh) if found else "mesh", title=title, title_justify="left")
    for column in ("batch", "memory", "step", "sequences/s", "MFU"):
        table.add_column(column, justify="right")
    for each in found:
        seconds = each.time.in_turn
        rates = each.rates(seconds, topology)
        table.add_row(
            f"{each.length:,}",
            " x ".join(map(str, each.mesh.values())),
            f"{each.batch_size:,}",
            gib(each.needed_bytes),
            _ms(seconds),
            f"{rates.sequences_per_second:,.0f}",
            f"{rates.mfu:.0%}",
        )
    return table


def movers_tables(result: dict[str, Any]) -> Iterator[Table]:
    """For each phase that was compiled, what moves most bytes; `result` is the plan's JSON object."""
    for phase in (result.get("change") or result)["phases"]:
        if not phase.get("movers"):
            continue
        moved = phase["traffic_bytes"]
        title = f"What moves most of the {moved / 1e9:,.2f} GB of a step of {phase['length']} tokens, on each chip"
        table = Table("part", "pass", "operation", title=title, title_justify="left")
        for column in ("how often", "bytes", "of all"):
            table.add_column(column, justify="right")
        for each in phase["movers"][:_MOVERS_SHOWN]:
            numbers = f"{each['times']:,} x", _bytes(each["bytes"]), f"{each['bytes'] / moved:.1%}"
            table.add_row(each["part"], each["direction"], each["operation"], *numbers)
        yield table


def formulas_table(topology: Topology, result: dict[str, Any]) -> Table:
    """FLOPs and time by formula, for a machine without the TPU compiler."""
    slice_ = f"{topology.chips:,} x TPU {topology.family}"
    title = f"By formula alone: {result['parameters']:,} parameters, {slice_} at their peak"
    table = Table(title=title, title_justify="left")
    for column in ("length", "batch", "FLOPs a step", "step", "the phase", "chip-hours"):
        table.add_column(column, justify="right")
    for phase in result["phases"]:
        best = phase["at_best"]
        table.add_row(
            str(phase["length"]),
            f"{phase['batch_size']:,}",
            f"{phase['flops']:.3e}",
            _ms(best["step_seconds"]),
            duration(3600 * best["hours"]),
            f"{best['chip_hours']:,.1f}",
        )
    return table


def _table(title: str, phases: list[PhasePlan]) -> Table:
    table = Table("", title=title, title_justify="left")
    for each in phases:
        table.add_column(f"{each.length} tokens, batch {each.batch_size:,}", justify="right")
    return table


def mesh_in_words(plan: PhasePlan) -> str:
    """The mesh as "data 4 x fsdp 1 x tensor 1"."""
    return " x ".join(f"{name} {size}" for name, size in plan.mesh.items())


def gib(size: float) -> str:
    """`size` in bytes, as text in GiB."""
    return f"{size / 2**30:,.2f} GiB"


def _bytes(size: int) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 1e8 else f"{size / 1e6:,.2f} MB"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms"
