"""Pretraining as a whole: from text to vocabulary, sequences and a trained model."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from bert_jax.config.operation import MeshConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.instances.chunk_worker import HELD_OUT, TRAIN
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.instances.store import InstanceSource
from bert_jax.interchange.export import obstacle
from bert_jax.model.attention import check_attention
from bert_jax.model.bert import Parameters
from bert_jax.model.embeddings import vocabulary_size
from bert_jax.model.linear import for_inference
from bert_jax.model.memory import Memory
from bert_jax.model.sharding import (
    batch_sharding,
    check_batch_size,
    local_rows,
    make_mesh,
    tree_shardings,
)
from bert_jax.pretraining.dataset import check_preparation, prepare_lengths, prepare_other, prepared_for
from bert_jax.pretraining.evaluation import HeldOut
from bert_jax.pretraining.initial import InitialModel
from bert_jax.pretraining.objective import PretrainingTrainer, planned_vocabulary_size, pretraining_trainer
from bert_jax.pretraining.vocabulary import make_tokenizer
from bert_jax.run.hosts import first_alone, is_first
from bert_jax.run.metrics import read_metrics
from bert_jax.run.run_config import read_pretraining_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.tracking import check_trackers
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.errors import UsageError, command_line
from bert_jax.system.progress import say
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.training.devices import check_room, keep_compiled_programs, phase_memory
from bert_jax.training.input import BatchSource, MixedOrder, ShuffledOrder
from bert_jax.training.learning_curve import write_learning_curve
from bert_jax.training.loop import train
from bert_jax.training.trainer import PhaseWork


def pretrain(config: RunConfig, run: RunDirectory) -> dict[str, Any]:
    """Runs or resumes pretraining; returns the results, which are also written to results.json.

    Raises UsageError, RunError or Interrupted; the same call then goes on where it stopped.
    """
    check_trackers(config.logging)
    keep_compiled_programs()
    mesh = make_mesh(config.mesh)
    check(config, run, mesh)
    with first_alone("prepare"):
        run.open(config)
        if results := run.results(config.steps):
            say(f"{run.path} is finished: {config.steps:,} steps")
            return results
        tokenizer = make_tokenizer(config, run)
        prepared = prepare_lengths(config, run)
    trainer = pretraining_trainer(config, mesh, len(tokenizer.vocabulary), tokenizer.vocabulary.mask_id)
    if reason := obstacle(trainer.objective.model, trainer.state_shapes.params, tokenizer.vocabulary):
        say(f"transformers can't read this model: {reason}")
    say(f"objective: {trainer.objective.description}")
    held_out = _held_out_of_phases(trainer, prepared)
    phases = [
        PretrainingPhase(run, trainer, number, prepared[phase.length], held_out[number])
        for number, phase in enumerate(config.phases)
    ]

    def initial() -> Parameters | None:
        model = InitialModel.open(config)
        return model and model.parameters(tokenizer, mesh)

    state, evaluations = train(trainer, run, phases, initial)
    step, data = int(state.step), prepared[config.phases[-1].length]
    results = _results(trainer, step, state.params, data, held_out[-1], evaluations.get(step))
    skipped_records = sum(line.get("skipped_records", 0) for line in read_metrics(run.metrics_file))
    results |= {"skipped_steps": int(state.skipped), "skipped_records": skipped_records}
    run.write_results(results)
    if is_first():
        title = f"pretraining, {results['steps']:,} steps"
        write_learning_curve(
            run.path / "learning_curve.png", read_metrics(run.metrics_file), results.get("metric"), title
        )
    return results


def check(config: RunConfig, run: RunDirectory, mesh: Mesh) -> PretrainingTrainer:
    """Checks data, sizes and settings before anything is written. Raises UsageError; warns if memory may not suffice.

    Returns the trainer for the vocabulary's size, which for a new vocabulary is the configured one.
    """
    for phase in config.phases:
        check_batch_size(phase.batch_size, config.execution.accumulation, mesh)
    check_attention(config.execution, config.model, config.rows, mesh)
    check_preparation(config, run)
    size = len(load_tokenizer(run.tokenizer).vocabulary) if run.under_way else planned_vocabulary_size(config)
    trainer = pretraining_trainer(config, mesh, size, mask_id=0)
    _ = trainer.state_shapes  # refuses what doesn't divide over the mesh
    for number, phase in enumerate(config.phases):
        check_room(planned_memory(trainer, phase), phase, mesh, f"--phases.{number}.batch-size")
    return trainer


def read_by(config: RunConfig) -> list[str | None]:
    """The paths of texts, vocabulary and model that a new run reads."""
    return [*config.data.source, config.vocabulary.file, config.init]


def planned_memory(trainer: PretrainingTrainer, phase: Phase) -> Memory:
    """Memory of a step of `phase` on one device, by formula."""
    config, model = trainer.config, trainer.objective.model
    predictions, sequences = config.slots(phase.length), config.data.sequences_a_row(phase.length)
    return phase_memory(config, model, trainer.mesh, phase, predictions=predictions, sequences=sequences)


def evaluate_run(
    run: RunDirectory,
    source: str | None = None,
    language: str | None = None,
    step: int | None = None,
    average: int | None = None,
    words: str | None = None,
    dtype: str | None = None,
) -> dict[str, Any]:
    """Measures the newest checkpoint of `run`: what `pretrain` returns at its end. Changes nothing in the run.

    On the held-out documents, or on all documents of `source` (as `data.source` names it), prepared for the time
    being as the run's were, at the length of the last phase; `language` is that of `source`, the run's first where
    None. `step` and `average` choose other parameters (see `TrainedModel.load`); the steps of an average are in the
    result as `averaged_steps`. `words` is the function that the run's `data.words` names, given again: a function that
    only a file of the run names isn't imported, and text of `source` can't be prepared without it. `dtype` is the type
    of the matrix products (see `for_inference`).

    Raises UsageError where the run has no checkpoint, no such step or no data, or `source` too little.
    """
    keep_compiled_programs()
    config = read_pretraining_config(run.path)
    if words is not None and words != config.data.words:
        raise UsageError(f"data.words={words}, and {run.path} was prepared with {config.data.words}; give that")
    data = config.data.replace(words=words or config.data.words)
    config = config.replace(data=data, model=for_inference(config.model, dtype))
    tokenizer = load_tokenizer(run.tokenizer)
    # Whatever devices there are here: the run may come from another machine.
    trainer = pretraining_trainer(
        config, make_mesh(MeshConfig()), len(tokenizer.vocabulary), tokenizer.vocabulary.mask_id
    )
    trained, params = TrainedModel.load(run.path, lambda shapes: tree_shardings(shapes, trainer.mesh), step, average)
    if trained.tokenizer.vocabulary.pieces != tokenizer.vocabulary.pieces:
        raise UsageError(f"{run.tokenizer} is another tokenizer than its model was trained with; put that back")
    if "masked_lm" not in trained.shapes and "generator" not in trained.shapes:
        raise UsageError(f"{run.path} is an encoder without masked-language head; there is nothing to measure")
    length = config.phases[-1].length
    phase = config.phase_of(trained.step)  # its rotations, at the length of the last
    sequences: HeldOut | None
    with contextlib.ExitStack() as stack:
        if source:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            prepared = prepare_other(config, run, length, source, language, folder)
            sequences = HeldOut(trainer, phase, prepared, TRAIN, max_sequences=None)
        else:
            prepared = prepared_for(config, run, length)
            sequences = held_out_sequences(trainer, phase, prepared)
        results = _results(trainer, trained.step, params, prepared, sequences)
        results |= {"averaged_steps": list(trained.steps)} if average else {}
        # The vocabulary was made for the run's own text, and another may be one that it can't read.
        return results | ({"unknown_share": prepared.train.unknown_share} if source else {})


def _results(
    trainer: PretrainingTrainer,
    step: int,
    params: Parameters,
    prepared: PreparedData,
    sequences: HeldOut | None,
    measured: dict[str, float] | None = None,
) -> dict[str, Any]:
    """The content of results.json: measurements on `sequences` of `prepared`, and those of the baseline.

    `measured`: the measurements, if an evaluation has returned them already.
    """
    results: dict[str, Any] = {"task": "pretraining", "steps": step, "seeds": [trainer.config.seed]}
    if sequences:
        measured = measured or sequences.evaluate(params)
        assert measured is not None  # nothing stops this evaluation
        judged = trainer.objective.main_question
        results |= {"metric": judged.accuracy, "score": measured[judged.accuracy], **measured}
        results["baseline"] = sequences.baseline(prepared.piece_counts, measured)
        results["beats_baseline"] = measured[judged.loss] < results["baseline"][judged.loss]
        results["held_out_sequences"] = sequences.sequences
    return results


def _held_out_of_phases(trainer: PretrainingTrainer, prepared: dict[int, PreparedData]) -> list[HeldOut | None]:
    """The held-out sequences of each phase. Phases of the same length and objective share theirs."""
    by_kind: dict[Any, HeldOut | None] = {}
    held_out = []
    for number, phase in enumerate(trainer.config.phases):
        kind = phase.length, trainer.objective.in_phase(number).model
        if kind not in by_kind:
            by_kind[kind] = held_out_sequences(trainer, number, prepared[phase.length])
        held_out.append(by_kind[kind])
    return held_out


def held_out_sequences(trainer: PretrainingTrainer, phase: int, data: PreparedData) -> HeldOut | None:
    """The held-out sequences of one prepared set, as phase number `phase` is measured; None where there are none."""
    held_out = HeldOut(trainer, phase, data, HELD_OUT, trainer.config.evaluation.max_sequences)
    if not held_out.sequences:
        say("no held-out documents: nothing will be evaluated; raise --data.held-out or give more text")
        return None
    return held_out


def training_source(trainer: PretrainingTrainer, number: int, prepared: PreparedData) -> BatchSource:
    """The batches of phase `number`, by step."""
    config, phase = trainer.config, trainer.config.phases[number]
    instances = InstanceSource(prepared.directory, TRAIN, config.input.damaged_records)
    return BatchSource(
        instances,
        _training_order(config, number, prepared),
        batch_size=phase.batch_size,
        length=phase.length,
        vocabulary_size=vocabulary_size(trainer.objective.model),
        num_batches=phase.steps,
        rows=local_rows(batch_sharding(trainer.mesh), phase.batch_size),
        sequences_a_row=config.data.sequences_a_row(phase.length),
    )


def _training_order(config: RunConfig, number: int, prepared: PreparedData) -> ShuffledOrder | MixedOrder:
    if config.data.shares and len(prepared.sources) > 1:
        return MixedOrder(prepared.sources, config.data.shares, config.seed, number)
    return ShuffledOrder(sum(prepared.sources), config.seed, number)


class PretrainingPhase(PhaseWork):
    """One phase of pretraining on a prepared data set."""

    def __init__(
        self,
        run: RunDirectory,
        trainer: PretrainingTrainer,
        number: int,
        prepared: PreparedData,
        held_out: HeldOut | None,
    ):
        super().__init__(trainer, number, training_source(trainer, number, prepared), held_out)
        self.skips_records = trainer.config.input.damaged_records == "skip"
        self._run, self._sequences_a_row = run, prepared.sequences_a_row(trainer.config.data.shares)
        if trainer.config.data.packed:
            self.packed = self._sequences_a_row
            fill = prepared.train.fill(prepared.length)
            say(
                f"packed rows of {prepared.length}: {self.packed:.1f} sequences a row, {fill:.0%} filled; a batch of "
                f"{self.batch_size:,} rows has {self.sequences:,.0f} sequences, which the learning rate should fit; "
                "speed is counted in sequences"
            )

    @property
    def sequences(self) -> float:
        """Sequences a step: of packed rows, as many as they hold on average."""
        return self.batch_size * self._sequences_a_row

    def records_hint(self, step: int) -> str:
        """The command that shows the sequences of a step."""
        return f"{command_line('bert-jax', 'inspect', self._run.path, '--step', step)} shows them"
