"""Measures the train step on this machine: its time and that of its parts, each beside the limit of the hardware."""

import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

from bert_jax.model.linear import compute_dtype
from bert_jax.model.sharding import batch_sharding
from bert_jax.model.size import FORWARD_SHARE
from bert_jax.planning.bench_record import FORMAT, KIND, Bench, Part, Timing, settings
from bert_jax.planning.program import Program
from bert_jax.planning.rates import RateProbes, Rates
from bert_jax.planning.traffic import traffic
from bert_jax.planning.work import AnyTrainer, random_batch
from bert_jax.run.environment import machine, versions
from bert_jax.training.batch import AnyBatch
from bert_jax.training.devices import peak_flops

_WARM_ROUNDS = 2
_LEAST_ROUNDS = 5


def bench(trainer: AnyTrainer, seconds: float, batches: Iterator[AnyBatch] | None = None) -> Bench:
    """Measures the step of the trainer's first phase for about `seconds`, and its parts as many times.

    `batches`: the training batches of a run; None for random sequences of full length.
    """
    model, flops = trainer.objective.model, trainer.flops(0)
    input_rate = _input_rate(batches, seconds) if batches else None
    batch = next(batches) if batches else random_batch(trainer.config, 0, model.vocabulary_size or 1)
    probes, programs = RateProbes(compute_dtype(model)), _Programs(trainer, batch)
    times = _timed_in_turn(probes.work | programs.work, seconds)
    rates = probes.rates(times)
    # How many times the rates of one device are there: the CPU devices of a process share its machine's cores.
    machines = jax.process_count() if jax.default_backend() == "cpu" else trainer.mesh.size
    parts = _parts(times, flops, programs.bytes, rates, trainer.mesh.size, machines)
    step = parts[-1].time.median
    peak = peak_flops(jax.devices()[0])
    return Bench(
        kind=KIND,
        format=FORMAT,
        versions=versions(),
        machine=machine(trainer.mesh),
        settings=settings(trainer) | {"sequences": "of a run" if batches else "random"},
        compile_seconds=programs.compile_seconds,
        parts=parts,
        rates=rates,
        transfer=Timing.of(times["transfer"]),
        sequences_per_second=float((batch.weight > 0).sum()) / step,
        tokens_per_second=float(batch.tokens.length.sum()) / step,
        fill=float(batch.tokens.length.sum()) / batch.tokens.ids.size,
        model_flops_per_step=flops,
        model_flops_per_second=flops / step,
        share_of_matrix_rate=flops / step / (rates.matrix.measured * machines),
        mfu=flops / step / (peak * trainer.mesh.size) if peak else None,
        peak_memory_bytes=peak_memory(),
        input_sequences_per_second=input_rate,
    )


class _Programs:
    """The compiled step and its parts, on a batch."""

    def __init__(self, trainer: AnyTrainer, batch: AnyBatch):
        self._rows, self._batch = batch_sharding(trainer.mesh), batch
        self._state, self._on_device = trainer.initial_state(), jax.device_put(batch, self._rows)
        self._forward, self._gradients = (
            jax.jit(part).lower(self._state.params, self._on_device).compile() for part in trainer.parts(0)
        )
        began = time.perf_counter()
        step: Any = trainer.train_step(0)
        self._step = step.lower(self._state, self._on_device).compile()
        self.compile_seconds = time.perf_counter() - began

    @property
    def work(self) -> dict[str, Callable[[], Any]]:
        """What is to be timed, by name."""
        return {
            "transfer": lambda: jax.device_put(self._batch, self._rows),
            "forward": lambda: self._forward(self._state.params, self._on_device),
            "gradients": lambda: self._gradients(self._state.params, self._on_device),
            "step": self._run_step,
        }

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes that each program moves to and from one device's memory, by name.

        By the house's count: the compiler's own (`cost_analysis`) has a loop's body once, however often it runs.
        """
        programs = {"forward": self._forward, "gradients": self._gradients, "step": self._step}
        return {name: traffic(Program(compiled.as_text())) for name, compiled in programs.items()}

    def _run_step(self) -> Any:
        self._state, measured = self._step(self._state, self._on_device)
        return self._state.step, measured


def _parts(
    times: dict[str, list[float]], flops: float, moved: dict[str, int], rates: Rates, devices: int, machines: int
) -> list[Part]:
    """Forward, backward, optimizer and step; `flops` of a step, `moved` bytes of each program on one device."""
    whole = {name: size * devices for name, size in moved.items()}
    of_optimizer = max(whole["step"] - whole["gradients"], 0)
    step = statistics.median(times["step"])
    rows = (
        ("forward", flops * FORWARD_SHARE, whole["forward"], times["forward"]),
        (
            "backward",
            flops * (1 - FORWARD_SHARE),
            whole["gradients"] - whole["forward"],
            _differences(times["gradients"], times["forward"]),
        ),
        ("optimizer", 0.0, of_optimizer, _differences(times["step"], times["gradients"])),
        ("step", flops, whole["step"], times["step"]),
    )
    return [_part(*row, rates, step, machines) for row in rows]


def _part(
    name: str,
    flops: float,
    moved: float,
    seconds: list[float],
    rates: Rates,
    step: float,
    machines: int,
) -> Part:
    """Work that a step of `step` seconds does on so many `machines`, in each round in one of `seconds`."""
    time, limit = Timing.of(seconds), rates.limit(flops / machines, moved / machines)
    return Part(name=name, flops=flops, bytes=moved, limit=limit, time=time, step_share=time.median / step)


def _differences(longer: list[float], shorter: list[float]) -> list[float]:
    return [a - b for a, b in zip(longer, shorter, strict=True)]


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
    number = -_WARM_ROUNDS
    while True:
        for name, do in work.items():
            began = time.perf_counter()
            jax.block_until_ready(do())
            if number >= 0:
                times[name].append(time.perf_counter() - began)
        enough = sum(times[last]) >= seconds or sum(map(sum, times.values())) >= seconds * len(work)
        number += 1
        if number >= _LEAST_ROUNDS and enough:
            return times


def _input_rate(batches: Iterator[AnyBatch], seconds: float) -> float:
    """Sequences a second that `batches` yields when nothing else is done."""
    next(batches)  # starts the threads
    began, taken, sequences = time.perf_counter(), 0, 0
    while taken < _LEAST_ROUNDS or time.perf_counter() < began + seconds:
        sequences += int((next(batches).weight > 0).sum())
        taken += 1
    return sequences / (time.perf_counter() - began)
