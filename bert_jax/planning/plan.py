"""The real train step compiled for TPUs that aren't there: memory, collectives, and what time they allow."""

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any, NamedTuple, TypeVar

import jax

from bert_jax.config.run import RunConfig
from bert_jax.model.size import train_flops
from bert_jax.planning.bench import synthetic_batch
from bert_jax.planning.collectives import Collective, collectives
from bert_jax.planning.program import Program
from bert_jax.planning.topology import Topology, topology_devices
from bert_jax.planning.traffic import memory_traffic
from bert_jax.pretraining.trainer import pretraining_trainer
from bert_jax.system.errors import RunError, install_extra
from bert_jax.training.sharding import abstract, batch_sharding, check_batch_size, make_mesh
from bert_jax.training.trainer import Trainer

Item = TypeVar("Item")
Result = TypeVar("Result")

_RECOMPUTED = {"none": 1, "dots": 1, "full": 4 / 3}
"""Products of a step over those of its formula, which takes one third for the forward pass."""

LEAST_EFFORT = {"exec_time_optimization_effort": -1.0}
"""libtpu's quickest compilation: a third of the time, for a program that moves and holds somewhat more. Base on v5e:4x4
takes 3.14 GiB for 2.82 at 128 tokens, 13.91 for 13.40 at 512 (libtpu 0.0.42)."""

_REFUSALS = (
    r"\(([\d.]+[KMGT]?)\) exceeds available HBM \(([\d.]+[KMGT]?)\)",
    r"Used ([\d.]+[KMGT]?) of ([\d.]+[KMGT]?) hbm",
    r"Requires ([\d.]+[KMGT]?), has ([\d.]+[KMGT]?) available",
)
"""How the compiler says what a program needs and what there is."""


class Memory(NamedTuple):
    """Bytes that a step takes on one chip, by the compiled program's own account; they add up to its total."""

    parameters: int
    optimizer: int
    """Its state."""
    other_arguments: int
    """The batch, counters, and what layouts pad."""
    outputs: int
    """Those that don't take the place of an argument."""
    temporaries: int
    """Gradients, activations and whatever else lives within the step."""
    code: int

    @property
    def total(self) -> int:
        """At the fullest."""
        return sum(self)


class StepTime(NamedTuple):
    """Seconds that a step can't be done in less, for each of three reasons. Nothing here was measured."""

    compute: float
    """Matrix products, recomputed ones too, at the chips' peak."""
    memory: float
    """What the program moves to and from memory, at its bandwidth."""
    links: float
    """What its collectives send, over all links of a chip at once; how long the first byte takes is not counted."""

    @property
    def at_best(self) -> float:
        """All three at the same time."""
        return max(self)

    @property
    def in_turn(self) -> float:
        """One after the other."""
        return sum(self)


class PhasePlan(NamedTuple):
    """What was found about the step of one phase."""

    phase: int
    steps: int
    length: int
    batch_size: int
    mesh: dict[str, int]
    remat: str
    accumulation: int
    flops: int
    """Of one step, by formula, over all chips; recomputation not counted."""
    compile_seconds: float
    needed_bytes: int | None
    """On a chip: the total, or what the compiler says where it refuses; None where it doesn't say."""
    fits: bool
    memory: Memory | None
    """None where it doesn't fit: such a program is not compiled to its end."""
    collectives: list[Collective]
    time: StepTime | None

    def hours(self, seconds: float) -> float:
        """Of the whole phase at so many seconds a step."""
        return self.steps * seconds / 3600

    def as_json(self, chips: int) -> dict[str, Any]:
        """For a JSON object."""
        known = self._asdict() | {"collectives": [each._asdict() for each in self.collectives]}
        if self.memory:
            known["memory"] = self.memory._asdict() | {"total": self.memory.total}
        if self.time:
            known["time"] = self.time._asdict() | {
                name: hours_json(self.hours(seconds), chips) | {"step_seconds": seconds}
                for name, seconds in (("at_best", self.time.at_best), ("in_turn", self.time.in_turn))
            }
        return known


def hours_json(hours: float, chips: int) -> dict[str, float]:
    """Hours on the clock, and of all chips together."""
    return {"hours": hours, "chip_hours": hours * chips}


class Planner:
    """Compiles for one slice."""

    def __init__(self, topology: Topology, vocabulary_size: int, exact: bool):
        """`exact`: compile as a run does, else with LEAST_EFFORT. Raises RunError for a slice unknown to libtpu."""
        self.topology = topology
        self.exact = exact
        self.compilations = 0
        self.on_compiled: Callable[[PhasePlan], None] = lambda plan: None
        """Told of each."""
        self._one_at_a_time = threading.Lock()
        self._devices = topology_devices(topology)
        self._vocabulary_size = vocabulary_size

    def trainer(self, config: RunConfig) -> Trainer:
        """The run's own, over the slice. Raises UsageError where mesh or batches don't fit the slice or the model."""
        mesh = make_mesh(config.mesh, self._devices)
        for phase in config.phases:
            check_batch_size(phase.batch_size, config.execution.accumulation, mesh)
        # Some piece stands for [MASK]: which one makes no difference.
        trainer = pretraining_trainer(config, mesh, self._vocabulary_size, mask_id=4)
        _ = trainer.state_shapes  # refuses what doesn't divide
        return trainer

    def phase(self, config: RunConfig, number: int) -> PhasePlan:
        """Compiles the step of phase `number`. Raises UsageError as `trainer` does, RunError where libtpu fails."""
        trainer, phase = self.trainer(config), config.phases[number]
        batch = synthetic_batch(phase.batch_size, phase.length, trainer.objective.model.vocabulary_size)
        rows = batch_sharding(trainer.mesh)
        shapes = abstract(batch, jax.tree.map(lambda _: rows, batch))
        began = time.perf_counter()
        needed, memory, sent, step_time = None, None, [], None
        try:
            lowered = trainer.train_step(number).lower(trainer.state_shapes, shapes)
            compiled = lowered.compile(None if self.exact else LEAST_EFFORT)
        except jax.errors.JaxRuntimeError as error:
            needed = refusal(str(error))
        else:
            memory = _memory(trainer, compiled.memory_analysis())
            program = program_of(compiled)
            needed, sent = memory.total, collectives(program)
            step_time = self._time(trainer, number, memory_traffic(program), sum(each.sent for each in sent))
        plan = PhasePlan(
            phase=number,
            steps=phase.steps,
            length=phase.length,
            batch_size=phase.batch_size,
            mesh=dict(trainer.mesh.shape),
            remat=config.execution.remat,
            accumulation=config.execution.accumulation,
            flops=trainer.flops(number),
            compile_seconds=time.perf_counter() - began,
            needed_bytes=needed,
            # The compiler may let pass what is more, by its own account, than a chip gives to a program.
            fits=memory is not None and memory.total <= self.topology.chip.memory,
            memory=memory,
            collectives=sent,
            time=step_time,
        )
        with self._one_at_a_time:
            self.compilations += 1
            self.on_compiled(plan)
        return plan

    def phases(self, config: RunConfig) -> list[PhasePlan]:
        """All phases, side by side: the compiler spends half its time on one processor."""
        return in_threads(lambda number: self.phase(config, number), range(len(config.phases)))

    def _time(self, trainer: Trainer, number: int, moved: int, sent: int) -> StepTime:
        chip = self.topology.chip
        flops = trainer.flops(number) * _RECOMPUTED[trainer.config.execution.remat]
        return StepTime(
            compute=flops / (chip.flops * self.topology.chips),
            memory=moved / chip.memory_bandwidth,
            links=sent / (chip.link_bandwidth * max(self.topology.links, 1)),
        )


def program_of(compiled: Any) -> Program:
    """What the compiler made. Raises RunError where JAX can't read it: it is then of another time than libtpu."""
    try:
        return Program(compiled.as_text())
    except jax.errors.JaxRuntimeError as error:
        raise RunError(
            f"jax {jax.__version__} can't read what libtpu {version('libtpu')} compiled "
            f"({str(error).partition(chr(10))[0]}); install the pair that was tested: "
            f"{install_extra('plan')}"
        ) from None


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What `work` makes of each item, as many at a time as there are processors."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(work, items))


def formulas(config: RunConfig, topology: Topology, vocabulary_size: int) -> list[dict[str, Any]]:
    """What can be said of each phase without a compiler: FLOPs, and the time that they take at the chips' peak."""
    model = config.model.replace(vocabulary_size=vocabulary_size)
    phases = []
    for number, phase in enumerate(config.phases):
        flops = phase.batch_size * train_flops(model, phase.length, config.objective.slots(phase.length))
        seconds = flops / (topology.chip.flops * topology.chips)
        at_best = {"step_seconds": seconds} | hours_json(phase.steps * seconds / 3600, topology.chips)
        phases.append({"phase": number, **phase.model_dump(), "flops": flops, "at_best": at_best})
    return phases


def refusal(message: str) -> int | None:
    """Bytes that a program needs on a chip, if the compiler refused it because it has fewer; None if it doesn't say.

    Raises RunError where it failed for another reason.
    """
    if "RESOURCE_EXHAUSTED" not in message:
        raise RunError(f"the TPU's compiler failed: {message.splitlines()[0]}")
    for pattern in _REFUSALS:
        if found := re.search(pattern, message):
            number, unit = re.fullmatch(r"([\d.]+)([KMGT]?)", found[1]).groups()
            return round(float(number) * 1024 ** " KMGT".index(unit or " "))
    return None


def _memory(trainer: Trainer, analysis: Any) -> Memory:
    """`analysis`: what XLA says of the compiled step, per device."""
    parameters, optimizer = (held(part) for part in (trainer.state_shapes.params, trainer.state_shapes.optimizer))
    return Memory(
        parameters=parameters,
        optimizer=optimizer,
        other_arguments=analysis.argument_size_in_bytes - parameters - optimizer,
        outputs=analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
        temporaries=analysis.temp_size_in_bytes,
        code=analysis.generated_code_size_in_bytes,
    )


def held(shapes: Any) -> int:
    """Bytes of arrays that one device holds, by their shardings."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)
    )
