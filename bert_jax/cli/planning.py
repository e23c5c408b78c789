"""Compiles programs for bert-jax plan, and prints a line for each."""

from importlib.metadata import version
from typing import Any

from bert_jax.cli.plan_tables import gib
from bert_jax.config.run import RunConfig
from bert_jax.model.size import num_parameters
from bert_jax.planning.changes import Change, change_that_fits, plan_json
from bert_jax.planning.plan import PhasePlan, Planner, formulas
from bert_jax.planning.sweep import most_compilations, sweep
from bert_jax.planning.topology import FAMILIES, Topology, can_compile, parse_topology
from bert_jax.pretraining.objective import planned_vocabulary_size
from bert_jax.system.errors import install_extra
from bert_jax.system.progress import duration, say


def planned(config: RunConfig, topology: Topology, with_sweep: bool, exact: bool) -> dict[str, Any]:
    """The plan as a JSON object."""
    size = planned_vocabulary_size(config)
    largest = parse_topology(f"{topology.family}:{FAMILIES[topology.family].slices[-1]}")
    if topology.chips > largest.chips:
        say(f"{topology} is hypothetical: the largest slice of {topology.family} that can be had is {largest}")
    parameters = num_parameters(config.model.replace(vocabulary_size=size))
    result = {"topology": str(topology), "chips": topology.chips, "chip": topology.chip._asdict()}
    result |= {"parameters": parameters, "compiled": can_compile()}
    if not can_compile():
        result["phases"] = formulas(config, topology, size)
        say(f"{install_extra('plan')} for memory, collectives and traffic, which need libtpu, the TPU compiler")
    elif with_sweep:
        planner = Planner(topology, size, exact)
        found = _sweep(planner, config)
        result |= _made_with(planner) | {"sweep": [each.as_json(topology.chips) for each in found]}
    else:
        planner = Planner(topology, size, exact)
        phases, change = _plan(planner, config)
        result |= _made_with(planner) | plan_json(topology, phases, change)
    return result


def _made_with(planner: Planner) -> dict[str, Any]:
    return {"libtpu": version("libtpu"), "compilations": planner.compilations, "exact": planner.exact}


def _plan(planner: Planner, config: RunConfig) -> tuple[list[PhasePlan], tuple[Change, list[PhasePlan]] | None]:
    """The plan of each phase and, if one doesn't fit, the change with which all fit."""
    _ = planner.trainer(config)  # refuses a wrong mesh or batch before anything is compiled
    say(f"Compiling {len(config.phases)} programs for {planner.topology}, more if one doesn't fit")

    def tell(plan: PhasePlan) -> None:
        say(_outcome(plan))

    planner.on_compiled = tell
    phases = planner.phases(config)
    if all(each.fits for each in phases):
        return phases, None
    return phases, change_that_fits(planner, config, phases)


def _sweep(planner: Planner, config: RunConfig) -> list[PhasePlan]:
    _ = planner.trainer(config)  # refuses a wrong mesh or batch, with which nothing could be tried
    most = most_compilations(config, planner.topology.chips)
    say(f"At most {most} compilations for {planner.topology}; after one that doesn't fit, larger ones are left out")

    def tell(plan: PhasePlan) -> None:
        say(f"{planner.compilations} of {most}: {_outcome(plan)}")

    planner.on_compiled = tell
    return sweep(planner, config)


def _outcome(plan: PhasePlan) -> str:
    needed = f", {gib(plan.needed_bytes)} a chip" if plan.needed_bytes else ""
    fits = "fits" if plan.fits else "doesn't fit"
    mesh = " x ".join(f"{name} {size}" for name, size in plan.mesh.items())
    saving = f", remat {plan.remat}, accumulation {plan.accumulation}"
    return (
        f"{plan.length} tokens, batch {plan.batch_size:,}, {mesh}{saving}: {fits}{needed} "
        f"(compiled in {duration(plan.compile_seconds)})"
    )
