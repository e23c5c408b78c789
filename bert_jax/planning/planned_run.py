"""What a training would do: facts about a run, its data, steps, memory and disk, before anything is written."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
from jax.sharding import Mesh

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.config.training import TrainingConfig
from bert_jax.corpora.corpus import open_corpus
from bert_jax.finetuning import finetune
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.model.linear import compute_dtype
from bert_jax.model.memory import Memory
from bert_jax.model.sharding import make_mesh, parts
from bert_jax.pretraining import pretrain
from bert_jax.pretraining.dataset import is_outdated
from bert_jax.run.overwriting import as_if_absent, runs_to_delete
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import Place, in_bucket
from bert_jax.training.devices import device_memory

_CHECKPOINTS_BESIDE = 2
"""Checkpoints on the disk besides the newest ones: the best one, and one that is being written."""

Beginning = Literal["new", "continued", "finished", "anew", "deleted"]
"""How a run would begin: as a new one, from its newest checkpoint, not at all, or anew; "deleted" after the run that
is there is deleted."""


@dataclass(frozen=True)
class PlannedVocabulary:
    """The tokenizer of a pretraining."""

    pieces: int
    source: Literal["there", "given", "trained"]
    """Whether the run has it already, the settings name it, or it is trained on the text."""
    given: str | None
    """What the settings name."""
    kind: str
    directory: Place
    """Where the run has it, or will have it."""


@dataclass(frozen=True)
class StoredData:
    """Prepared sequences of one length that the run has already."""

    length: int
    training: int
    """Number of training sequences; of rows where these are packed."""
    held_out: int
    bytes: int
    packed: bool
    """Whether a training row holds several sequences."""


@dataclass(frozen=True)
class UnpreparedData:
    """Text that sequences of one length are to be prepared from."""

    length: int
    sources: tuple[str, ...]
    size: float
    """Size of the text as it is stored, in `unit`."""
    unit: str
    replaces: bool = False
    """Whether sequences of other settings or other text are there, which are deleted."""


@dataclass(frozen=True)
class PlannedTask:
    """The start and the rows of a fine-tuning."""

    runs: int
    """Number of runs, one for each seed."""
    init: str
    layers: int
    width: int
    train: str
    rows: int
    sequences: int
    """Sequences that the training rows give."""
    lengths: tuple[int, ...]
    """Lengths to which sequences are padded."""
    dev: str | None
    dev_rows: int
    labels: tuple[str, ...]
    epochs: float


@dataclass(frozen=True)
class PlannedPhase:
    """The steps of one phase, and the memory of one of them."""

    settings: Phase
    done: int
    """Steps of the phase that are done already."""
    flops: float | None
    """FLOPs of the matrix products in all steps of the phase; None if they aren't counted."""
    memory: Memory
    """Bytes on one device, by formula."""
    packed: bool = False
    """Whether a row holds several sequences."""

    @property
    def left(self) -> int:
        """Steps that are left."""
        return max(0, self.settings.steps - self.done)

    @property
    def most_tokens(self) -> int:
        """Tokens of all steps, if every sequence has the full length."""
        return self.settings.steps * self.settings.batch_size * self.settings.length


@dataclass(frozen=True)
class PlannedCheckpoints:
    """The checkpoints of a training, and the disk that they are written to."""

    every: int
    """Steps from one checkpoint to the next."""
    bytes: int
    """Size of one checkpoint."""
    most_bytes: int
    """Size of all that lie on the disk at once."""
    free_bytes: int | None
    """Free space on the disk; None for a bucket."""


@dataclass(frozen=True)
class PlannedRun:
    """What a training would do."""

    path: Place
    beginning: Beginning
    steps: int
    """Steps of the whole run."""
    newest_step: int
    """Step of the newest checkpoint that is there; 0 without one."""
    mesh: dict[str, int]
    """Size of each mesh axis."""
    device_kind: str
    compute_dtype: str
    """Type of the matrix products on these devices."""
    processes: int
    device_memory: int | None
    """Bytes that programs may use on one device; None if unknown."""
    phases: tuple[PlannedPhase, ...]
    checkpoints: PlannedCheckpoints
    vocabulary: PlannedVocabulary | None = None
    """Of a pretraining."""
    data: tuple[StoredData | UnpreparedData, ...] = ()
    """Of a pretraining: one for each length."""
    task: PlannedTask | None = None
    """Of a fine-tuning."""


def planned_run(config: RunConfig | FinetuneConfig, workdir: Place, overwrite: bool, seeds: int = 1) -> PlannedRun:
    """What pretrain or finetune would do in `workdir`; `seeds`: number of fine-tunings.

    Reads the rows of a task; writes nothing. Raises UsageError if the training would refuse to start.
    """
    if isinstance(config, FinetuneConfig):
        return _finetuning(config, workdir, overwrite, seeds)
    return _pretraining(config, workdir, overwrite)


def _pretraining(config: RunConfig, workdir: Place, overwrite: bool) -> PlannedRun:
    run, mesh = RunDirectory(workdir), make_mesh(config.mesh)
    trainer = pretrain.check(config, as_if_absent(workdir) if overwrite else run, mesh)
    if overwrite:
        runs_to_delete(workdir, pretrain.read_by(config))
    beginning = _beginning(config, run, overwrite)
    done, phases = _done(run, overwrite), []
    for number, phase in enumerate(config.phases):
        flops, memory = trainer.flops(number) * phase.steps, pretrain.planned_memory(trainer, phase)
        done_here = max(0, done - config.steps_of(number).start)
        phases.append(PlannedPhase(phase, done_here, flops, memory, config.data.packed))
    given, pieces = config.vocabulary.file or config.init, trainer.objective.model.vocabulary_size
    assert pieces is not None  # set by `check`
    return PlannedRun(
        **_of_both(config, run, mesh),
        beginning=beginning,
        vocabulary=PlannedVocabulary(
            pieces=pieces,
            source="there" if run.under_way and not overwrite else "given" if given else "trained",
            given=given,
            kind=config.vocabulary.kind,
            directory=run.tokenizer,
        ),
        data=tuple(
            _data(config, run, length, overwrite) for length in dict.fromkeys(phase.length for phase in config.phases)
        ),
        phases=tuple(phases),
        checkpoints=_checkpoints(config, workdir, phases[0].memory.state * parts(mesh, ("fsdp", "tensor"))),
    )


def _finetuning(config: FinetuneConfig, workdir: Place, overwrite: bool, seeds: int) -> PlannedRun:
    mesh = make_mesh(config.mesh)
    run = RunDirectory(workdir if seeds == 1 else workdir / f"seed-{config.seed}")
    plan = finetune.plan_finetuning(config, mesh, as_if_absent(workdir) if overwrite else run)
    if overwrite:
        runs_to_delete(workdir, finetune.read_by(config))
    task, model, memory = plan.config.task, plan.started.config, finetune.planned_memory(plan.config, mesh)
    return PlannedRun(
        **_of_both(plan.config, run, mesh),
        beginning=_beginning(plan.config, run, overwrite),
        task=PlannedTask(
            runs=seeds,
            init=str(config.init),
            layers=model.num_layers,
            width=model.hidden_size,
            train=str(task.train),
            rows=plan.learned.rows,
            sequences=len(plan.learned.examples),
            lengths=tuple(task.padded_lengths or ()),
            dev=task.dev if plan.measured else None,
            dev_rows=len(plan.measured.records) if plan.measured else 0,
            labels=tuple(task.labels or ()),
            epochs=task.epochs,
        ),
        phases=(PlannedPhase(plan.config.phases[0], _done(run, overwrite), None, memory),),
        checkpoints=_checkpoints(plan.config, workdir, seeds * memory.state * parts(mesh, ("fsdp", "tensor"))),
    )


def _of_both(config: TrainingConfig, run: RunDirectory, mesh: Mesh) -> dict:
    """The fields of PlannedRun that pretraining and fine-tuning have alike."""
    device = mesh.local_devices[0]
    return {
        "path": run.path,
        "steps": config.steps,
        "newest_step": run.newest_step or 0,
        "mesh": dict(mesh.shape),
        "device_kind": device.device_kind,
        "compute_dtype": compute_dtype(config.model).name,
        "processes": jax.process_count(),
        "device_memory": device_memory(device),
    }


def _beginning(config: TrainingConfig, run: RunDirectory, overwrite: bool) -> Beginning:
    """Raises UsageError if the run that is there has other settings."""
    if overwrite:
        return "deleted" if run.config_file.exists() else "anew"
    if not run.under_way:
        return "new"
    run.check(config)
    return "finished" if run.results(config.steps) else "continued"


def _done(run: RunDirectory, overwrite: bool) -> int:
    """Steps that won't be done again."""
    return 0 if overwrite else run.newest_step or 0


def _data(config: RunConfig, run: RunDirectory, length: int, overwrite: bool) -> StoredData | UnpreparedData:
    found = None if overwrite else PreparedData.open(run.data(length))
    outdated = found and not run.under_way and _is_outdated(found, config, run)
    if found and not outdated:
        size = sum(shard.size for shard in found.shards.values())
        return StoredData(length, sum(found.sources), found.held_out.rows, size, config.data.packed)
    corpus = open_corpus(config.data)
    return UnpreparedData(length, tuple(config.data.source), corpus.total, corpus.unit, bool(outdated))


def _is_outdated(found: PreparedData, config: RunConfig, run: RunDirectory) -> bool:
    """As far as it is known without reading text whose files were written since, or making a tokenizer that is gone."""
    return run.tokenizer.exists() and is_outdated(found, config, run, lambda: found.text or "")


def _checkpoints(config: TrainingConfig, workdir: Place, state: int) -> PlannedCheckpoints:
    """`state`: bytes of parameters and optimizer state over all devices."""
    free = None
    if not in_bucket(workdir):
        path = Path(workdir).absolute()
        free = shutil.disk_usage(next(place for place in (path, *path.parents) if place.exists())).free
    most = (config.checkpoints.keep + _CHECKPOINTS_BESIDE) * state
    return PlannedCheckpoints(config.checkpoints.every, state, most, free)
