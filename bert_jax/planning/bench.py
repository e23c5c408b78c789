"""Measures the train step on this machine: its time, the time of its parts, and its share of the peak rate."""

import itertools
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from bert_jax.model.linear import compute_dtype
from bert_jax.model.sharding import batch_sharding
from bert_jax.planning.operations import copy_bandwidth, operations
from bert_jax.training.batch import Batch, synthetic_batch
from bert_jax.training.devices import peak_flops
from bert_jax.training.trainer import Trainer

_WARM_ROUNDS = 2
_LEAST_ROUNDS = 5


class Timing(NamedTuple):
    """Seconds of repeated measurements of one thing."""

    median: float
    low: float
    """The 10th percentile."""
    high: float
    """The 90th percentile."""
    count: int

    @classmethod
    def of(cls, seconds: list[float]) -> "Timing":
        """Median and deciles of at least two measurements."""
        deciles = statistics.quantiles(seconds, n=10, method="inclusive")
        return cls(statistics.median(seconds), deciles[0], deciles[-1], len(seconds))


class Bench(NamedTuple):
    """Results of `bench`. Rates are per second, over all devices."""

    device: str
    devices: int
    batch_size: int
    length: int
    compute_dtype: str
    compile_seconds: float
    """Seconds for tracing, lowering and compiling the step; few if it is in the compilation cache."""
    step: Timing
    parts: dict[str, float]
    """Seconds of input (transfer to the device), forward, backward and optimizer. Input and forward are measured by
    themselves, the others are differences."""
    sequences_per_second: float
    tokens_per_second: float
    model_flops_per_step: int
    model_flops_per_second: float
    matrix_flops_per_second: float
    """Best rate of large square matrix products (SquareProduct) in this process."""
    share_of_matrix_rate: float
    mfu: float | None
    """Model FLOPs utilisation: share of the peak in the data sheet; None if the peak is unknown."""
    peak_memory_bytes: int
    """Peak memory of the fullest device; on a CPU, of this process."""
    input_sequences_per_second: float | None
    """Rate of reading and batching the run's data; None for random sequences."""

    def as_json(self) -> dict[str, Any]:
        """The results as a JSON object."""
        return self._asdict() | {"step": self.step._asdict()}


def bench(trainer: Trainer, seconds: float, batches: Iterator[Batch] | None = None) -> Bench:
    """Measures the step of the trainer's first phase for about `seconds`, and its parts as many times.

    `batches`: the training batches of a run; None for random sequences of full length.
    """
    phase = trainer.config.phases[0]
    input_rate = _input_rate(batches, phase.batch_size, seconds) if batches else None
    batch = (
        next(batches)
        if batches
        else synthetic_batch(phase.batch_size, phase.length, trainer.objective.model.vocabulary_size)
    )
    product = SquareProduct()
    compile_seconds, times = _times(trainer, batch, product, seconds)
    step = Timing.of(times["step"])
    forward, gradients = (statistics.median(times[name]) for name in ("forward", "gradients"))
    parts = {
        "input": statistics.median(times["input"]),
        "forward": forward,
        "backward": gradients - forward,
        "optimizer": step.median - gradients,
    }
    rate = trainer.flops(0) / step.median
    matrix = product.flops / min(times["matrices"]) * trainer.mesh.size
    peak = peak_flops(jax.devices()[0])
    return Bench(
        device=jax.devices()[0].device_kind,
        devices=trainer.mesh.size,
        batch_size=phase.batch_size,
        length=phase.length,
        compute_dtype=compute_dtype(trainer.objective.model).name,
        compile_seconds=compile_seconds,
        step=step,
        parts=parts,
        sequences_per_second=phase.batch_size / step.median,
        tokens_per_second=float(batch.tokens.length.sum()) / step.median,
        model_flops_per_step=trainer.flops(0),
        model_flops_per_second=rate,
        matrix_flops_per_second=matrix,
        share_of_matrix_rate=rate / matrix,
        mfu=rate / (peak * trainer.mesh.size) if peak else None,
        peak_memory_bytes=peak_memory(),
        input_sequences_per_second=input_rate,
    )


class OperationCost(NamedTuple):
    """Time of one operation, forward and backward."""

    name: str
    count: int
    """How often a step runs it."""
    seconds: float
    """Median time of one run."""
    limit_seconds: float
    """Least time that the matrix rate and the memory bandwidth allow."""

    @property
    def share_of_limit(self) -> float:
        """1 where it takes no longer than the limit."""
        return self.limit_seconds / self.seconds

    def share_of_step(self, step: float) -> float:
        """The share of all its runs in a step of `step` seconds."""
        return self.count * self.seconds / step


def operation_costs(trainer: Trainer, seconds: float) -> tuple[list[OperationCost], float]:
    """Costs of the operations of the trainer's first phase, and the memory bandwidth in bytes a second.

    The operations are measured in turn until the last one has taken `seconds` in all.
    """
    product, found = SquareProduct(), operations(trainer)
    add, moved = copy_bandwidth()
    times = _timed_in_turn(
        {"matrices": product, "memory": add} | {operation.name: operation.run for operation in found}, seconds
    )
    flops_per_second, bytes_per_second = product.flops / min(times["matrices"]), moved / min(times["memory"])
    costs = [
        OperationCost(
            operation.name,
            operation.count,
            statistics.median(times[operation.name]),
            operation.limit(flops_per_second, bytes_per_second),
        )
        for operation in found
    ]
    return costs, bytes_per_second


def _times(
    trainer: Trainer, batch: Batch, product: "SquareProduct", seconds: float
) -> tuple[float, dict[str, list[float]]]:
    """Seconds for compiling the step, and the measured seconds of the step and its parts by name."""
    rows = batch_sharding(trainer.mesh)
    state, on_device = trainer.initial_state(), jax.device_put(batch, rows)
    forward, gradients = (jax.jit(part).lower(state.params, on_device).compile() for part in trainer.parts(0))
    began = time.perf_counter()
    step = trainer.train_step(0).lower(state, on_device).compile()
    compile_seconds = time.perf_counter() - began

    def run_step():
        nonlocal state
        state, measured = step(state, on_device)
        return state.step, measured

    # In turn, since the speed of a machine varies over time.
    work = {
        "matrices": product,
        "input": lambda: jax.device_put(batch, rows),
        "forward": lambda: forward(state.params, on_device),
        "gradients": lambda: gradients(state.params, on_device),
        "step": run_step,
    }
    return compile_seconds, _timed_in_turn(work, seconds)


class SquareProduct:
    """Product of two square matrices on one device: size 2048 in float32 on a CPU, 8192 in bfloat16 elsewhere."""

    def __init__(self):
        if jax.default_backend() == "cpu":
            self._size, dtype = 2048, jnp.float32
        else:
            self._size, dtype = 8192, jnp.bfloat16
        shape = (self._size, self._size)
        self._factors = [jax.random.normal(jax.random.key(number), shape, dtype) for number in range(2)]
        self._product = jax.jit(jnp.matmul)

    @property
    def flops(self) -> int:
        """FLOPs of one product."""
        return 2 * self._size**3

    def __call__(self) -> Array:
        return self._product(*self._factors)


def peak_memory() -> int:
    """Peak bytes of the fullest device, or of this process if devices don't report it (CPU)."""
    counted = [device.memory_stats() or {} for device in jax.local_devices()]
    if all("peak_bytes_in_use" in stats for stats in counted):
        return max(stats["peak_bytes_in_use"] for stats in counted)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _timed_in_turn(work: dict[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """Runs all of `work` in rounds, and returns the seconds of each run by name.

    Ends when the last item of `work` has taken `seconds` in all or, where that is much shorter than the others, all
    items so much on average; after _LEAST_ROUNDS at least.
    """
    times: dict[str, list[float]] = {name: [] for name in work}
    *_, last = work
    for number in itertools.count(-_WARM_ROUNDS):
        for name, do in work.items():
            began = time.perf_counter()
            jax.block_until_ready(do())
            if number >= 0:
                times[name].append(time.perf_counter() - began)
        enough = sum(times[last]) >= seconds or sum(map(sum, times.values())) >= seconds * len(work)
        if number + 1 >= _LEAST_ROUNDS and enough:
            return times


def _input_rate(batches: Iterator[Batch], batch_size: int, seconds: float) -> float:
    """Sequences a second that `batches` yields when nothing else is done."""
    next(batches)  # starts the threads
    began, taken = time.perf_counter(), 0
    while taken < _LEAST_ROUNDS or time.perf_counter() < began + seconds:
        next(batches)
        taken += 1
    return taken * batch_size / (time.perf_counter() - began)
