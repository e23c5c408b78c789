"""Fine-tuning: trains a model with the one loop on a task's rows and measures it on its dev rows."""

import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import jax
from jax.sharding import Mesh
from jaxtyping import Array, Float

from bert_jax.config.finetune import FinetuneConfig, TaskRunConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.training import Phase
from bert_jax.config.wording import counted
from bert_jax.finetuning.batches import PackedBatches, TaskBatch, TaskBatches, TextBatches
from bert_jax.finetuning.contrast import objective_of
from bert_jax.finetuning.dataset import LabelledRows, TrainingRows, make_task, read_labelled, read_training
from bert_jax.finetuning.objective import Outputs
from bert_jax.finetuning.predicting import measure
from bert_jax.finetuning.row_reading import RowSet, reading_of_rows
from bert_jax.interchange.hub import model_place
from bert_jax.model.bert import Parameters
from bert_jax.model.kernels.attention_forms import check_attention
from bert_jax.model.sharding import batch_sharding, check_batch_size, local_rows, make_mesh, row_shards, tree_shardings
from bert_jax.model.size import Memory, step_memory
from bert_jax.model.task import HeadShape, pools_tokens
from bert_jax.records.python_values import TaskRows
from bert_jax.run.host_settings import check_same_settings
from bert_jax.run.hosts import check_connected, first_alone
from bert_jax.run.metrics import OnMeasured
from bert_jax.run.python_input import beginning_with, check_call, write_rows
from bert_jax.run.results import Results
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.progress import say
from bert_jax.system.reading import Reading
from bert_jax.training.compiled_programs import keep_compiled_programs
from bert_jax.training.devices import check_room, compiling_tokens
from bert_jax.training.loop import Trained, train
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.trainer import PhaseWork, Trainer
from bert_jax.training.trust import compiler_checked

Value = TypeVar("Value")
_FEWEST_POSITIONS = 8
"""Least value of task.max_length."""


@dataclass(frozen=True)
class FineTuningPlan:
    """A fine-tuning whose settings, model and rows are read and checked. Nothing is written yet."""

    config: TaskRunConfig
    """The settings, with the one phase that follows from the rows."""
    mesh: Mesh
    started: TrainedModel
    """The model to start from."""
    learned: TrainingRows
    measured: LabelledRows | None
    """The dev rows."""
    other_dev: dict[str, LabelledRows]
    """The rows of task.other_dev, by name."""
    batches: PackedBatches
    readings: tuple[Reading, ...]
    """What the rows were taken for; empty for pairs from a corpus."""


def finetune(
    config: FinetuneConfig,
    workdir: RunDirectory | str | os.PathLike,
    init: str | os.PathLike | None = None,
    train: TaskRows | str | os.PathLike | None = None,
    dev: TaskRows | str | os.PathLike | None = None,
    on_measured: OnMeasured | None = None,
) -> Results:
    """Runs or resumes fine-tuning up to its last step; returns the results of the best checkpoint.

    The results are also written to results.json. `init`: the pretrained model; None: that of `config`. `train` and
    `dev`: the rows, as an iterable of dictionaries (column to value), a DataFrame of pandas or polars, a
    `datasets.Dataset`, or the name of a file as in the setting `task.train`; None: the rows of `config`. Rows that are
    not in a file are saved in the run's folder data/; `task.format`, `task.columns` and `task.separator` are about
    files alone. `on_measured` receives every line of metrics.jsonl; if it returns True, the run is finished after that
    step.

    Raises UsageError if an argument, a setting or an input is wrong, RunError if the run fails or the compiler computes
    wrong values on this machine, bert_jax.system.errors.HostLost if another process of the run dies, and Interrupted if
    the run is stopped. Once the cause is removed, the same call resumes the run.
    """
    check_call("finetune", config, FinetuneConfig, on_measured)
    config = beginning_with(config, init)
    check_connected(config.hosts)
    with contextlib.closing(RunDirectory.of(workdir)) as run:
        for name, rows in {"train": train, "dev": dev}.items():
            if isinstance(rows, str | os.PathLike):
                config = config.change(task={name: os.fspath(rows)})
            elif rows is not None:
                config = config.change(task={name: write_rows(run, name, rows)})
        return _fine_tuned(config, run, on_measured)


def _fine_tuned(config: FinetuneConfig, run: RunDirectory, on_measured: OnMeasured | None) -> Results:
    keep_compiled_programs()
    check_same_settings(config)
    with compiler_checked(config.execution):
        plan = plan_finetuning(config, run)
        with first_alone("prepare"):
            run.open(plan.config)
            if finished := run.results(plan.config.steps):
                say(f"{run.path} is finished: {finished.steps:,} steps")
                return finished
            if not run.under_way:
                run.save_tokenizer(plan.started.tokenizer)
                run.keep(*plan.started.provenance.readings)
            run.keep(*plan.readings)
    objective = objective_of(plan.config)
    trainer, outputs = Trainer(plan.config, plan.mesh, objective), Outputs(objective, plan.mesh)
    dev = plan.measured and DevRows(plan, plan.measured, outputs)
    others = {name: DevRows(plan, rows, outputs) for name, rows in plan.other_dev.items()}
    phase = _phase(plan, trainer, dev)
    trained = train(trainer, run, [phase], lambda: _initial_parameters(plan), on_measured=on_measured)
    results = _results(plan, run, dev, others, trained)
    run.write_results(results)
    return results


def plan_finetuning(config: FinetuneConfig, run: RunDirectory) -> FineTuningPlan:
    """Reads and checks settings, model and rows, and writes nothing. Raises UsageError if one of them can't be used;
    prints a message if a step may not fit the memory."""
    mesh = make_mesh(config.mesh)
    check_batch_size(config.task.batch_size, config.execution.accumulation, mesh)
    started = open_model(config)
    if config.from_random and config.task.source and config.task.pairs == "dropout":
        say("two dropout masks of a text teach nothing from random parameters (task.pairs=dropout, from_random=True)")
    learned, measured = read_rows(config, started)
    task = learned.task.config
    others = dict[str, LabelledRows]()
    for name, source in task.other_sets.items():
        measuring = make_task(learned.task.config.replace(dev=source, other_dev=()), started.tokenizer)
        others[name] = read_labelled(measuring)
        if not others[name].judged:
            measuring.metric(others[name].golds)  # raises for a metric that doesn't fit
    sets = {"train": RowSet(str(task.train), learned.records)} if learned.records else {}
    if measured and task.dev_source:
        sets["dev"] = RowSet(task.dev_source, measured.records)
    readings = (reading_of_rows(learned.task, sets),) if sets else ()
    learned = learned._replace(records=())  # training doesn't need them
    rows_hash = f"{learned.content_hash}{measured.content_hash if measured else ''}"
    if run.under_way and (written := getattr(run.files.config, "rows_hash", "")) and rows_hash.startswith(written):
        rows_hash = written  # by an earlier release, which left out the documents of judged texts
    batches = _batches(learned, config, mesh, compiling_tokens(started.config))
    # A published model's files give no type to train in, and it is read as float32.
    model = started.config if any(started.provenance.steps) else started.config.replace(compute_dtype="auto")
    phase = Phase(steps=len(batches), length=batches.shape.length, batch_size=batches.shape.rows)
    run_config = config.run_config(model, learned.task.config, rows_hash, phase)
    check_attention(config.execution, run_config.model, [(phase.length, batches.shape.sequences)], mesh)
    check_room(estimated_memory(run_config, mesh), phase, mesh, "--task.batch-size")
    return FineTuningPlan(run_config, mesh, started, learned, measured, others, batches, readings)


def read_rows(config: FinetuneConfig, started: TrainedModel) -> tuple[TrainingRows, LabelledRows | None]:
    """The encoded training rows, and the dev rows, which choose the checkpoint, if there are any. No device is used.
    Raises UsageError for rows that the task can't learn from or be measured on."""
    task = _shortened(_with_pooling(config.task, started.task), started.config.max_positions)
    learned = read_training(task, started.tokenizer)
    measured = read_labelled(learned.task, learned.held_out) if config.task.dev or learned.held_out else None
    if measured:
        learned.task.metric(measured.golds)  # refuses a metric that these rows don't have
    return learned, measured


def _phase(plan: FineTuningPlan, trainer: Trainer, dev: "DevRows | None") -> PhaseWork:
    task, batches = plan.config.task, plan.batches
    rows = f"rows of {task.train or task.source} as they are learned from, numbered from 0"
    return PhaseWork(
        trainer,
        0,
        batches,
        dev,
        lambda step: rows,
        sequences=batches.sequences,
        name=f"Fine-tuning, {task.name}",
        packed=batches.sequences / batches.shape.rows if batches.shape.sequences > 1 else None,
        score=plan.learned.task.metric(plan.measured.golds if plan.measured else ()),
        patience=task.patience,
    )


def _results(
    plan: FineTuningPlan, run: RunDirectory, dev: "DevRows | None", others: dict[str, "DevRows"], trained: Trained
) -> Results:
    """The content of results.json."""
    config, steps = plan.config, int(trained.state.step)
    results = Results(
        task=config.task.name,
        steps=steps,
        seeds=[config.seed],
        planned_steps=config.steps,
        stopped_early=steps < config.steps,
        training_rows=plan.learned.rows,
        skipped_steps=int(trained.state.skipped),
    )
    if not dev and not config.task.mix_layers:
        return results
    best = TrainedModel.open(run.path)

    @functools.cache
    def parameters() -> Parameters:
        return best.read(tree_shardings(best.shapes, plan.mesh))  # the training is over, and deletes no checkpoint

    if config.task.mix_layers:
        head = parameters()["task"]
        mix, gamma = jax.device_get((head["mix"], head["gamma"]))  # of other arrays, other hosts may hold parts
        results = results.updated({"layer_weights": jax.nn.softmax(mix).tolist(), "gamma": float(gamma[0])})
    if not dev:
        return results
    measured = trained.evaluations.get(best.step) or dev.evaluate(parameters())
    for name, rows in others.items():
        measured = _with_other(measured, name, rows.evaluate(parameters()))
    return results.updated(measured.content | {"best_step": best.step})


def _with_other(results: Results, name: str, other: Results) -> Results:
    """`results` with the metrics and baselines of the rows `name` of task.other_dev, under names like zh/accuracy."""

    def prefixed(values: Mapping[str, Value] | None) -> dict[str, Value]:
        return {f"{name}/{metric}": value for metric, value in (values or {}).items()}

    searches = {search: results.baselines.get(search, {}) | prefixed(of) for search, of in other.baselines.items()}
    return results.updated(
        prefixed(other.metrics)
        | {
            "baseline": {**(results.baseline or {}), **prefixed(other.baseline)},
            "measured_on": {**(results.measured_on or {}), **prefixed(other.measured_on)},
        }
        | ({"baselines": results.baselines | searches} if searches else {})
    )


def _batches(learned: TrainingRows, config: FinetuneConfig, mesh: Mesh, compiling: float) -> PackedBatches:
    task, pad_id = learned.task.config, learned.task.pad_id
    if task.makes_vectors and len(learned.examples) < task.batch_size:
        say(f"each step has all {len(learned.examples):,} pairs, fewer than task.batch_size={task.batch_size:,}")
    local = functools.partial(local_rows, batch_sharding(mesh))
    multiple = config.execution.accumulation * row_shards(mesh)
    kind = TextBatches if task.makes_vectors else TaskBatches
    return kind(learned.examples, task, config.seed, pad_id, local, multiple, compiling)


def estimated_memory(config: TaskRunConfig, mesh: Mesh) -> Memory:
    """Estimates by formula the memory of a step with the most rows on one device."""
    optimizer = make_optimizer(config.optimizer)
    return step_memory(config.execution, config.model, mesh, config.phases[0], optimizer, predictions=0, packed=2)


def open_model(config: FinetuneConfig) -> TrainedModel:
    """The model that `config.init` names. Raises UsageError if there is none, or if it can't read the task."""
    if config.task.patience and not config.task.dev and not config.task.source:
        raise UsageError(
            f"{Setting('task.patience', config.task.patience)} compares scores, and {Setting('task.dev')} names no "
            f"rows to measure on; give some by {Setting('task.dev')}"
        )
    if config.init is None:
        raise UsageError(
            f"{Setting('init')} is not set: give the model to start from, which may be a run, a checkpoint or a "
            "Hugging Face directory"
        )
    started = TrainedModel.open(model_place(config.init))
    if started.config.max_positions < _FEWEST_POSITIONS:
        raise UsageError(
            f"the model of {Setting('init', config.init)} has {started.config.max_positions} positions and a task "
            f"needs {_FEWEST_POSITIONS}; give another model"
        )
    if too_wide := [width for width in config.task.widths if width > started.config.hidden_size]:
        raise UsageError(
            f"{Setting('task.widths')} has {too_wide[0]}, and the vectors of {Setting('init', config.init)} have "
            f"{started.config.hidden_size} numbers; give smaller widths"
        )
    if (config.layers_frozen or 0) > started.config.num_layers:
        raise UsageError(
            f"{Setting('layers_frozen', config.layers_frozen)} and the model of {Setting('init', config.init)} has "
            f"{counted(started.config.num_layers, 'layers')}; lower the first"
        )
    return started


def _shortened(task: TaskConfig, positions: int) -> TaskConfig:
    """Shortens `task` to a model's positions, and reports what is shorter now."""
    cut = task.shortened_to(positions)
    if cut != task:
        shorter = f"sequences have {positions} pieces at most ({Setting('task.max_length', task.max_length)})"
        if cut.span != task.span:
            shorter += (
                f", questions {cut.span.question_length} (task.span.question_length={task.span.question_length}), "
                f"windows of the text begin every {cut.span.stride} (task.span.stride={task.span.stride})"
            )
        say(f"the model has {positions} positions: {shorter}")
    return cut


def _with_pooling(task: TaskConfig, begun: TaskConfig | None) -> TaskConfig:
    """`task` with a pooling and prompts, if it makes vectors.

    What it doesn't set is taken from `begun`, the task of the model to start from. If neither sets a pooling, it is the
    mean.
    """
    if not task.makes_vectors:
        return task
    if begun and begun.prompts and not task.prompts:
        names = ("prompts", "default_prompt", "include_prompt")
        task = task.replace(**{name: getattr(begun, name) for name in names})
    return task.replace(pool=task.pool or (begun and begun.pool) or "mean")


class DevRows:
    """Measures the model on labelled rows."""

    def __init__(self, plan: FineTuningPlan, rows: LabelledRows, outputs: Outputs):
        self._task, self._rows, self._outputs = plan.learned.task, rows, outputs

    def evaluate(self, params: Parameters, between: Callable[[], None] = lambda: None) -> Results:
        """Every metric and the score. `between` is called before each batch, and may raise to end the evaluation."""

        def run(batch: TaskBatch) -> Float[Array, "N ..."]:
            between()
            return self._outputs(params, batch)

        return measure(self._task, self._rows, run)


def _initial_parameters(plan: FineTuningPlan) -> Parameters | None:
    """The encoder of the model to start from, with its pooler if the task's head uses one; None for random parameters.

    With model.pooler=transform, the pooler is the layer before the vocabulary, as in transformers' ModernBERT classes.
    """
    config = plan.config
    if config.from_random and not config.model.character_filters:
        return None
    started, parameters = plan.started.with_parameters(plan.mesh)
    if config.from_random:  # the spelling of the vocabulary is a constant, not a trained parameter
        return {"bert": {"spelling": parameters["bert"]["spelling"]}}
    encoder, transform, lacks = parameters["bert"], pools_tokens(config.model), ""
    fits = config.model.table_size == config.model.hidden_size and config.model.transforms_head
    if not HeadShape.of(config.task).has_pooler(config.model):
        encoder.pop("pooler", None)
        return {"bert": encoder}
    untrained = "pooler" in encoder and started.provenance.left_untrained(encoder["pooler"])
    if transform and untrained:
        del encoder["pooler"]
    # Without pairs, the layer before the vocabulary learned, and a pooler didn't.
    replaces = "pooler" not in encoder or started.provenance.without_pairs
    if transform and replaces and "masked_lm" in parameters and fits:
        encoder["pooler"] = {name: parameters["masked_lm"][name] for name in ("dense", "norm")}
    if "pooler" not in encoder:
        missing = "layer that fits before the task's head" if transform else "pooler"
        lacks = f"has no {missing}: random values are put there"
    elif untrained:
        lacks = "was pretrained without sentence pairs, so the pooler, on which the head stands, was never trained"
    if lacks:
        say(f"the model to start from {lacks}{', which --probe leaves as they are' if config.probe else ''}")
    return {"bert": encoder}
