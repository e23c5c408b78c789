"""Compiles the train step for TPUs that this machine lacks, and finds memory, collectives and the least time."""

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any, TypeVar

import jax

from bert_jax.model.sharding import abstract, batch_sharding, make_mesh
from bert_jax.planning.collectives import collectives
from bert_jax.planning.plan_record import FormulaPlan, Memory, Pace, PhasePlan, StepTime, work_of
from bert_jax.planning.program import Program
from bert_jax.planning.topology import Topology, topology_devices
from bert_jax.planning.traffic import traffic
from bert_jax.planning.work import (
    AnyRunConfig,
    AnyTrainer,
    fitted,
    objective_of,
    random_batch,
    sequences_of,
    trainer_of,
)
from bert_jax.system.errors import RunError, install_extra

Item = TypeVar("Item")
Result = TypeVar("Result")

_RECOMPUTED = {"none": 1, "dots": 1, "full": 4 / 3}
"""FLOPs with recomputation over those of the formula, of which the forward pass has a third; by remat."""

LEAST_EFFORT = {"exec_time_optimization_effort": -1.0}
"""Options for libtpu's fastest compilation: half the time, for a program with more memory traffic. BERT-base on v5e:4x4
moves 29 ms of bytes instead of 17 at 512 tokens, 14 instead of 10 at 128; its memory is within a tenth (libtpu
0.0.42)."""

_REFUSALS = (
    r"\(([\d.]+[KMGT]?)\) exceeds available HBM \(([\d.]+[KMGT]?)\)",
    r"Used ([\d.]+[KMGT]?) of ([\d.]+[KMGT]?) hbm",
    r"Requires ([\d.]+[KMGT]?), has ([\d.]+[KMGT]?) available",
)
"""Compiler messages with the memory that a program needs and the memory of a chip."""


class Planner:
    """Compiles the train step for one slice."""

    def __init__(self, topology: Topology, vocabulary_size: int, exact: bool):
        """`exact`: compile as a run does, else with LEAST_EFFORT. Raises RunError for a slice unknown to libtpu."""
        self.topology = topology
        self.exact = exact
        self.compilations = 0
        self.on_compiled: Callable[[PhasePlan], None] = lambda plan: None
        """Called with each plan."""
        self._one_at_a_time = threading.Lock()
        self._devices = topology_devices(topology)
        self._vocabulary_size = vocabulary_size

    def trainer(self, config: AnyRunConfig) -> AnyTrainer:
        """The run's trainer on the slice. Raises UsageError if mesh or batches don't fit the slice or the model."""
        mesh = make_mesh(config.mesh, self._devices)
        trainer = trainer_of(fitted(config, mesh), mesh, self._vocabulary_size)
        _ = trainer.state_shapes  # raises for sizes that can't be divided over the mesh
        return trainer

    def phase(self, config: AnyRunConfig, number: int) -> PhasePlan:
        """Compiles the step of phase `number`. Raises UsageError as `trainer` does, RunError where libtpu fails."""
        trainer = self.trainer(config)
        phase, flops = trainer.config.phases[number], trainer.flops(number)
        batch = random_batch(trainer.config, number, self._vocabulary_size)
        rows = batch_sharding(trainer.mesh)
        shapes = abstract(batch, jax.tree.map(lambda _: rows, batch))
        began = time.perf_counter()
        needed, memory, sent, step_time, moved = None, None, [], None, None
        try:
            step: Any = trainer.train_step(number)
            compiled = step.lower(trainer.state_shapes, shapes).compile(None if self.exact else LEAST_EFFORT)
        except jax.errors.JaxRuntimeError as error:
            needed = refusal(str(error))
        else:
            memory = _memory(trainer, compiled.memory_analysis())
            program = program_of(compiled)
            needed, sent, moved = memory.total, collectives(program), traffic(program)
            step_time = StepTime.of(
                phase,
                self.topology,
                sequences=sequences_of(trainer.config, number),
                flops=flops,
                computed=flops * _RECOMPUTED[config.execution.remat],
                moved=moved,
                sent=sum(each.sent for each in sent),
            )
        plan = PhasePlan(
            **work_of(number, phase, flops),
            mesh=dict(trainer.mesh.shape),
            remat=config.execution.remat,
            accumulation=config.execution.accumulation,
            compile_seconds=time.perf_counter() - began,
            memory=memory,
            needed_bytes=needed,
            available_bytes=round(self.topology.chip.memory),
            # The compiler may accept a program that needs more memory than a chip has.
            fits=memory is not None and memory.total <= self.topology.chip.memory,
            collectives=sent,
            traffic_bytes=moved,
            time=step_time,
        )
        with self._one_at_a_time:
            self.compilations += 1
            self.on_compiled(plan)
        return plan

    def phases(self, config: AnyRunConfig) -> list[PhasePlan]:
        """The plans of all phases, compiled in parallel: the compiler spends half its time on one core."""
        return in_threads(lambda number: self.phase(config, number), range(len(config.phases)))


def program_of(compiled: Any) -> Program:
    """The compiled program. Raises RunError if JAX can't read it, as with incompatible versions of JAX and libtpu."""
    try:
        return Program(compiled.as_text())
    except jax.errors.JaxRuntimeError as error:
        raise RunError(
            f"jax {jax.__version__} can't read what libtpu {version('libtpu')} compiled "
            f"({str(error).partition(chr(10))[0]}); install the pair that was tested: "
            f"{install_extra('plan')}"
        ) from None


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results of `work` for each item, computed by one thread for each core."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(work, items))


def formulas(config: AnyRunConfig, topology: Topology, vocabulary_size: int) -> list[FormulaPlan]:
    """FLOPs of each phase and their time at the peak of the chips."""
    objective = objective_of(config, vocabulary_size)
    plans = []
    for number, phase in enumerate(config.phases):
        flops = objective.flops(config.ids_shape(number))
        at_best = Pace.of(phase, flops, topology.seconds(flops), topology, sequences_of(config, number))
        plans.append(FormulaPlan(**work_of(number, phase, flops), at_best=at_best))
    return plans


def refusal(message: str) -> int | None:
    """Bytes that a refused program needs on a chip, from the compiler's message; None if the message doesn't say.

    Raises RunError if the compiler failed for another reason than memory.
    """
    if "RESOURCE_EXHAUSTED" not in message:
        raise RunError(f"the TPU's compiler failed: {message.splitlines()[0]}")
    for pattern in _REFUSALS:
        if match := re.search(pattern, message):
            number = match[1].rstrip("KMGT")
            return round(float(number) * 1024 ** " KMGT".index(match[1][len(number) :] or " "))
    return None


def _memory(trainer: AnyTrainer, analysis: Any) -> Memory:
    """`analysis`: XLA's memory analysis of the compiled step on one device."""
    state = trainer.state_shapes
    parameters, optimizer = _device_bytes(state.params), _device_bytes(state.optimizer)
    return Memory(
        parameters=parameters,
        optimizer=optimizer,
        other_arguments=analysis.argument_size_in_bytes - parameters - optimizer,
        outputs=analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
        temporaries=analysis.temp_size_in_bytes,
        code=analysis.generated_code_size_in_bytes,
    )


def _device_bytes(shapes: Any) -> int:
    """Bytes of sharded arrays on one device."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)
    )
