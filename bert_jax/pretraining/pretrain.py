"""Pretraining as a whole: from text to vocabulary, sequences and a trained model."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from bert_jax.config.operation import MeshConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.units import Units
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.instances.shards import HELD_OUT, TRAIN
from bert_jax.instances.store import InstanceSource
from bert_jax.interchange.export import obstacle
from bert_jax.model.attention import check_attention
from bert_jax.model.bert import Parameters
from bert_jax.model.embeddings import vocabulary_size
from bert_jax.model.linear import for_inference
from bert_jax.model.sharding import (
    batch_sharding,
    check_batch_size,
    local_rows,
    make_mesh,
    tree_shardings,
)
from bert_jax.pretraining.dataset import check_preparation, prepare_lengths, prepare_other, prepared_for
from bert_jax.pretraining.evaluation import HeldOut
from bert_jax.pretraining.initial import initial_parameters, open_initial
from bert_jax.pretraining.mixture import check_epochs, source_shares
from bert_jax.pretraining.objective import PretrainingTrainer, pretraining_trainer
from bert_jax.pretraining.vocabulary import existing_tokenizer, make_tokenizer
from bert_jax.run.metrics import read_metrics
from bert_jax.run.run_config import read_pretraining_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.errors import UsageError, command_line
from bert_jax.system.progress import say
from bert_jax.system.reading import Reading
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.training.devices import check_room, keep_compiled_programs
from bert_jax.training.input import BatchSource, MixedOrder, ShuffledOrder
from bert_jax.training.job import Job
from bert_jax.training.loop import Trained
from bert_jax.training.trainer import PhaseWork


class Pretraining(Job[RunConfig]):
    """The pretraining of one run: from text to vocabulary, sequences and a trained model."""

    def check(self) -> RunConfig:
        _, self._initial, self._readings = check(self.config, self.run, self.mesh)
        return self.config

    def prepare(self) -> None:
        self.run.keep(*self._readings)
        self._tokenizer = make_tokenizer(self.config, self.run, self._initial)
        vocabulary = self._tokenizer.vocabulary
        self._trainer = pretraining_trainer(self.config, self.mesh, len(vocabulary), vocabulary.mask_id)
        self._prepared = prepare_lengths(self.config, self.run)
        shares = list(source_shares(self.config, self._prepared))
        check_epochs(self.config, shares)
        for share in shares if len(shares) > 1 and not self.run.under_way else ():
            say(str(share))

    def work(self) -> tuple[PretrainingTrainer, list[PhaseWork]]:
        trainer = self._trainer
        if reason := obstacle(trainer.objective.model, trainer.state_shapes.params, self._tokenizer.vocabulary):
            say(f"transformers can't read this model: {reason}")
        say(f"objective: {trainer.objective.description}")
        self._held_out = _held_out_of_phases(trainer, self._prepared)
        return trainer, [
            PretrainingPhase(self.run, trainer, number, self._prepared[phase.length], self._held_out[number])
            for number, phase in enumerate(self.config.phases)
        ]

    def initial(self) -> Parameters | None:
        trained, self._initial = self._initial or open_initial(self.config), None  # it may hold its tensors
        return trained and initial_parameters(trained, self.config.model, self._tokenizer, self.mesh)

    def results(self, trained: Trained) -> dict[str, Any]:
        step, data = int(trained.state.step), self._prepared[self.config.phases[-1].length]
        measured = trained.evaluations.get(step)
        results = _results(self._trainer, step, trained.state.params, data, self._held_out[-1], measured)
        skipped_records = sum(line.get("skipped_records", 0) for line in read_metrics(self.run.metrics_file))
        return results | {"skipped_steps": int(trained.state.skipped), "skipped_records": skipped_records}


def pretrain(config: RunConfig, run: RunDirectory) -> dict[str, Any]:
    """Runs or resumes pretraining; returns the results. See `Job.carry_out`."""
    return Pretraining(config, run).carry_out()


def check(
    config: RunConfig, run: RunDirectory, mesh: Mesh
) -> tuple[PretrainingTrainer, TrainedModel | None, list[Reading]]:
    """Checks data, sizes and settings before anything is written. Raises UsageError; warns if memory may not suffice.

    Returns the trainer, for a new vocabulary with its configured size, the model of `config.init` if the run is new,
    and what the text is taken for if it has to be read.
    """
    initial = None if run.under_way else open_initial(config)
    for phase in config.phases:
        check_batch_size(phase.batch_size, config.execution.accumulation, mesh)
    check_attention(config.execution, config.model, config.rows, mesh)
    readings = check_preparation(config, run, initial)
    there = load_tokenizer(run.tokenizer) if run.under_way else existing_tokenizer(config, initial)
    size = len(there.vocabulary) if there else config.model.vocabulary_size or config.vocabulary.size
    trainer = pretraining_trainer(config, mesh, size, mask_id=0)
    _ = trainer.state_shapes  # refuses what doesn't divide over the mesh
    for number, phase in enumerate(config.phases):
        check_room(trainer.objective.memory(phase, mesh), phase, mesh, f"--phases.{number}.batch-size")
    return trainer, initial, readings


def evaluate_run(
    run: RunDirectory,
    source: str | None = None,
    language: str | None = None,
    step: int | None = None,
    average: int | None = None,
    words: str | None = None,
    dtype: str | None = None,
    units: Units | None = None,
) -> dict[str, Any]:
    """Evaluates the newest checkpoint of `run`; returns the same measurements as `pretrain`. Changes nothing in the
    run.

    It is evaluated on the held-out documents or, with `source` (a source as in `data.source`), on all documents of
    that, which are prepared in a temporary directory with the run's settings at the length of its last phase.

    `language`: the language of `source`; None: the run's first. `step` and `average`: other parameters (see
    `TrainedModel.load`); the result names the steps of an average as `averaged_steps`. `words`: the function of the
    run's `data.words`, which `source` needs: a function that only the run's config.json names isn't imported. `dtype`:
    the type of the matrix products (see `for_inference`). `units`: units of masking; None: the run's.

    Raises UsageError if the run has no checkpoint, no such step or no data, if `source` has too little text, or for
    `units` that its data lack.
    """
    keep_compiled_programs()
    config = read_pretraining_config(run.path)
    if words is not None and words != config.data.words:
        raise UsageError(f"data.words={words}, and {run.path} was prepared with {config.data.words}; give that")
    if units and config.objective.predict == "next":
        raise UsageError(f"units={' '.join(units)}: {run.path} predicts next tokens and masks none; leave it out")
    data = config.data.replace(words=words or config.data.words)
    objective = config.objective.replace(units=units or config.objective.units)
    config = config.replace(data=data, objective=objective, model=for_inference(config.model, dtype))
    tokenizer = load_tokenizer(run.tokenizer)
    # On this machine's devices: the run may come from another machine.
    trainer = pretraining_trainer(
        config, make_mesh(MeshConfig()), len(tokenizer.vocabulary), tokenizer.vocabulary.mask_id
    )
    trained, params = TrainedModel.load(run.path, lambda shapes: tree_shardings(shapes, trainer.mesh), step, average)
    if trained.tokenizer.vocabulary.pieces != tokenizer.vocabulary.pieces:
        raise UsageError(f"{run.tokenizer} is another tokenizer than its model was trained with; put that back")
    if "masked_lm" not in trained.shapes and "generator" not in trained.shapes:
        raise UsageError(f"{run.path} is an encoder without masked-language head; there is nothing to measure")
    length = config.phases[-1].length
    phase = config.phase_of(trained.step)  # for its base of rotary positions
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
        # The vocabulary was made for the run's own text and may lack the pieces of another.
        return results | ({"unknown_share": prepared.train.unknown_share} if source else {})


def _results(
    trainer: PretrainingTrainer,
    step: int,
    params: Parameters,
    prepared: PreparedData,
    sequences: HeldOut | None,
    measured: dict[str, float] | None = None,
) -> dict[str, Any]:
    """The content of results.json: the measurements of the model and of the baseline on `sequences` of `prepared`.

    `measured`: the model's measurements, if an evaluation has returned them already.
    """
    results: dict[str, Any] = {"task": "pretraining", "steps": step, "seeds": [trainer.config.seed]}
    if sequences:
        measured = measured or sequences.evaluate(params)
        judged, (baseline, counts) = trainer.objective.main_question, sequences.baseline(prepared, measured)
        results |= {"metric": judged.accuracy, "score": measured[judged.accuracy], **measured, "baseline": baseline}
        results |= counts
        results["beats_baseline"] = measured[judged.loss] < baseline[judged.loss]
        results["held_out_sequences"] = sequences.sequences
        results["measured_on"] = sequences.measured_on
    return results


def _held_out_of_phases(trainer: PretrainingTrainer, prepared: dict[int, PreparedData]) -> list[HeldOut | None]:
    """The held-out sequences of each phase. Phases with the same length, model and shares have the same."""
    by_kind: dict[Any, HeldOut | None] = {}
    held_out = []
    for number, phase in enumerate(trainer.config.phases):
        data = prepared[phase.length]
        kind = phase.length, trainer.objective.in_phase(number).model, trainer.config.shares(number, data.sources)
        if kind not in by_kind:
            by_kind[kind] = held_out_sequences(trainer, number, data)
        held_out.append(by_kind[kind])
    return held_out


def held_out_sequences(trainer: PretrainingTrainer, phase: int, data: PreparedData) -> HeldOut | None:
    """The held-out sequences of one prepared set, for evaluation in phase number `phase`; None if there are none."""
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
    shares = config.shares(number, prepared.sources)
    if shares:
        return MixedOrder(prepared.sources, shares, config.seed, number)
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
        shares = trainer.config.shares(number, prepared.sources)
        self._run, self._sequences_a_row = run, prepared.sequences_a_row(shares)
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
        """Sequences a step; of packed rows the average."""
        return self.batch_size * self._sequences_a_row

    def records_hint(self, step: int) -> str:
        """The command that shows the sequences of a step."""
        return f"{command_line('bert-jax', 'inspect', self._run.path, '--step', step)} shows them"
