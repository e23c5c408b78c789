"""What a training would do: its data, steps, memory and disk, found before anything is written."""

import math
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import jax
from jax.sharding import Mesh

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.config.training import TrainingConfig
from bert_jax.config.wording import counted
from bert_jax.finetuning import finetune
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.model.linear import compute_dtype
from bert_jax.model.memory import Memory
from bert_jax.model.sharding import make_mesh, num_shards
from bert_jax.pretraining import pretrain
from bert_jax.pretraining.dataset import is_outdated
from bert_jax.records.corpus import open_corpus
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.reading import Reading
from bert_jax.training.devices import device_memory, gigabytes

_CHECKPOINTS_BESIDE = 2
"""Checkpoints on the disk besides the newest ones: the best one, and one that is being written."""

Facts = Iterator[tuple[str, str]]
"""Facts about a training in words, each with its name."""


def planned_pretraining(config: RunConfig, workdir: Place) -> Facts:
    """Yields what `bert-jax pretrain` would do in `workdir`.

    Writes nothing. Raises UsageError if the training would refuse to start.
    """
    run, mesh = RunDirectory(workdir), make_mesh(config.mesh)
    plan = pretrain.plan_pretraining(config, run)
    trainer, readings = plan.trainer, plan.inputs.readings
    yield from _of_run(config, run, mesh)
    yield "vocabulary", _vocabulary(config, run, trainer.objective.model.vocabulary_size)
    for length in dict.fromkeys(phase.length for phase in config.phases):
        yield f"data, length {length}", _data(config, run, length)
    if not all(PreparedData.open(run.data(phase.length)) for phase in config.phases):
        yield from _sources(config)
    yield from read_as(readings)
    memories = [trainer.objective.memory(phase, mesh) for phase in config.phases]
    done = run.newest_step or 0
    for number, phase in enumerate(config.phases):
        flops = f", {trainer.flops(number) * phase.steps:.3e} FLOPs of matrix products"
        done_here = max(0, done - config.steps_of(number).start)
        yield f"phase {number}", _steps(phase, done_here, config.data.packed) + flops
    steps = zip(config.phases, memories, strict=True)
    yield from dict.fromkeys((f"memory, length {phase.length}", _memory(memory, mesh)) for phase, memory in steps)
    yield "checkpoints", _checkpoints(config, workdir, memories[0], mesh)


def read_as(readings: Iterable[Reading]) -> Facts:
    """Yields what foreign input is taken for, and what is odd about it."""
    for reading in readings:
        yield from reading.rows()
        yield from (("odd", remark) for remark in reading.remarks)


def planned_finetuning(config: FinetuneConfig, workdir: Place, seeds: int) -> Facts:
    """Yields what `bert-jax finetune` would do in `workdir`, like `planned_pretraining`; reads the rows of the task."""
    mesh = make_mesh(config.mesh)
    run = RunDirectory(workdir if seeds == 1 else workdir / f"seed-{config.seed}")
    plan = finetune.plan_finetuning(config, run)
    task, model, phase = plan.config.task, plan.started.config, plan.config.phases[0]
    yield from _of_run(plan.config, run, mesh)
    if seeds > 1:
        yield "seeds", f"{seeds:,} runs like this, one after the other"
    yield "start from", f"{config.init}: {counted(model.num_layers, 'layers')} of width {model.hidden_size:,}"
    yield from read_as(plan.started.readings)
    padded = f"{len(plan.learned.examples):,} sequences padded to {', '.join(map(str, task.padded_lengths or ()))}"
    if packed := plan.batches.shape.texts > 1:
        padded = f"{plan.batches.texts:,.0f} texts a step"
    yield "training rows", f"{plan.learned.rows:,} of {task.train or task.source}, {padded}"
    dev = task.dev or "the same corpus"
    yield "dev rows", f"{len(plan.measured.records):,} of {dev}" if plan.measured else "none: no measurement"
    yield from read_as(plan.readings)
    steps = _steps(phase, run.newest_step or 0, packed=False)
    if packed:
        steps = (
            f"{counted(phase.steps, 'steps')} of {task.batch_size:,} pairs, in at most {phase.batch_size:,} rows of "
            f"{phase.length:,} tokens that several texts share"
        )
    yield counted(task.epochs, "epochs"), steps
    memory = finetune.planned_memory(plan.config, mesh)
    yield f"memory, length {phase.length}", _memory(memory, mesh)
    yield "checkpoints", _checkpoints(plan.config, workdir, memory, mesh, seeds)


def _of_run(config: TrainingConfig, run: RunDirectory, mesh: Mesh) -> Facts:
    """How the run would begin and on which devices. Raises UsageError if the run that is there has other settings."""
    newest = run.newest_step or 0
    if not run.under_way:
        beginning = f"a new one of {counted(config.steps, 'steps')}"
    else:
        run.check(config)
        finished = run.results(config.steps)
        beginning = "finished: nothing to do" if finished else f"go on from step {newest:,} of {config.steps:,}"
    yield "run", f"{run.path}: {beginning}"
    axes = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    devices = f"{math.prod(mesh.shape.values())} x {mesh.local_devices[0].device_kind}, as {axes}"
    yield "devices", f"{devices}; processes: {jax.process_count()}; {compute_dtype(config.model).name}"


def _vocabulary(config: RunConfig, run: RunDirectory, pieces: int | None) -> str:
    if run.under_way:
        source = f"there: {run.tokenizer}"
    elif origin := config.vocabulary.file or config.init:
        source = f"read from {origin}"
    else:
        source = f"{config.vocabulary.kind}, trained on the text if {run.tokenizer} doesn't hold it yet"
    return f"{pieces:,} pieces, {source}"


def _data(config: RunConfig, run: RunDirectory, length: int) -> str:
    prepared = PreparedData.open(run.data(length))
    outdated = False
    if prepared and not run.under_way and run.tokenizer.exists():
        # As far as it is known without reading text that was written since, or making a tokenizer that is gone.
        outdated = is_outdated(prepared, config, run, lambda: prepared.text or "")
    if prepared and not outdated:
        kind = "packed training rows" if config.data.packed else "training sequences"
        size = gigabytes(sum(shard.size for shard in prepared.shards.values()))
        return f"there: {sum(prepared.sources):,} {kind}, {prepared.held_out.rows:,} sequences held out, {size}"
    corpus = open_corpus(config.data)
    replaced = "; what is there is of other settings or text and is deleted" if outdated else ""
    sources = " ".join(config.data.source)
    size = "" if corpus.unit == "%" else f": {corpus.total:,.4g} {corpus.unit}"
    return f"to be prepared from {sources}{size}{replaced}"


def _sources(config: RunConfig) -> Facts:
    """The size of each of several sources, and its share in each phase.

    Without weights, the shares are estimated from the sizes, and left out if these have no unit in common: those of the
    training follow from the numbers of sequences, which are known after preparation.
    """
    sources = [part.source for part in open_corpus(config.data).parts]
    if len(sources) == 1:
        return
    sizes = [source.total for source in sources]
    known = config.data.weights or len({source.unit for source in sources}) == 1
    shares = [config.shares(phase, sizes) or config.data.shares(sizes) for phase in range(len(config.phases)) if known]
    estimated = "" if config.data.weights else ", estimated from the sizes"
    yield "sources", "size" + (f", and share of the sequences in each phase{estimated}" if known else "")
    for place, source in enumerate(sources):
        of_phases = ", ".join(f"{of_phase[place]:.1%}" for of_phase in shares)
        size = f"{float(f'{source.total:.3g}'):,.15g} {source.unit}"
        yield f"{config.data.source[place]} ({config.data.languages[place]})", f"{size}; {of_phases}".removesuffix("; ")


def _steps(phase: Phase, done: int, packed: bool) -> str:
    left = f" ({max(0, phase.steps - done):,} left)" if done else ""
    tokens = phase.steps * phase.batch_size * phase.length
    return f"{counted(phase.steps, 'steps')}{left} of {phase.batch(packed)}, {tokens:.3e} tokens at most"


def _memory(memory: Memory, mesh: Mesh) -> str:
    """The memory of a step on one device and its parts."""
    there = device_memory(mesh.local_devices[0])
    of = f" of {gigabytes(there)}" if there else ""
    named = ", ".join(f"{name} {gigabytes(size)}" for name, size in memory._asdict().items())
    return f"about {gigabytes(memory.total)}{of} a device by formula: {named}"


def _checkpoints(config: TrainingConfig, workdir: Place, memory: Memory, mesh: Mesh, runs: int = 1) -> str:
    """Size of the checkpoints of all runs, and the free space on the disk, which isn't known of a bucket."""
    size = runs * memory.state * num_shards(mesh, ("fsdp", "tensor"))
    most = (config.checkpoints.keep + _CHECKPOINTS_BESIDE) * size
    words = f"{gigabytes(size)} each, every {config.checkpoints.every:,} steps; {gigabytes(most)} at most"
    if in_bucket(workdir):
        return words
    path = Path(workdir).absolute()
    free = shutil.disk_usage(next(place for place in (path, *path.parents) if place.exists())).free
    return f"{words}; {gigabytes(free)} are free" + (": too little" if free < most else "")
