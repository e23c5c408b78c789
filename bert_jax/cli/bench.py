"""bert-jax bench CONFIG.py: how fast the real train step is on this machine, and where the time goes."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table

from bert_jax.cli.arguments import ConfigArguments, parse_config
from bert_jax.config.run import RunConfig
from bert_jax.planning.bench import Bench, OperationCost, bench, operation_costs
from bert_jax.pretraining.trainer import planned_vocabulary_size, pretraining_trainer
from bert_jax.system.batch import Batch
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import UsageError
from bert_jax.system.progress import output, say
from bert_jax.training.devices import keep_compiled_programs
from bert_jax.training.sharding import check_batch_size, make_mesh
from bert_jax.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class BenchArguments(ConfigArguments):
    """Arguments."""

    batch_size: int | None = None
    """Sequences a step; those of the config's first phase where None."""
    length: int | None = None
    """Tokens a sequence; those of the config's first phase where None."""
    seconds: float = 10.0
    """How long each part is measured, but five times at least."""
    operations: bool = False
    """Measure what a step is made of as well, each operation by itself against its limit."""


def run(arguments: list[str]) -> None:
    """Parses, measures, prints tables and, last, one JSON object."""
    text = "Time the train step, on made-up sequences; with a run in place of CONFIG.py on its own."
    asked = parse_config(BenchArguments, "bench", text, arguments)
    of_a_run = place_of(arguments[0]).is_dir()
    if not 0 < asked.seconds < math.inf:
        raise UsageError(f"--seconds {asked.seconds} is no time to measure for; give a number above 0")
    first = asked.config.phases[0]
    size = first.batch_size if asked.batch_size is None else asked.batch_size
    phase = first.replace(batch_size=size, length=first.length if asked.length is None else asked.length)
    # Without an end: measuring takes as many steps as it likes, and reads on past a run's.
    config = asked.config.replace(phases=(phase.replace(steps=2**30 // phase.batch_size),), profile_steps=None)
    keep_compiled_programs()
    mesh = make_mesh(config.mesh)
    check_batch_size(phase.batch_size, config.execution.accumulation, mesh)
    if of_a_run:
        trainer, batches = _of_a_run(config, place_of(arguments[0]))
    else:
        # Some piece stands for [MASK]: which one makes no difference to the time.
        trainer, batches = pretraining_trainer(config, mesh, planned_vocabulary_size(config), mask_id=4), None
    say(f"Measuring steps of {phase.batch_size:,} sequences of {phase.length:,} tokens, {config.model.compute_dtype}")
    measured = bench(trainer, asked.seconds, batches)
    output.print(_step_table(measured))
    output.print(_parts_table(measured))
    result = measured.as_json()
    if asked.operations:
        costs, bandwidth = operation_costs(trainer, asked.seconds / 5)
        output.print(_operations_table(costs, bandwidth, measured.step.median))
        result |= {"memory_bytes_per_second": bandwidth, "operations": [cost._asdict() for cost in costs]}
    print(json.dumps(result))


def _of_a_run(config: RunConfig, path: Place) -> tuple[Trainer, Iterator[Batch]]:
    # Imported here: made-up sequences need neither TFDS nor Grain, so a bare accelerator machine will do for them.
    from bert_jax.pretraining.dataset import prepared_for
    from bert_jax.pretraining.pretrain import training_source
    from bert_jax.text.tokenizer import load_tokenizer
    from bert_jax.training.input import read_ahead
    from bert_jax.training.run_directory import RunDirectory

    run = RunDirectory(path)
    prepared = prepared_for(config, run, config.phases[0].length)
    vocabulary = load_tokenizer(run.tokenizer).vocabulary
    trainer = pretraining_trainer(config, make_mesh(config.mesh), len(vocabulary), vocabulary.mask_id)
    return trainer, read_ahead(training_source(trainer, 0, prepared))


def _step_table(measured: Bench) -> Table:
    step = measured.step
    table = Table(title=f"{measured.devices} x {measured.device}", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    table.add_row("step", _ms(step.median), f"median of {step.count}; 80% in {_ms(step.low)} to {_ms(step.high)}")
    table.add_row("sequences", f"{measured.sequences_per_second:,.4g} /s", f"{measured.batch_size:,} a step")
    table.add_row("tokens", f"{measured.tokens_per_second:,.0f} /s", "real ones, padding not counted")
    flops = f"{measured.model_flops_per_step / 1e9:,.1f} GFLOP a step, by formula"
    table.add_row("model", _rate(measured.model_flops_per_second), flops)
    table.add_row("matrix products", _rate(measured.matrix_flops_per_second), "large square ones, best of several")
    table.add_row("share of that", f"{measured.share_of_matrix_rate:.1%}", "")
    if measured.mfu is not None:
        table.add_row("MFU", f"{measured.mfu:.1%}", "of the peak in the maker's data sheet")
    table.add_row("compilation", f"{measured.compile_seconds:,.1f} s", "little where the program is kept from before")
    table.add_row("memory", f"{measured.peak_memory_bytes / 1e9:,.2f} GB", "at the fullest")
    if measured.input_sequences_per_second:
        table.add_row("input alone", f"{measured.input_sequences_per_second:,.0f} sequences/s", "read and assembled")
    return table


def _parts_table(measured: Bench) -> Table:
    table = Table(title="Where the time of a step goes", title_justify="left")
    table.add_column("part")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    for name, seconds in measured.parts.items():
        # The step takes a batch that is on the device already.
        share = "beside it" if name == "input" else f"{seconds / measured.step.median:.1%}"
        table.add_row(name, _ms(seconds), share)
    return table


def _operations_table(costs: list[OperationCost], bandwidth: float, step: float) -> Table:
    title = f"Operations by themselves, forward and backward; memory {bandwidth / 1e9:,.1f} GB/s"
    table = Table(title=title, title_justify="left")
    table.add_column("operation")
    for column in ("a step", "each", "its limit", "of its limit", "of the step"):
        table.add_column(column, justify="right")
    for cost in costs:
        reached, share = cost.limit_seconds / cost.seconds, cost.count * cost.seconds / step
        table.add_row(
            cost.name,
            f"{cost.count} x",
            _ms(cost.seconds),
            _ms(cost.limit_seconds),
            f"{reached:.0%}",
            f"{share:.1%}",
        )
    return table


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"


def _rate(flops: float) -> str:
    return f"{flops / 1e12:,.1f} TFLOP/s" if flops > 1e13 else f"{flops / 1e9:,.1f} GFLOP/s"
