"""bert-jax pretrain or finetune ... --dry-run: prints what a training would do, and does nothing."""

import shutil
from pathlib import Path

import jax
from jax.sharding import Mesh
from rich.markup import escape
from rich.table import Table

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.config.training import TrainingConfig
from bert_jax.corpora.corpus import open_corpus
from bert_jax.finetuning import finetune
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.model.memory import Memory
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining import pretrain
from bert_jax.run.overwriting import as_if_absent, runs_to_delete
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.progress import output
from bert_jax.training.devices import device_memory, gigabytes

_CHECKPOINTS_BESIDE = 2
"""Checkpoints on the disk besides the newest ones: the best one, and one that is being written."""


def tell_pretraining(config: RunConfig, workdir: Place, overwrite: bool) -> None:
    """Prints what pretrain would do. Raises UsageError if it would refuse to start. Writes nothing."""
    run, mesh = RunDirectory(workdir), make_mesh(config.mesh)
    trainer = pretrain.check(config, as_if_absent(workdir) if overwrite else run, mesh)
    if overwrite:
        runs_to_delete(workdir, pretrain.read_by(config))
    table = _table("bert-jax pretrain would")
    done = _add_run(table, config, run, overwrite, mesh)
    _add_vocabulary(table, config, run, trainer.objective.model, overwrite)
    for length in dict.fromkeys(phase.length for phase in config.phases):
        _add_data(table, config, run, length, overwrite)
    memory = [pretrain.planned_memory(trainer, phase) for phase in config.phases]
    for number, phase in enumerate(config.phases):
        first = sum(before.steps for before in config.phases[:number])
        flops = trainer.flops(number) * phase.steps
        _add_phase(table, f"phase {number}", phase, max(0, done - first), f"{flops:.3e} FLOPs of matrix products")
    _add_memory(table, config.phases, memory, mesh)
    _add_disk(table, config, workdir, memory[0].state * _splits(mesh))
    output.print(table)


def tell_finetuning(config: FinetuneConfig, workdir: Place, seeds: int, overwrite: bool) -> None:
    """Prints what finetune would do. Raises UsageError if it would refuse to start. Reads the rows; writes nothing."""
    mesh = make_mesh(config.mesh)
    run = RunDirectory(workdir if seeds == 1 else workdir / f"seed-{config.seed}")
    plan = finetune.plan_finetuning(config, mesh, as_if_absent(workdir) if overwrite else run)
    if overwrite:
        runs_to_delete(workdir, finetune.read_by(config))
    table = _table("bert-jax finetune would")
    done = _add_run(table, plan.config, run, overwrite, mesh)
    if seeds > 1:
        table.add_row("seeds", f"{seeds:,} runs like this, one after the other")
    task = plan.config.task
    model, lengths = plan.started.config, ", ".join(map(str, task.padded_lengths))
    table.add_row("start from", f"{escape(config.init)}: {model.num_layers} layers of width {model.hidden_size:,}")
    sequences = f"{len(plan.learned.examples):,} sequences padded to {lengths}"
    table.add_row("training rows", f"{plan.learned.rows:,} of {escape(str(task.train))}, {sequences}")
    measured = f"{len(plan.measured.records):,} of {escape(str(task.dev))}" if plan.measured else "none: no measurement"
    table.add_row("dev rows", measured)
    if task.labels:
        table.add_row("labels", escape(", ".join(task.labels)))
    _add_phase(table, f"{task.epochs:g} epochs", plan.config.phases[0], done, "")
    memory = finetune.planned_memory(plan.config, mesh)
    _add_memory(table, plan.config.phases, [memory], mesh)
    _add_disk(table, plan.config, workdir, seeds * memory.state * _splits(mesh))
    output.print(table)


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column()
    return table


def _add_run(table: Table, config: TrainingConfig, run: RunDirectory, overwrite: bool, mesh: Mesh) -> int:
    """Adds whether the run would be started or continued; returns the steps that are done."""
    done = run.newest_step or 0
    if overwrite:
        deleted = f"the run there, at step {done:,}, would be deleted; " if run.config_file.exists() else ""
        table.add_row("run", f"{escape(str(run.path))}: {deleted}begin anew")
        done = 0
    elif run.under_way:
        run.check(config)
        on = "finished: nothing to do" if run.results(config.steps) else f"go on from step {done:,} of {config.steps:,}"
        table.add_row("run", f"{escape(str(run.path))}: {on}")
    else:
        table.add_row("run", f"{escape(str(run.path))}: a new one of {config.steps:,} steps")
    axes = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    kind = mesh.local_devices[0].device_kind
    table.add_row("devices", f"{mesh.size} x {kind}, as {axes}; {jax.process_count()} process(es)")
    return done


def _add_vocabulary(table: Table, config: RunConfig, run: RunDirectory, model: ModelConfig, overwrite: bool) -> None:
    given = config.vocabulary.file or config.init
    if run.under_way and not overwrite:
        how = f"there: {escape(str(run.tokenizer))}"
    elif given:
        how = f"read from {escape(given)}"
    else:
        how = f"{config.vocabulary.kind}, trained on the text if {escape(str(run.tokenizer))} doesn't hold it yet"
    table.add_row("vocabulary", f"{model.vocabulary_size:,} pieces, {how}")


def _add_data(table: Table, config: RunConfig, run: RunDirectory, length: int, overwrite: bool) -> None:
    found = None if overwrite else PreparedData.open(run.data(length))
    if found:
        size = gigabytes(sum(shard.size for shard in found.shards.values()))
        said = f"there: {sum(found.sources):,} training sequences, {found.held_out.instances:,} held out, {size}"
    else:
        corpus = open_corpus(config.data)
        sources = escape(" ".join(config.data.source))
        said = f"to be prepared from {sources}: {corpus.total:,.4g} {corpus.unit} as stored"
    table.add_row(f"data, length {length}", said)


def _add_phase(table: Table, name: str, phase: Phase, done: int, cost: str) -> None:
    left = max(0, phase.steps - done)
    steps = f"{phase.steps:,} steps" + (f" ({left:,} left)" if done else "")
    tokens = f"{phase.steps * phase.batch_size * phase.length:.3e} tokens at most"
    batch = f"{phase.batch_size:,} sequences of up to {phase.length:,} tokens"
    table.add_row(name, ", ".join(part for part in (f"{steps} of {batch}", tokens, cost) if part))


def _add_memory(table: Table, phases: tuple[Phase, ...], memory: list[Memory], mesh: Mesh) -> None:
    """Adds one row for each phase: the estimated memory and its parts."""
    there = device_memory(mesh.local_devices[0])
    for phase, each in zip(phases, memory):
        parts = ", ".join(f"{name} {gigabytes(size)}" for name, size in each._asdict().items())
        has = f" of {gigabytes(there)}" if there else ""
        said = f"about {gigabytes(each.total)}{has} a device by formula: {parts}"
        table.add_row(f"memory, length {phase.length}", said)


def _add_disk(table: Table, config: TrainingConfig, workdir: Place, state: int) -> None:
    most = (config.checkpoints.keep + _CHECKPOINTS_BESIDE) * state
    said = f"{gigabytes(state)} each, every {config.checkpoints.every:,} steps; {gigabytes(most)} at most"
    if not in_bucket(workdir):
        path = Path(workdir).absolute()
        free = shutil.disk_usage(next(place for place in (path, *path.parents) if place.exists())).free
        said += f"; {gigabytes(free)} are free" + (": too little" if free < most else "")
    table.add_row("checkpoints", said)


def _splits(mesh: Mesh) -> int:
    """The number of devices that share one copy of the state."""
    return mesh.shape["fsdp"] * mesh.shape["tensor"]
