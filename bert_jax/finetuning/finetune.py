"""Fine-tuning: trains a model with the one loop on a task's rows and measures it on its dev rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int

from bert_jax.config.finetune import FinetuneConfig, TaskRunConfig
from bert_jax.config.phase import Phase
from bert_jax.config.task import TaskConfig
from bert_jax.config.wording import counted
from bert_jax.finetuning.batches import TaskBatch, TrainingBatches
from bert_jax.finetuning.contrast import objective_of
from bert_jax.finetuning.dataset import LabelledRows, TrainingRows, make_task, read_labelled, read_training
from bert_jax.finetuning.objective import Outputs
from bert_jax.finetuning.predicting import measure
from bert_jax.finetuning.row_reading import RowSet, reading_of
from bert_jax.finetuning.task import Task
from bert_jax.finetuning.text_batches import TextBatches
from bert_jax.interchange.hub import model_place
from bert_jax.model.attention import check_attention
from bert_jax.model.bert import Parameters
from bert_jax.model.memory import Memory, step_memory
from bert_jax.model.sharding import batch_sharding, check_batch_size, local_rows, row_shards
from bert_jax.model.task import HeadShape, pools_tokens
from bert_jax.run.run_config import read_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.errors import UsageError
from bert_jax.system.progress import say
from bert_jax.system.reading import Reading
from bert_jax.training.devices import check_room, compiling_tokens
from bert_jax.training.job import Job
from bert_jax.training.loop import Trained
from bert_jax.training.trainer import PhaseWork, Trainer

_FEWEST_POSITIONS = 8
"""Least value of task.max_length."""


class Planned(NamedTuple):
    """Everything that a fine-tuning needs, read and checked."""

    started: TrainedModel
    learned: TrainingRows
    measured: LabelledRows | None
    others: dict[str, LabelledRows]
    """The rows of task.other_dev by name."""
    batches: TrainingBatches | TextBatches
    config: TaskRunConfig
    reading: Reading | None
    """What the rows were taken for; None of pairs from a corpus."""


class FineTuning(Job[FinetuneConfig]):
    """The fine-tuning of one run: from a model and rows to the measurements of its best checkpoint."""

    def check(self) -> TaskRunConfig:
        self._plan = plan_finetuning(self.config, self.mesh, self.run)
        return self._plan.config

    def prepare(self) -> None:
        if not self.run.under_way:
            self.run.save_tokenizer(self._plan.started.tokenizer)
            self.run.keep(*self._plan.started.readings)
        if self._plan.reading:
            self.run.keep(self._plan.reading)

    def work(self) -> tuple[Trainer, list[PhaseWork]]:
        started, learned, measured, others, batches, config, _ = self._plan
        objective = objective_of(config.task, config.model, config.execution, config.layers_frozen, config.probe)
        trainer = Trainer(config, self.mesh, objective)
        outputs = Outputs(objective, self.mesh)
        compiling = compiling_tokens(started.config)
        self._dev = measured and DevRows(learned.task, measured, outputs, compiling)
        self._others = {name: DevRows(learned.task, rows, outputs, compiling) for name, rows in others.items()}
        score = learned.task.metric(measured.golds if measured else ())
        return trainer, [TaskPhase(trainer, batches, self._dev, score)]

    def initial(self) -> Parameters | None:
        return _initial_parameters(self._plan.config, self._plan.started, self.mesh)

    def results(self, trained: Trained) -> dict[str, Any]:
        config, steps = self._plan.config, int(trained.state.step)
        results: dict[str, Any] = {"task": config.task.name, "steps": steps, "seeds": [config.seed]}
        results |= {"planned_steps": config.steps, "stopped_early": steps < config.steps}
        if self._dev:
            best = TrainedModel.open(self.run.path)
            found = trained.evaluations.get(best.step) or self._dev.evaluate(best.parameters(self.mesh))
            results |= found | {"best_step": best.step, "dev_rows": self._dev.count}
            results = self._with_others(results, best)
        return results | {"training_rows": self._plan.learned.rows, "skipped_steps": int(trained.state.skipped)}

    def _with_others(self, results: dict[str, Any], best: TrainedModel) -> dict[str, Any]:
        """`results` with the metrics of task.other_dev, as in zh/accuracy, and their baselines."""
        for name, rows in self._others.items():
            found = rows.evaluate(best.parameters(self.mesh))
            numbers = {metric: value for metric, value in found.items() if isinstance(value, float)}
            results |= {f"{name}/{metric}": value for metric, value in numbers.items() if metric != "score"}
            results["baseline"] = results["baseline"] | _prefixed(name, found["baseline"])
            results["measured_on"] = results["measured_on"] | _prefixed(name, found["measured_on"])
            for search, values in found.get("baselines", {}).items():
                before = results.get("baselines", {}).get(search, {})
                results["baselines"] = results.get("baselines", {}) | {search: before | _prefixed(name, values)}
        return results


def _prefixed(name: str, values: dict[str, Any]) -> dict[str, Any]:
    return {f"{name}/{metric}": value for metric, value in values.items()}


def finetune(config: FinetuneConfig, run: RunDirectory) -> dict[str, Any]:
    """Trains the run to its end and returns the measurements of its best checkpoint. See `Job.carry_out`."""
    return FineTuning(config, run).carry_out()


def plan_finetuning(config: FinetuneConfig, mesh: Mesh, run: RunDirectory) -> Planned:
    """Reads model and rows and writes nothing. Raises UsageError; warns if the memory may not suffice."""
    check_batch_size(config.task.batch_size, config.execution.accumulation, mesh)
    started = open_initial(config)
    if config.from_random and config.task.source and config.task.pairs == "dropout":
        say("two dropout masks of a text teach nothing from random parameters (task.pairs=dropout, from_random=True)")
    task = _as_begun(_fitted(_with_pooling(config.task, started.task), started.config.max_positions), run)
    learned = read_training(task, started.tokenizer, compiling_tokens(started.config))
    measured = read_labelled(learned.task, learned.held_out) if config.task.dev or learned.held_out else None
    if measured:
        learned.task.metric(measured.golds)  # refuses one that these rows don't have
    others = {
        name: read_labelled(make_task(learned.task.config.replace(dev=source, other_dev=()), started.tokenizer))
        for name, source in task.other_sets.items()
    }
    sets = {"train": RowSet(str(task.train), learned.records)} if learned.records else {}
    if measured and task.dev:
        sets["dev"] = RowSet(task.dev, measured.records)
    reading = reading_of(learned.task, sets) if sets else None
    learned = learned._replace(records=())  # which aren't needed in the training
    stamp = f"{learned.stamp}{measured.stamp if measured else ''}"
    batches = _batches(learned, config, mesh, compiling_tokens(started.config))
    # A published model's files give no type to train in, and it is read as float32.
    model = started.config if any(started.steps) else started.config.replace(compute_dtype="auto")
    phase = Phase(steps=len(batches), length=batches.shape.length, batch_size=batches.shape.rows)
    planned = config.planned(model, learned.task.config, stamp, phase)
    lengths = planned.task.padded_lengths or (phase.length,)
    check_attention(config.execution, planned.model, [(length, batches.shape.texts) for length in lengths], mesh)
    check_room(planned_memory(planned, mesh), phase, mesh, "--task.batch-size")
    return Planned(started, learned, measured, others, batches, planned, reading)


def _batches(
    learned: TrainingRows, config: FinetuneConfig, mesh: Mesh, compiling: float
) -> TrainingBatches | TextBatches:
    task, seed, pad_id = learned.task.config, config.seed, learned.task.pad_id

    def local(count: int) -> Int[np.ndarray, " b"]:
        return local_rows(batch_sharding(mesh), count)

    if task.facts.loss == "contrast":
        if len(learned.examples) < task.batch_size:
            say(f"each step has all {len(learned.examples):,} pairs, fewer than task.batch_size={task.batch_size:,}")
        multiple = config.execution.accumulation * row_shards(mesh)
        return TextBatches(learned.examples, task, seed, pad_id, local, multiple, compiling)
    return TrainingBatches(learned.examples, task, seed, pad_id, local)


def planned_memory(config: TaskRunConfig, mesh: Mesh) -> Memory:
    """Memory of a step with the longest rows on one device, by formula."""
    packed = 2 if config.task.facts.loss == "contrast" else 1
    return step_memory(config.execution, config.model, mesh, config.phases[0], predictions=0, packed=packed)


def open_initial(config: FinetuneConfig) -> TrainedModel:
    """The model that `config.init` names. Raises UsageError where there is none, or where it can't read the task."""
    if config.task.patience and not config.task.dev and not config.task.source:
        raise UsageError(
            f"task.patience={config.task.patience} compares scores, and task.dev names no rows to measure on; give "
            "some by --task.dev"
        )
    if config.init is None:
        raise UsageError("init=None names no model; give a run, a checkpoint or a Hugging Face directory")
    started = TrainedModel.open(model_place(config.init))
    if started.config.max_positions < _FEWEST_POSITIONS:
        raise UsageError(
            f"the model of init={config.init} has {started.config.max_positions} positions and a task needs "
            f"{_FEWEST_POSITIONS}; give another model"
        )
    if too_wide := [width for width in config.task.widths if width > started.config.hidden_size]:
        raise UsageError(
            f"task.widths has {too_wide[0]}, and the vectors of init={config.init} have {started.config.hidden_size} "
            "numbers; give smaller widths"
        )
    if (config.layers_frozen or 0) > started.config.num_layers:
        raise UsageError(
            f"layers_frozen={config.layers_frozen} and the model of init={config.init} has "
            f"{counted(started.config.num_layers, 'layers')}; lower the first"
        )
    return started


def _fitted(task: TaskConfig, positions: int) -> TaskConfig:
    """Shortens `task` to a model's positions, and reports what became shorter."""
    fitting = task.fitting(positions)
    if fitting != task:
        shorter = f"sequences have {positions} pieces at most (task.max_length={task.max_length})"
        if fitting.span != task.span:
            shorter += (
                f", questions {fitting.span.question_length} (task.span.question_length={task.span.question_length}), "
                f"windows of the text begin every {fitting.span.stride} (task.span.stride={task.span.stride})"
            )
        say(f"the model has {positions} positions: {shorter}")
    return fitting


def _with_pooling(task: TaskConfig, begun: TaskConfig | None) -> TaskConfig:
    """`task` with the pooling and the prompts of the task that the model to start from was trained for, if it sets
    none."""
    if task.facts.loss != "contrast":
        return task
    if begun and begun.prompts and not task.prompts:
        names = ("prompts", "default_prompt", "include_prompt")
        task = task.replace(**{name: getattr(begun, name) for name in names})
    return task.replace(pool=task.pool or (begun and begun.pool) or "mean")


def _as_begun(task: TaskConfig, run: RunDirectory) -> TaskConfig:
    """`task` with the padded lengths that `run` began with, which decide rounding; another kind of machine might
    choose others."""
    if task.padded_lengths is None and run.under_way:
        before = read_config(run.path)
        if isinstance(before, TaskRunConfig) and before.task.max_length == task.max_length:
            return task.replace(padded_lengths=before.task.padded_lengths)
    return task


class DevRows:
    """Measures a task on its dev rows."""

    def __init__(self, task: Task, rows: LabelledRows, outputs: Outputs, compiling: float):
        self.count = len(rows.records)
        self._task, self._rows, self._outputs, self._compiling = task, rows, outputs, compiling

    def evaluate(self, params: Parameters, between: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Every metric, `metric` and `score`. `between` is called before each batch, and may raise to end it."""

        def run(batch: TaskBatch) -> Any:
            between()
            return self._outputs(params, batch)

        return measure(self._task, self._rows, run, self._compiling)


class TaskPhase(PhaseWork):
    """The one phase of fine-tuning on a task."""

    def __init__(self, trainer: Trainer, batches: TrainingBatches | TextBatches, dev: DevRows | None, score: str):
        """`score`: the name of the metric that is the score."""
        super().__init__(trainer, 0, batches, dev)
        self.task = trainer.config.task
        self.name = f"Fine-tuning, {self.task.name}"
        self.score, self.patience, self._texts = score, self.task.patience, batches.texts
        if batches.shape.texts > 1:
            self.packed = batches.texts / batches.shape.rows

    @property
    def sequences(self) -> float:
        return self._texts

    def records_hint(self, step: int) -> str:
        """Explains to a user which rows the numbers refer to."""
        return f"rows of {self.task.train or self.task.source} as they are learned from, numbered from 0"


def _initial_parameters(config: TaskRunConfig, started: TrainedModel, mesh: Mesh) -> Parameters | None:
    """The encoder of `started`, with its pooler where the task's head takes that; None for random parameters.

    With model.pooler=transform that is the layer before the vocabulary, as in transformers' classes of ModernBERT.
    """
    if config.from_random:
        return None
    found = started.parameters(mesh)
    encoder, transform, lacks = found["bert"], pools_tokens(config.model), ""
    fits = config.model.table_size == config.model.hidden_size
    if not HeadShape.of(config.task).has_pooler(config.model):
        encoder.pop("pooler", None)
        return {"bert": encoder}
    if transform and not started.pooler_trained:
        encoder.pop("pooler", None)
    if transform and "pooler" not in encoder and "masked_lm" in found and fits:
        encoder["pooler"] = {name: found["masked_lm"][name] for name in ("dense", "norm")}
    if "pooler" not in encoder:
        missing = "layer that fits before the task's head" if transform else "pooler"
        lacks = f"has no {missing}: random values are put there"
    elif not transform and not started.pooler_trained:
        lacks = "was pretrained without sentence pairs, so the pooler, on which the head stands, was never trained"
    if lacks:
        say(f"the model to start from {lacks}{', which --probe leaves as they are' if config.probe else ''}")
    return {"bert": encoder}
