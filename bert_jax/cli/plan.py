"""bert-jax plan CONFIG.py --topology v5e:4x4: what a TPU slice would make of the run, found without one."""

import json
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

import tyro
from rich.table import Table

from bert_jax.cli.arguments import ConfigArguments, parse_config
from bert_jax.config.run import RunConfig
from bert_jax.model.size import num_parameters
from bert_jax.planning.changes import Change, change_that_fits
from bert_jax.planning.plan import PhasePlan, Planner, formulas, hours_json
from bert_jax.planning.sweep import most_compilations, sweep
from bert_jax.planning.topology import FAMILIES, Topology, can_compile, parse_topology
from bert_jax.pretraining.trainer import planned_vocabulary_size
from bert_jax.system.progress import duration, output, say

_TIMES = (("at_best", "all at once"), ("in_turn", "one after the other"))


@dataclass(frozen=True, kw_only=True)
class PlanArguments(ConfigArguments):
    """Arguments."""

    topology: Annotated[str, tyro.conf.arg(help="The slice: v5e:4x4, v6e:8x8, v4:2x2x1, v5p:4x4x4; 1 to 1,024 chips.")]
    sweep: bool = False
    """Try batch sizes and meshes as well, one compilation each."""
    exact: bool = False
    """Compile as a run does, which takes three times as long; else with the least effort, for a program that takes some
    per cent more memory and moves more."""
    json: bool = False
    """Print one JSON object instead of tables."""


def run(arguments: list[str]) -> None:
    """Parses, compiles each phase's step for the slice, prints what was found."""
    text = (
        "Compile the train step for a TPU slice on this machine's CPU (needs bert_jax[plan]) and tell memory a chip, "
        "collectives and time. The compiler's flags in LIBTPU_INIT_ARGS hold."
    )
    asked = parse_config(PlanArguments, "plan", text, arguments)
    topology, size = parse_topology(asked.topology), planned_vocabulary_size(asked.config)
    if topology.chips > (most := parse_topology(f"{topology.family}:{FAMILIES[topology.family].slices[-1]}")).chips:
        say(f"no slice of {topology.family} is larger than {most}: {topology} is a thought")
    parameters = num_parameters(asked.config.model.replace(vocabulary_size=size))
    result = {"topology": str(topology), "chips": topology.chips, "chip": topology.chip._asdict()}
    result |= {"parameters": parameters, "compiled": can_compile()}
    if not can_compile():
        result["phases"] = formulas(asked.config, topology, size)
        say("pip install bert_jax[plan] for memory and collectives: without libtpu there is nothing to compile with")
        shown = [_formulas_table(topology, result)]
    elif asked.sweep:
        planner = Planner(topology, size, asked.exact)
        found = _sweep(planner, asked.config)
        result |= _made_with(planner) | {"sweep": [each.as_json(topology.chips) for each in found]}
        shown = [_sweep_table(topology, found)]
    else:
        planner = Planner(topology, size, asked.exact)
        phases, change = _plan(planner, asked.config)
        result |= _made_with(planner) | plan_json(topology, phases, change)
        shown = _plan_tables(topology, phases, change)
    if can_compile() and not asked.exact:
        shown.append(
            "Compiled with the least effort: a run takes some per cent less memory and moves less; see --exact."
        )
    if asked.json:
        print(json.dumps(result))
    else:
        output.print(*shown, sep="\n")


def _made_with(planner: Planner) -> dict[str, Any]:
    return {"libtpu": version("libtpu"), "compilations": planner.compilations, "exact": planner.exact}


def _plan(planner: Planner, config: RunConfig) -> tuple[list[PhasePlan], tuple[Change, list[PhasePlan]] | None]:
    """Each phase, and where one doesn't fit the change with which all do."""
    _ = planner.trainer(config)  # refuses what can't be, before anything is compiled
    say(f"Compiling {len(config.phases)} programs for {planner.topology}, more where one doesn't fit")
    planner.on_compiled = lambda plan: say(_outcome(plan))
    phases = planner.phases(config)
    if all(each.fits for each in phases):
        return phases, None
    return phases, change_that_fits(planner, config, phases)


def _sweep(planner: Planner, config: RunConfig) -> list[PhasePlan]:
    _ = planner.trainer(config)  # refuses what can't be, which would leave nothing to try
    most = most_compilations(config, planner.topology.chips)
    say(f"At most {most} compilations for {planner.topology}; what is larger than what didn't fit is left out")
    planner.on_compiled = lambda plan: say(f"{planner.compilations} of {most}: {_outcome(plan)}")
    return sweep(planner, config)


def _outcome(plan: PhasePlan) -> str:
    needed = f", {_gib(plan.needed_bytes)} a chip" if plan.needed_bytes else ""
    fits = "fits" if plan.fits else "doesn't fit"
    saving = f", remat {plan.remat}, accumulation {plan.accumulation}"
    return (
        f"{plan.length} tokens, batch {plan.batch_size:,}, {_mesh(plan)}{saving}: {fits}{needed} "
        f"(compiled in {duration(plan.compile_seconds)})"
    )


def plan_json(
    topology: Topology, phases: list[PhasePlan], change: tuple[Change, list[PhasePlan]] | None
) -> dict[str, Any]:
    """What was found, for programs; `total` is that of all phases, as they fit."""
    fitting = phases if all(each.fits for each in phases) else change and change[1]
    return {
        "fits": fitting is phases,
        "phases": [each.as_json(topology.chips) for each in phases],
        "change": change
        and {
            "flags": change[0].flags,
            "settings": change[0].settings,
            "phases": [each.as_json(topology.chips) for each in change[1]],
        },
        "total": fitting and {name: hours_json(_hours(fitting, name), topology.chips) for name, _ in _TIMES},
    }


def _hours(phases: list[PhasePlan], name: str) -> float:
    return sum(each.hours(getattr(each.time, name)) for each in phases)


def _plan_tables(topology: Topology, phases: list[PhasePlan], change: tuple[Change, list[PhasePlan]] | None) -> list:
    if not change:
        fits = all(each.fits for each in phases)
        last = [] if fits else ["Nothing that was tried makes it fit: take more chips, or a smaller batch."]
        return [_memory_table(topology, phases), *_others(topology, phases), *last]
    found, with_it = change
    said = f"It doesn't fit. The smallest change that does: {found.flags}. The result of the training stays the same."
    return [_memory_table(topology, phases), said, _memory_table(topology, with_it), *_others(topology, with_it)]


def _others(topology: Topology, phases: list[PhasePlan]) -> list[Table]:
    return [_collectives_table(phases), _time_table(topology, phases)] if all(each.fits for each in phases) else []


def _memory_table(topology: Topology, phases: list[PhasePlan]) -> Table:
    table = _table(f"Memory a chip: {topology.chips:,} x TPU {topology.family}, {_mesh(phases[0])}", phases)
    for field, name in (
        ("parameters", "parameters"),
        ("optimizer", "optimizer state"),
        ("other_arguments", "batch, counters, padding"),
        ("outputs", "outputs"),
        ("temporaries", "temporaries"),
        ("code", "program"),
    ):
        table.add_row(name, *(_gib(getattr(each.memory, field)) if each.memory else "" for each in phases))
    table.add_row("total", *(_gib(each.needed_bytes) if each.needed_bytes else "" for each in phases), style="bold")
    table.add_row("there is", *[_gib(topology.chip.memory)] * len(phases))
    table.add_row("fits", *("yes" if each.fits else "no" for each in phases), style="bold")
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
    for field, name in _TIMES:
        seconds = [getattr(each.time, field) for each in phases]
        hours = [each.hours(one) for each, one in zip(phases, seconds)]
        table.add_section()
        table.add_row(f"step, {name}", *map(_ms, seconds), style="bold")
        table.add_row("sequences a second", *(f"{each.batch_size / one:,.0f}" for each, one in zip(phases, seconds)))
        table.add_row(
            "MFU", *(f"{each.flops / one / chip.flops / topology.chips:.0%}" for each, one in zip(phases, seconds))
        )
        table.add_row("the phase", *(duration(3600 * each) for each in hours))
        table.add_row("chip-hours", *(f"{topology.chips * each:,.1f}" for each in hours))
        both = f"{duration(3600 * sum(hours))}, {topology.chips * sum(hours):,.1f} chip-hours"
        table.add_row("all phases", both, style="bold")
    return table


def _sweep_table(topology: Topology, found: list[PhasePlan]) -> Table:
    title = f"What fits {topology.chips:,} x TPU {topology.family}, best first; times one after the other"
    table = Table("length", " x ".join(found[0].mesh) if found else "mesh", title=title, title_justify="left")
    for column in ("batch", "memory", "step", "sequences/s", "MFU"):
        table.add_column(column, justify="right")
    for each in found:
        seconds = each.time.in_turn
        table.add_row(
            f"{each.length:,}",
            " x ".join(map(str, each.mesh.values())),
            f"{each.batch_size:,}",
            _gib(each.needed_bytes),
            _ms(seconds),
            f"{each.batch_size / seconds:,.0f}",
            f"{each.flops / seconds / topology.chip.flops / topology.chips:.0%}",
        )
    return table


def _formulas_table(topology: Topology, result: dict[str, Any]) -> Table:
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


def _mesh(plan: PhasePlan) -> str:
    return " x ".join(f"{name} {size}" for name, size in plan.mesh.items())


def _gib(size: float) -> str:
    return f"{size / 2**30:,.2f} GiB"


def _bytes(size: int) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 1e8 else f"{size / 1e6:,.2f} MB"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms"
