"""Measures the train step on this machine: its time and that of its parts, and the machine's own matrix rate."""

import resource
import statistics
import sys
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp

from bert_jax.model.encoder import blocks_at_once
from bert_jax.model.kernels.attention_forms import training_forms
from bert_jax.model.kernels.platform import compute_dtype
from bert_jax.model.sharding import batch_sharding
from bert_jax.products.bench.step_bench import BENCH_FORMAT, KIND, MatrixRate, StepBench, StepPart, Timing
from bert_jax.run.environment import Scalar, machine, versions
from bert_jax.training.batch import AnyBatch
from bert_jax.training.devices import SquareProduct, Work, chip_of, compiler_options, peak_flops, timed_in_turn
from bert_jax.training.trainer import Trainer

_CPU_SIZES = (1024, 2048)
"""Sizes of square products on CPUs: which of them is faster depends on the caches."""
_ACCELERATOR_SIZES = (8192,)
"""Sizes of square products elsewhere: large enough to keep all of a chip busy."""
_LEAST_ROUNDS = 5
"""Least number of batches that are drawn to measure the input."""


def bench(trainer: Trainer, seconds: float, batches: Iterator[AnyBatch] | None = None) -> StepBench:
    """Measures the step of the trainer's first phase for about `seconds`, and its parts as many times.

    `batches`: the training batches of a run; None for random sequences of full length.
    """
    flops, dtype = trainer.flops(0), compute_dtype(trainer.objective.model)
    input_rate = _input_rate(batches, seconds) if batches else None
    batch = next(batches) if batches else trainer.objective.random_batch(trainer.config.ids_shape(0))
    sizes = _CPU_SIZES if jax.default_backend() == "cpu" else _ACCELERATOR_SIZES
    products = {f"product of {size}": SquareProduct.of(size, dtype) for size in sizes}
    programs, compile_seconds = _compiled(trainer, batch)
    times = timed_in_turn({name: product.run for name, product in products.items()} | programs, seconds)
    rate = max(product.flops / min(times[name]) for name, product in products.items())
    # The CPU devices of a process share the cores of its machine, whose rate was measured.
    machines = jax.process_count() if jax.default_backend() == "cpu" else trainer.mesh.size
    forward = trainer.objective.forward_flops(trainer.config.ids_shape(0))
    parts = _parts(times, flops, forward, rate * machines)
    step, tokens = parts[-1].time.median, float(batch.tokens.length.sum())
    peak = peak_flops(jax.devices()[0])
    return StepBench(
        kind=KIND,
        format=BENCH_FORMAT,
        versions=versions(),
        machine=machine(trainer.mesh),
        settings=_settings(trainer) | {"sequences": "of a run" if batches else "random"},
        compile_seconds=compile_seconds,
        parts=parts,
        rates={"matrix": _matrix_rate(rate, dtype)},
        transfer=Timing.of(times["transfer"]),
        sequences_per_second=float((batch.weight > 0).sum()) / step,
        tokens_per_second=tokens / step,
        fill=tokens / batch.tokens.ids.size,
        model_flops_per_step=flops,
        model_flops_per_second=flops / step,
        share_of_matrix_rate=flops / step / (rate * machines),
        mfu=flops / step / (peak * trainer.mesh.size) if peak else None,
        peak_memory_bytes=peak_memory(),
        input_sequences_per_second=input_rate,
    )


def _compiled(trainer: Trainer, batch: AnyBatch) -> tuple[Work, float]:
    """The transfer of `batch`, the step on it and the step's parts; and the seconds that the step took to compile."""
    state, rows = trainer.initial_state(), batch_sharding(trainer.mesh)
    on_device = jax.device_put(batch, rows)
    options = compiler_options(trainer.mesh.devices.flat[0].platform)
    forward, gradients = (
        jax.jit(part, compiler_options=options).lower(state.params, on_device).compile() for part in trainer.parts(0)
    )
    began = time.perf_counter()
    step = trainer.train_step(0).lower(state, on_device).compile()
    seconds = time.perf_counter() - began

    def run_step() -> object:
        nonlocal state
        state, measured = step(state, on_device)
        return state.step, measured

    work: Work = {
        "transfer": lambda: jax.device_put(batch, rows),
        "forward": lambda: forward(state.params, on_device),
        "gradients": lambda: gradients(state.params, on_device),
        "step": run_step,
    }
    return work, seconds


def _input_rate(batches: Iterator[AnyBatch], seconds: float) -> float:
    """Sequences a second that `batches` yields while nothing else runs."""
    next(batches)  # starts the threads
    began, taken, sequences = time.perf_counter(), 0, 0
    while taken < _LEAST_ROUNDS or time.perf_counter() < began + seconds:
        sequences += int((next(batches).weight > 0).sum())
        taken += 1
    return sequences / (time.perf_counter() - began)


def _parts(times: dict[str, list[float]], flops: float, forward: float, rate: float) -> list[StepPart]:
    """Forward, backward, optimizer and step; `flops` of a step, those of its `forward` pass, `rate` of matrix products
    on all devices."""
    step = statistics.median(times["step"])
    rows = (
        ("forward", forward, times["forward"]),
        ("backward", flops - forward, _differences(times["gradients"], times["forward"])),
        ("optimizer", 0.0, _differences(times["step"], times["gradients"])),
        ("step", flops, times["step"]),
    )
    parts = []
    for name, part_flops, seconds in rows:
        timing = Timing.of(seconds)
        in_noise = timing.low <= 0
        parts.append(
            StepPart(
                name=name,
                flops=part_flops,
                time=timing,
                step_share=timing.median / step,
                matrix_share=None if in_noise else part_flops / timing.median / rate,
            )
        )
    return parts


def _differences(longer: list[float], shorter: list[float]) -> list[float]:
    return [a - b for a, b in zip(longer, shorter, strict=True)]


def _matrix_rate(measured: float, dtype: jnp.dtype) -> MatrixRate:
    """The matrix rate of one device: of known chips that of the data sheet, which is for bfloat16."""
    chip = chip_of(jax.devices()[0].device_kind)
    if chip and dtype == jnp.bfloat16:
        return MatrixRate(per_second=chip.flops, source="data sheet", measured=measured)
    return MatrixRate(per_second=measured, source="measured", measured=measured)


def peak_memory() -> int:
    """Peak bytes of the fullest device, or of this process if devices don't report it (CPU)."""
    counted = [device.memory_stats() or {} for device in jax.local_devices()]
    if all("peak_bytes_in_use" in stats for stats in counted):
        return max(stats["peak_bytes_in_use"] for stats in counted)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _settings(trainer: Trainer) -> dict[str, Scalar]:
    """Settings that the time of a step depends on, by name. Those that are chosen automatically have the chosen
    value."""
    model, config = trainer.objective.model, trainer.config
    phase, execution = config.phases[0], config.execution
    length, sequences = config.rows[0]
    whole, local = training_forms(execution.attention, model, length, sequences, trainer.mesh)
    attention = whole.name if local is whole else f"{whole.name}, local {local.name}"
    of_model = model.model_dump(exclude={"compute_dtype"}) | {
        "feedforward_size": model.inner_size,
        "character_filters": " ".join(map(str, model.character_filters)),
    }
    of_training: dict[str, Scalar] = {}
    if config.task:
        names = ("kind", "batch_size", "most_negatives")
        of_training = {f"task.{name}": getattr(config.task, name) for name in names}
        of_training |= {"layers_frozen": config.layers_frozen, "probe": config.probe}
    else:
        of_training = {f"objective.{name}": getattr(config.objective, name) for name in ("predict", "pair")}
    return {
        "batch_size": phase.batch_size,
        "length": length,
        "predictions": config.slots(length),
        **of_training,
        "compute_dtype": compute_dtype(model).name,
        **{f"model.{name}": value for name, value in of_model.items()},
        "optimizer.name": config.optimizer.name,
        **{f"mesh.{name}": size for name, size in trainer.mesh.shape.items()},
        "execution.accumulation": execution.accumulation,
        "execution.remat": execution.remat,
        "execution.unroll": blocks_at_once(execution, model.num_layers),
        "execution.attention": attention,
    }
