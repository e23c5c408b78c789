"""Compiles programs for bert-jax plan, and prints a line for each."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from bert_jax.model.size import num_parameters
from bert_jax.planning.plan import Planner, formulas
from bert_jax.planning.plan_record import ESTIMATES, PhasePlan, PhaseTime
from bert_jax.planning.topology import FAMILIES, Topology, can_compile, parse_topology
from bert_jax.planning.work import AnyRunConfig, shapes_of, vocabulary_size_of
from bert_jax.system.errors import install_extra
from bert_jax.system.facts import Table, facts_table, gib, rows_table
from bert_jax.system.progress import duration, say

_PHASE_ROWS = list(PhasePlan.model_fields)
_OF_FORMULAS = (
    "length",
    "batch_size",
    "flops",
    *(f"at_best.{name}" for name in ("step_seconds", "hours", "chip_hours")),
)


def planned(config: AnyRunConfig, topology: Topology, exact: bool) -> dict[str, Any]:
    """The facts of the plan, by the names that they have in JSON."""
    size = vocabulary_size_of(config)
    largest = parse_topology(f"{topology.family}:{FAMILIES[topology.family].slices[-1]}")
    if topology.chips > largest.chips:
        say(f"{topology} is hypothetical: the largest slice of {topology.family} that can be had is {largest}")
    model = config.model.replace(vocabulary_size=size)
    parameters = num_parameters(model, shapes=shapes_of(config, size))
    result = {"topology": str(topology), "chips": topology.chips, "chip": topology.chip._asdict()}
    result |= {"parameters": parameters, "compiled": can_compile()}
    if not can_compile():
        say(f"{install_extra('plan')} for memory, collectives and traffic, which need libtpu, the TPU compiler")
        return result | {"phases": formulas(config, topology, size)}
    planner = Planner(topology, size, exact)
    _ = planner.trainer(config)  # refuses a wrong mesh or batch before anything is compiled
    plan = _plan(planner, config)
    return result | {"libtpu": version("libtpu"), "compilations": planner.compilations, "exact": exact} | plan


def _plan(planner: Planner, config: AnyRunConfig) -> dict[str, Any]:
    """The plan of each phase, and the time of all phases if all fit."""
    say(f"Compiling {len(config.phases)} programs for {planner.topology}")
    planner.on_compiled = lambda plan: say(_outcome(plan))
    phases = planner.phases(config)
    fits = all(each.fits for each in phases)
    times = [each.time for each in phases if each.time] if fits else []
    total = {name: PhaseTime.total(getattr(time, name) for time in times) for name in ESTIMATES} if times else None
    return {"fits": fits, "phases": phases, "total": total}


def _outcome(plan: PhasePlan) -> str:
    needed = f", {gib(plan.needed_bytes)} a chip" if plan.needed_bytes else ""
    fits = "fits" if plan.fits else "doesn't fit"
    mesh = " x ".join(f"{name} {size}" for name, size in plan.mesh.items())
    saving = f", remat {plan.remat}, accumulation {plan.accumulation}"
    return (
        f"{plan.length} tokens, batch {plan.batch_size:,}, {mesh}{saving}: {fits}{needed} "
        f"(compiled in {duration(plan.compile_seconds)})"
    )


def plan_tables(topology: Topology, result: dict[str, Any]) -> Iterator[Table | str]:
    """Yields the tables and lines of a plan in their order; `result` is what `planned` returns."""
    slice_ = f"{topology.chips:,} x TPU {topology.family}"
    if not result["compiled"]:
        title = f"By formula alone: {result['parameters']:,} parameters, {slice_} at their peak"
        yield rows_table(title, result["phases"], _OF_FORMULAS)
        return
    yield from _phase_tables(topology, slice_, result)
    if not result["exact"]:
        yield "Compiled with the least effort: a real run moves fewer bytes; see --exact."


def _phase_tables(topology: Topology, slice_: str, result: dict[str, Any]) -> Iterator[Table | str]:
    """Yields all figures of the phases, then their time or, if they don't fit, what to try."""
    chip, total = topology.chip, result["total"]
    rates = f"{chip.flops / 1e12:,.0f} TFLOP/s, {chip.memory_bandwidth / 1e9:,.0f} GB/s"
    title = f"{slice_}: a chip has {rates}, {topology.links} links of {chip.link_bandwidth / 1e9:,.0f} GB/s"
    headings = {f"{each.length} tokens, batch {each.batch_size:,}": each for each in result["phases"]}
    yield facts_table(title, headings, _PHASE_ROWS)
    if total:
        best, turn = (f"{duration(3600 * each.hours)}, {each.chip_hours:,.1f} chip-hours" for each in total.values())
        yield f"All phases: {best} if all limits overlap; {turn} if nothing does. Real steps take longer."
    else:
        yield "It doesn't fit. Try a larger --execution.accumulation, --execution.remat full, or a smaller batch."
