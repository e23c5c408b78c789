"""Pretraining as a whole: from text to vocabulary, sequences and a trained model."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jax.sharding import Mesh

from bert_jax.config.run import RunConfig
from bert_jax.config.wording import counted
from bert_jax.instances.prepared_data import TRAIN, PreparedData
from bert_jax.instances.shards import InstanceSource
from bert_jax.instances.treebank import TaggedSource, Treebank, treebank_hash
from bert_jax.interchange.export import export_obstacle
from bert_jax.model.bert import TEACHER, Parameters, split_teacher
from bert_jax.model.embeddings import vocabulary_size
from bert_jax.model.kernels.attention_forms import check_attention
from bert_jax.model.sharding import batch_sharding, check_batch_size, local_rows, make_mesh
from bert_jax.pretraining.dataset import Data, Inputs, check_preparation, prepare_data, prepared_for, treebanks_of
from bert_jax.pretraining.evaluation import MEAN_COSINE, HeldOut, held_out_sequences, measurements
from bert_jax.pretraining.fitting import fitted, harm_of, harms
from bert_jax.pretraining.initial import initial_parameters, open_initial, with_spelling
from bert_jax.pretraining.mixture import check_epochs, steps_at_words
from bert_jax.pretraining.objective import MaskedTokens, PretrainingTrainer, pretraining_trainer
from bert_jax.pretraining.teacher import open_teacher, teacher_parameters, with_teacher
from bert_jax.records.python_values import Texts
from bert_jax.run.checkpoint_choice import best_of
from bert_jax.run.checkpoint_manifest import Manifest, complete
from bert_jax.run.host_settings import check_same_settings
from bert_jax.run.hosts import check_connected, first_alone
from bert_jax.run.metrics import OnMeasured, read_metrics
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.python_input import beginning_with, check_call, write_texts
from bert_jax.run.results import Results
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.errors import Setting, UsageError, command_line, quoted
from bert_jax.system.progress import say, warn
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.training.compiled_programs import keep_compiled_programs
from bert_jax.training.devices import check_room
from bert_jax.training.input import BatchSource, MixedOrder, Order, ShuffledOrder, TaggedOrder
from bert_jax.training.loop import Trained, train
from bert_jax.training.trainer import PhaseWork
from bert_jax.training.trust import compiler_checked


@dataclass(frozen=True)
class PretrainingPlan:
    """The checked settings and inputs of a pretraining. Nothing is written yet."""

    config: RunConfig
    mesh: Mesh
    inputs: Inputs
    trainer: PretrainingTrainer
    """If the vocabulary is still to be trained, its size is that of the settings."""


def pretrain(
    config: RunConfig,
    workdir: RunDirectory | str | os.PathLike,
    source: str | os.PathLike | Texts | None = None,
    init: str | os.PathLike | None = None,
    on_measured: OnMeasured | None = None,
    objective: type[MaskedTokens] | None = None,
) -> Results:
    """Runs or resumes pretraining up to its last step; returns the results, which are also written to results.json.

    `source`: the name of a source as in the setting `data.source`, or documents in any form that `Bert.encode` takes,
    which are saved in the run's folder data/; None: the source of `config`. `init`: the model to start from; None: that
    of `config`. `on_measured` receives every line of metrics.jsonl; if it returns True, the run is finished with the
    results of that step.
    `objective`: a subclass of the built-in class that the setting `objective.predict` selects (see
    `bert_jax.pretraining.objective.OBJECTIVES`); None: the built-in class. The run stores the name of the class and can
    only be resumed with a class of that name.

    Raises UsageError if an argument, a setting or an input is wrong, RunError if the run fails or the compiler computes
    wrong values on this machine, bert_jax.system.errors.HostLost if another process of the run dies, and Interrupted if
    the run is stopped. Once the cause is removed, the same call resumes the run.
    """
    check_call("pretrain", config, RunConfig, on_measured)
    config = beginning_with(config, init)
    check_connected(config.hosts)
    with contextlib.closing(RunDirectory.of(workdir)) as run:
        if source is not None:
            name = os.fspath(source) if isinstance(source, str | os.PathLike) else write_texts(run, source)
            config = config.change(data={"source": (name,)})
        if objective is not None:
            if not isinstance(objective, type):
                raise UsageError(f"objective={quoted(objective)}: give a class, not an object")
            config = config.change(objective={"class_name": objective.__qualname__})
        return pretrain_opened(config, run, OpenedModels(), on_measured, objective)


def pretrain_opened(
    config: RunConfig,
    run: RunDirectory,
    opened: OpenedModels,
    on_measured: OnMeasured | None = None,
    objective: type[MaskedTokens] | None = None,
) -> Results:
    """What `pretrain` does in a connected process, in a command that has opened some models already."""
    keep_compiled_programs()
    check_same_settings(config)
    with compiler_checked(config.execution):
        plan = plan_pretraining(config, run, opened, objective)
        config = plan.config
        with first_alone("prepare"):
            run.open(config)
            if finished := run.results(config.steps):
                say(f"{run.path} is finished: {finished.steps:,} steps")
                return finished
            data = prepare_data(config, run, plan.inputs)
            check_epochs(config, data.shares)
            kept = steps_at_words(config, data.prepared)
    if len(data.shares) > 1 and not run.under_way:
        for share in data.shares:
            say(str(share))
    if not run.under_way:
        for harm in harms(config, data.shares):
            warn(harm)
    if kept and not run.under_way:
        steps = ", ".join(f"{step:,} ({words:,} words)" for step, words in kept.items())
        say(f"checkpoints are kept of {counted(len(kept), 'steps')}: {steps}")
    trainer, vocabulary = plan.trainer, data.tokenizer.vocabulary
    assert len(vocabulary) == trainer.objective.model.vocabulary_size
    own, _ = split_teacher(trainer.state_shapes.params)
    if reason := export_obstacle(trainer.objective.model, own, vocabulary):
        say(f"transformers can't read this model: {reason}")
    say(f"objective: {trainer.objective.description}")
    held_out = _held_out_of_phases(trainer, data)
    phases = [_phase(run, trainer, number, data, held_out) for number in range(len(config.phases))]
    trained = train(trainer, run, phases, lambda: _initial_parameters(plan, data, run, opened), kept, on_measured)
    results = _results(trainer, run, data, held_out, trained)
    if config.init and results.stopped_early and len(set(held_out)) == 1:
        _say_lowest_loss(run, results)
    run.write_results(results)
    return results


def _say_lowest_loss(run: RunDirectory, results: Results) -> None:
    """Prints which checkpoint has the lowest held-out loss, and whether the initial model has a lower one."""
    if best := best_of(complete(run.checkpoints)):
        loss, initial = (Manifest.at(best).evaluation or {}).get("loss"), results.started_from.get("loss")
        is_worse = loss is not None and initial is not None and initial < loss
        kept = f"; the initial model is better, with {initial:.3f} in place of {loss:.3f}" if is_worse else ""
        say(f"the checkpoint with the lowest held-out loss is {best}{kept}")


def plan_pretraining(
    config: RunConfig,
    run: RunDirectory,
    opened: OpenedModels,
    objective: type[MaskedTokens] | None = None,
) -> PretrainingPlan:
    """Completes a config that leaves settings to the model or the text, and checks settings, sizes and inputs. Writes
    nothing; warns if memory may not suffice. Raises UsageError.

    `objective`: the class that objective.class_name names.
    """
    if (name := config.objective.class_name) and objective is None:
        raise UsageError(
            f"{Setting('objective.class_name', name)} names a class of a Python program; train with "
            f"bert_jax.pretrain(config, workdir, objective={name})"
        )
    config = fitted(config, opened, run)
    mesh = make_mesh(config.mesh)
    for phase in config.phases:
        check_batch_size(phase.batch_size, config.execution.accumulation, mesh)
    check_attention(config.execution, config.model, config.rows, mesh)
    inputs = check_preparation(config, run, opened)
    if config.objective.tags:
        config = config.change(objective={"tags_hash": treebank_hash(inputs.sentences)})
    begun = run.files.pretraining_config if run.under_way else None
    config = with_teacher(config, inputs.teacher, begun)
    if config.teacher and begun:
        run.check(config)  # refuses a teacher without which the run began, whose settings aren't known
    vocabulary = inputs.tokenizer.vocabulary if inputs.tokenizer else config.vocabulary.size
    trainer = pretraining_trainer(config, mesh, vocabulary, objective)
    if trainer.objective.teacher:
        check_attention(config.execution, trainer.objective.teacher.model, config.rows, mesh)
    _ = trainer.state_shapes  # raises for sizes that can't be divided over the mesh
    for number, phase in enumerate(config.phases):
        check_room(trainer.objective.memory(phase, mesh), phase, mesh, f"--phases.{number}.batch-size")
    return PretrainingPlan(config, mesh, inputs, trainer)


def prepared_phase(
    config: RunConfig, run: RunDirectory, number: int, mesh: Mesh
) -> tuple[PretrainingTrainer, BatchSource, Tokenizer]:
    """The trainer of a prepared run, the batches of its phase number `number`, and the run's tokenizer. Raises
    UsageError if the data of this phase aren't prepared."""
    prepared, tokenizer = prepared_for(config, run, config.phases[number].length), run.files.tokenizer
    trainer = pretraining_trainer(config, mesh, tokenizer.vocabulary)
    treebank = treebanks_of(config, tokenizer).get(prepared.length)
    return trainer, training_source(trainer, number, prepared, treebank), tokenizer


def training_source(
    trainer: PretrainingTrainer, number: int, prepared: PreparedData, treebank: Treebank | None = None
) -> BatchSource:
    """The batches of phase number `number`, by step. `treebank`: that of `objective.tags` at the phase's length."""
    config, phase = trainer.config, trainer.config.phases[number]
    instances = InstanceSource(prepared, TRAIN, config.input.damaged_records)
    order: Order = ShuffledOrder(sum(prepared.sources), config.seed, number)
    if shares := config.shares(number, prepared.sources):
        order = MixedOrder(prepared.sources, shares, config.seed, number)
    if treebank:
        instances = tagged = TaggedSource(prepared, TRAIN, treebank.train, config.input.damaged_records)
        order = TaggedOrder(order, tagged.tagged.start, len(tagged.tagged), config.seed, number)
    return BatchSource(
        instances,
        order,
        batch_size=phase.batch_size,
        length=phase.length,
        vocabulary_size=vocabulary_size(trainer.objective.model),
        num_batches=phase.steps,
        rows=local_rows(batch_sharding(trainer.mesh), phase.batch_size),
        sequences_a_row=config.data.sequences_a_row(phase.length),
    )


def _held_out_of_phases(trainer: PretrainingTrainer, of_run: Data) -> list[HeldOut | None]:
    """The held-out sequences of each phase. Phases of equal length, model and shares have the same sequences."""
    by_kind: dict[object, HeldOut | None] = {}
    held_out = []
    for number, phase in enumerate(trainer.config.phases):
        data = of_run.prepared[phase.length]
        kind = phase.length, trainer.objective.in_phase(number).model, trainer.config.shares(number, data.sources)
        if kind not in by_kind:
            by_kind[kind] = held_out_sequences(trainer, number, data, of_run.treebanks.get(phase.length))
        held_out.append(by_kind[kind])
    return held_out


def _phase(
    run: RunDirectory, trainer: PretrainingTrainer, number: int, data: Data, held_out: Sequence[HeldOut | None]
) -> PhaseWork:
    """The work of phase number `number`. `held_out`: the held-out sequences of each phase."""
    config, phase = trainer.config, trainer.config.phases[number]
    prepared = data.prepared[phase.length]
    sequences_a_row = prepared.sequences_a_row(config.shares(number, prepared.sources))
    sequences = phase.batch_size * sequences_a_row
    if config.data.packed:
        say(
            f"packed rows of {prepared.length}: {sequences_a_row:.1f} sequences a row, "
            f"{prepared.train.fill(prepared.length):.0%} filled; a batch of {phase.batch_size:,} rows has "
            f"{sequences:,.0f} sequences, which the learning rate should fit; speed is counted in sequences"
        )
    several = len(config.phases) > 1
    harm = harm_of if held_out[number] is held_out[0] else _harm_without_loss
    return PhaseWork(
        trainer,
        number,
        training_source(trainer, number, prepared, data.treebanks.get(phase.length)),
        held_out[number],
        lambda step: f"{command_line('bert-jax', 'inspect', run.path, '--step', step)} shows them",
        sequences=sequences,
        name=f"Training, phase {number + 1} of {len(config.phases)}" if several else "Training",
        packed=sequences_a_row if config.data.packed else None,
        skips_records=config.input.damaged_records == "skip",
        harm=harm if config.init and config.evaluation.watch else None,
    )


def _harm_without_loss(start: Mapping[str, float | None], now: Mapping[str, float], done: float) -> str | None:
    """`harm_of` in a phase with other held-out sequences than the first one, where losses can't be compared."""
    return harm_of({MEAN_COSINE: start.get(MEAN_COSINE)}, now, done)


def _initial_parameters(
    plan: PretrainingPlan, data: Data, run: RunDirectory, opened: OpenedModels
) -> Parameters | None:
    """The parameters that a run begins with, completed by random ones; None: all are random. A run begins anew if all
    its checkpoints are damaged; its initial model and its teacher are opened only then."""
    params, config = None, plan.config
    if initial := plan.inputs.initial or open_initial(config, opened):
        prepared = data.prepared[config.phases[0].length]
        params = initial_parameters(initial, config, data.tokenizer, plan.mesh, prepared, run.keep)
    if teacher := plan.trainer.objective.teacher:
        trained = plan.inputs.teacher or open_teacher(config, opened)
        assert trained is not None
        params = {"bert": {}, **(params or {}), TEACHER: teacher_parameters(teacher, trained, plan.mesh)}
    return with_spelling(params, plan.config.model, data.tokenizer)


def _results(
    trainer: PretrainingTrainer, run: RunDirectory, data: Data, held_out: Sequence[HeldOut | None], trained: Trained
) -> Results:
    config, step = trainer.config, int(trained.state.step)
    phase = config.phase_of(step)
    prepared, measured = data.prepared[config.phases[phase].length], trained.evaluations.get(step)
    results = measurements(trainer, step, trained.state.params, prepared, held_out[phase], measured)
    if step < config.steps:
        results = results.updated({"stopped_early": True, "planned_steps": config.steps})
    lines = read_metrics(run.metrics_file)
    skipped_records = sum(line.get("skipped_records", 0) for line in lines)
    # A phase with other held-out sequences than the first one can't be compared with the beginning.
    started = next((line for line in lines if line["split"] == "eval" and line["step"] == 0), None)
    if started and held_out[phase] is held_out[0]:
        results = results.updated({"started_from": {name: value for name, value in started.items() if name != "step"}})
    return results.updated({"skipped_steps": int(trained.state.skipped), "skipped_records": skipped_records})
