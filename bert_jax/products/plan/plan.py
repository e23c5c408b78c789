"""Compiles the train step for TPUs that this machine lacks, and finds its memory and its least time."""

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import jax

from bert_jax.config.finetune import AnyRunConfig
from bert_jax.model.sharding import abstract, batch_sharding, make_mesh
from bert_jax.model.size import num_parameters
from bert_jax.products.plan.account import (
    ChipMemory,
    CompiledPhase,
    FormulaPhase,
    Pace,
    SliceAccount,
    SliceTime,
    StepTime,
    StepWork,
)
from bert_jax.products.plan.program import Program
from bert_jax.products.plan.topology import Topology, can_compile, topology_devices
from bert_jax.system.errors import RunError, install_extra, is_out_of_memory
from bert_jax.system.figures import gib
from bert_jax.system.progress import duration, say
from bert_jax.training.devices import with_even_batches
from bert_jax.training.step import Objective
from bert_jax.training.trainer import Trainer

_RECOMPUTED = {"none": 1, "dots": 1, "full": 4 / 3}
"""FLOPs with recomputation over those of the formula, of which the forward pass has a third; by remat."""

_LEAST_EFFORT = {"exec_time_optimization_effort": -1.0}
"""Options for libtpu's fastest compilation: half the time, for a program with more memory traffic. BERT-base on v5e:4x4
moves 29 ms of bytes instead of 17 at 512 tokens, 14 instead of 10 at 128; its memory is within a tenth (libtpu
0.0.42)."""

_COMPILED = "the compiled step"

_REFUSALS = (
    r"\(([\d.]+[KMGT]?)\) exceeds available HBM \(([\d.]+[KMGT]?)\)",
    r"Used ([\d.]+[KMGT]?) of ([\d.]+[KMGT]?) hbm",
    r"Requires ([\d.]+[KMGT]?), has ([\d.]+[KMGT]?) available",
)
"""Compiler messages with the memory that a program needs and the memory of a chip."""


def slice_account(config: AnyRunConfig, objective: Objective, topology: Topology, exact: bool) -> SliceAccount:
    """Compiles the step of each phase for the slice. Without libtpu, the plan has FLOPs and their time alone.

    `exact`: compile as a run does, else with _LEAST_EFFORT. Raises UsageError if mesh or batches don't fit the slice or
    the model, RunError where libtpu fails.
    """
    if topology.chips > topology.largest.chips:
        say(f"{topology} is hypothetical: the largest slice of {topology.family} that can be had is {topology.largest}")
    # First of all, since JAX looks for a TPU on this machine unless the slice's devices were described.
    compiled = _compiled_phases(config, objective, topology, exact) if can_compile() else None
    fits = all(phase.fits for phase in compiled) if compiled else None
    return SliceAccount(
        topology=str(topology),
        chips=topology.chips,
        chip=topology.chip._asdict(),
        parameters=num_parameters(objective.model, shapes=objective.parameter_shapes),
        compiled=compiled is not None,
        libtpu=version("libtpu") if compiled else None,
        exact=exact,
        fits=fits,
        phases=compiled or _phases_by_formula(config, objective, topology),
        total=_total(compiled) if compiled and fits else None,
    )


def _phases_by_formula(config: AnyRunConfig, objective: Objective, topology: Topology) -> list[FormulaPhase]:
    say(f"{install_extra('plan')} for memory and traffic, which need libtpu, the TPU compiler")
    phases = []
    for number in range(len(config.phases)):
        work = _work(config, number, objective.flops(config.ids_shape(number)))
        at_best = _pace(config, work, topology, topology.seconds(work.flops), "formula")
        phases.append(FormulaPhase(**dict(work), at_best=at_best))
    return phases


def _compiled_phases(
    config: AnyRunConfig, objective: Objective, topology: Topology, exact: bool
) -> list[CompiledPhase]:
    """Compiles the phases in parallel: the compiler spends half its time on one core."""
    mesh = make_mesh(config.mesh, topology_devices(topology))
    trainer = Trainer(with_even_batches(config, mesh), mesh, objective)
    _ = trainer.state_shapes  # raises for sizes that can't be divided over the mesh
    say(f"Compiling {len(config.phases)} programs for {topology}")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        numbers = range(len(config.phases))
        return list(pool.map(lambda number: compiled_phase(trainer, topology, number, exact), numbers))


def compiled_phase(trainer: Trainer, topology: Topology, number: int, exact: bool) -> CompiledPhase:
    """Compiles the step of phase `number`. Raises RunError where libtpu fails for another reason than memory."""
    config = trainer.config
    batch = trainer.objective.random_batch(config.ids_shape(number))
    rows = batch_sharding(trainer.mesh)
    shapes = abstract(batch, jax.tree.map(lambda _: rows, batch))
    work = _work(config, number, trainer.flops(number))
    began = time.perf_counter()
    memory = moved = sent = step_time = None
    try:
        lowered = trainer.train_step(number).lower(trainer.state_shapes, shapes)
        compiled = lowered.compile(None if exact else _LEAST_EFFORT)  # type: ignore[arg-type]  # which lacks numbers
    except jax.errors.JaxRuntimeError as error:
        needed = refusal(str(error))
    else:
        memory = _memory(compiled)
        program = program_of(compiled)
        needed, moved, sent = memory.total, program.moved_bytes(), program.sent_bytes()
        step_time = step_time_of(config, work, topology, moved, sent)
    phase = CompiledPhase(
        **dict(work),
        mesh=dict(trainer.mesh.shape),
        remat=config.execution.remat,
        accumulation=config.execution.accumulation,
        compile_seconds=time.perf_counter() - began,
        memory=memory,
        needed_bytes=needed,
        available_bytes=round(topology.chip.memory),
        # The compiler may accept a program that needs more memory than a chip has.
        fits=memory is not None and memory.total <= topology.chip.memory,
        traffic_bytes=moved,
        sent_bytes=sent,
        time=step_time,
    )
    say(_in_words(phase))
    return phase


def program_of(compiled: jax.stages.Compiled) -> Program:
    """The compiled program. Raises RunError if JAX can't read it, as with incompatible versions of JAX and libtpu."""
    try:
        text = compiled.as_text()
    except jax.errors.JaxRuntimeError as error:
        raise RunError(
            f"jax {jax.__version__} can't read what libtpu {version('libtpu')} compiled "
            f"({str(error).partition(chr(10))[0]}); install the pair that was tested: "
            f"{install_extra('plan')}"
        ) from None
    assert text is not None, "a program for a TPU has a text"
    return Program(text)


def refusal(message: str) -> int | None:
    """Bytes that a refused program needs on a chip, from the compiler's message; None if the message doesn't say.

    Raises RunError if the compiler failed for another reason than memory.
    """
    if not is_out_of_memory(message):
        raise RunError(f"the TPU's compiler failed: {message.splitlines()[0]}")
    for pattern in _REFUSALS:
        if match := re.search(pattern, message):
            number = match[1].rstrip("KMGT")
            return round(float(number) * 1024 ** " KMGT".index(match[1][len(number) :] or " "))
    return None


def step_time_of(config: AnyRunConfig, work: StepWork, topology: Topology, moved: int, sent: int) -> StepTime:
    """The times of a step. `moved`: bytes to and from a chip's memory; `sent`: bytes that a chip sends."""
    chip = topology.chip
    compute = topology.seconds(work.flops * _RECOMPUTED[config.execution.remat])
    memory, links = moved / chip.memory_bandwidth, sent / (chip.link_bandwidth * max(topology.links, 1))
    return StepTime(
        compute=compute,
        memory=memory,
        links=links,
        at_best=_pace(config, work, topology, max(compute, memory, links), _COMPILED),
        in_turn=_pace(config, work, topology, compute + memory + links, _COMPILED),
    )


def _work(config: AnyRunConfig, number: int, flops: float) -> StepWork:
    phase = config.phases[number]
    return StepWork(phase=number, steps=phase.steps, length=phase.length, batch_size=phase.batch_size, flops=flops)


def _pace(config: AnyRunConfig, work: StepWork, topology: Topology, seconds: float, basis: str) -> Pace:
    hours = work.steps * seconds / 3600
    return Pace(
        basis=basis,
        hours=hours,
        chip_hours=hours * topology.chips,
        step_seconds=seconds,
        sequences_per_second=config.sequences(work.phase) / seconds,
        mfu=topology.seconds(work.flops) / seconds,
    )


def _total(phases: list[CompiledPhase]) -> dict[str, SliceTime]:
    total = {}
    for limits, work in (("at_best", "all phases if all limits overlap"), ("in_turn", "all phases if nothing does")):
        paces = [getattr(phase.time, limits) for phase in phases]
        hours, chip_hours = sum(pace.hours for pace in paces), sum(pace.chip_hours for pace in paces)
        total[limits] = SliceTime(work=work, hours=hours, chip_hours=chip_hours, basis=_COMPILED)
    return total


def _memory(compiled: jax.stages.Compiled) -> ChipMemory:
    analysis = compiled.memory_analysis()
    assert analysis is not None, "the TPU's compiler reports memory"
    return ChipMemory(
        arguments=analysis.argument_size_in_bytes,
        outputs=analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
        temporaries=analysis.temp_size_in_bytes,
        code=analysis.generated_code_size_in_bytes,
    )


def _in_words(phase: CompiledPhase) -> str:
    needed = f", {gib(phase.needed_bytes)} a chip" if phase.needed_bytes else ""
    fits = "fits" if phase.fits else "doesn't fit"
    mesh = " x ".join(f"{name} {size}" for name, size in phase.mesh.items())
    saving = f", remat {phase.remat}, accumulation {phase.accumulation}"
    return (
        f"{phase.length} tokens, batch {phase.batch_size:,}, {mesh}{saving}: {fits}{needed} "
        f"(compiled in {duration(phase.compile_seconds)})"
    )
