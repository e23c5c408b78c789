"""Compiles programs for bert-jax plan, and prints a line for each."""

from importlib.metadata import version
from typing import Any

from bert_jax.cli.tables import gib
from bert_jax.config.run import RunConfig
from bert_jax.model.size import num_parameters
from bert_jax.planning.changes import change_that_fits, plan_json
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
        say(f"{install_extra('plan')} for memory, collectives and traffic, which need libtpu, the TPU compiler")
        return result | {"phases": formulas(config, topology, size)}
    planner = Planner(topology, size, exact)
    _ = planner.trainer(config)  # refuses a wrong mesh or batch before anything is compiled
    plan = _sweep(planner, config) if with_sweep else _plan(planner, config)
    return result | {"libtpu": version("libtpu"), "compilations": planner.compilations, "exact": exact} | plan


def _plan(planner: Planner, config: RunConfig) -> dict[str, Any]:
    """The plan of each phase and, if one doesn't fit, the change with which all fit."""
    say(f"Compiling {len(config.phases)} programs for {planner.topology}, more if one doesn't fit")
    planner.on_compiled = lambda plan: say(_outcome(plan))
    phases = planner.phases(config)
    change = None if all(each.fits for each in phases) else change_that_fits(planner, config, phases)
    return plan_json(planner.topology, phases, change)


def _sweep(planner: Planner, config: RunConfig) -> dict[str, Any]:
    """The plans that fit, of all batch sizes and meshes that are tried."""
    most = most_compilations(config, planner.topology.chips)
    say(f"At most {most} compilations for {planner.topology}; after one that doesn't fit, larger ones are left out")
    planner.on_compiled = lambda plan: say(f"{planner.compilations} of {most}: {_outcome(plan)}")
    return {"sweep": [each.as_json(planner.topology.chips) for each in sweep(planner, config)]}


def _outcome(plan: PhasePlan) -> str:
    needed = f", {gib(plan.needed_bytes)} a chip" if plan.needed_bytes else ""
    fits = "fits" if plan.fits else "doesn't fit"
    mesh = " x ".join(f"{name} {size}" for name, size in plan.mesh.items())
    saving = f", remat {plan.remat}, accumulation {plan.accumulation}"
    return (
        f"{plan.length} tokens, batch {plan.batch_size:,}, {mesh}{saving}: {fits}{needed} "
        f"(compiled in {duration(plan.compile_seconds)})"
    )
