"""What a suite does in separate processes: prepares sequences, times steps, measures models on tokens and rows."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from bert_jax.config.objective import UnitKind, Units
from bert_jax.config.operation import MeshConfig
from bert_jax.config.run import RunConfig
from bert_jax.finetuning.dataset import make_task, read_labelled, written_as
from bert_jax.inference.bert import load
from bert_jax.model.kernels.platform import platform
from bert_jax.model.sharding import batch_sharding, make_mesh, tree_shardings
from bert_jax.model.size import encoder_flops
from bert_jax.pretraining.dataset import check_preparation, prepare_data, prepared_for
from bert_jax.pretraining.evaluation import held_out_sequences
from bert_jax.pretraining.objective import PretrainingTrainer, expected_objective, pretraining_trainer
from bert_jax.products.suite.held_out import held_out_config
from bert_jax.run.metrics import read_metrics
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.progress import quiet
from bert_jax.training.devices import timed_in_turn
from bert_jax.training.trainer import Trainer

PLATEAU_LOSS = 6.0
"""A lower loss of masked tokens shows that a model has learned more than the frequencies of words."""
_STEPS_A_ROUND, _SLOW_STEP_S = 10, 0.2
"""Number of steps in one time measurement; a step that takes at least so many seconds is timed alone."""


@quiet()
def step_flops(config: RunConfig) -> float:
    """FLOPs of a step of a recipe's first phase, by formula."""
    return _trainer(config).flops(0)


def _trainer(config: RunConfig) -> PretrainingTrainer:
    return Trainer(config, make_mesh(config.mesh), expected_objective(config, OpenedModels()))


def prepare_sequences(config: RunConfig, run: Path) -> None:
    """Makes the vocabulary and the sequences of a recipe in the directory `run`."""
    directory = RunDirectory(run)
    inputs = check_preparation(config, directory, OpenedModels())
    directory.open(config)
    prepare_data(config, directory, inputs)


class TokenTimes(NamedTuple):
    """How fast a model works on this machine, in seconds."""

    forward: float
    """Seconds of a token in a forward pass of the encoder."""
    pretraining: float
    """Seconds of a token in a training step of a recipe; 0 for a model that is trained already."""
    measurement: float
    """Seconds that this measurement took, without those of loading and compiling the model."""


@quiet()
def token_times(model: Path | RunConfig) -> TokenTimes:
    """The times of a trained model, whose forward pass is timed, or of a recipe, whose training step is timed. A
    recipe's forward pass is estimated: it takes the part of its step that its FLOPs are, by formula."""
    if isinstance(model, RunConfig):
        timed, length = _several_steps(model), model.phases[0].length
        began = time.perf_counter()
        step = min(timed_in_turn({"steps": timed.run}, 0.0)["steps"]) / timed.steps
        measurement, flops = time.perf_counter() - began, encoder_flops(model.model, length, last_queries=length)
        return TokenTimes(step * flops / length / timed.flops, step / model.phases[0].batch_size / length, measurement)
    bert, texts = load(model), ["the old house " * 20] * 32
    bert.encode(texts)  # compiles
    began = time.perf_counter()
    times = timed_in_turn({"encode": lambda: bert.encode(texts).tokens}, 0.0)["encode"]
    measurement = time.perf_counter() - began
    return TokenTimes(min(times) / bert.encode(texts).mask.size, 0.0, measurement)


@quiet()
def step_seconds(configs: Mapping[str, RunConfig]) -> dict[str, float]:
    """The seconds of a training step of each config: the least of several rounds, in which all are measured in turn.

    On a CPU it is the processor time of all threads, which other work hardly changes.
    """
    clock = time.process_time if platform() == "cpu" else time.perf_counter
    timed = {name: _several_steps(config) for name, config in configs.items()}
    times = timed_in_turn({name: several.run for name, several in timed.items()}, 0.0, clock)
    return {name: min(of_round) / timed[name].steps for name, of_round in times.items()}


class TimedSteps(NamedTuple):
    run: Callable[[], Any]
    """Trains `steps` steps on random sequences, and returns the state. The step is compiled."""
    steps: int
    flops: float
    """FLOPs of a step, by formula."""


def _several_steps(config: RunConfig) -> TimedSteps:
    trainer = _trainer(config)
    batch = jax.device_put(trainer.objective.random_batch(config.ids_shape(0)), batch_sharding(trainer.mesh))
    # The last phase trains all parameters; an earlier one may freeze some, and takes less.
    state, step = trainer.initial_state(), trainer.train_step(len(config.phases) - 1)

    def work(steps: int) -> Any:
        nonlocal state
        for _ in range(steps):
            state, _ = step(state, batch)
        return state

    jax.block_until_ready(work(1))  # compiles
    began = time.perf_counter()
    jax.block_until_ready(work(1))
    steps = _STEPS_A_ROUND if time.perf_counter() - began < _SLOW_STEP_S else 1
    return TimedSteps(partial(work, steps), steps, trainer.flops(0))


def plateau(run: Path) -> int | None:
    """The step at which the loss of masked tokens was first below PLATEAU_LOSS; None where it never was."""
    lines = (line for line in read_metrics(run / "metrics.jsonl") if line["split"] == "train")
    losses = ((line["step"], line.get("mlm_loss")) for line in lines)  # None if it was not finite
    return next((step for step, loss in losses if loss is not None and loss < PLATEAU_LOSS), None)


def held_out_figures(run: Path, measured: Path, units: UnitKind | Units, whole: bool = False) -> dict[str, Any]:
    """Losses and accuracies of a run's model, their `baseline` and the `unknown_share` of the pieces, on the held-out
    sequences that were prepared at `measured`, with the run's objective; {} if there are no held-out sequences.
    `whole`: on all of them, not only on evaluation.max_sequences."""
    sequences, mesh = RunDirectory(measured), make_mesh(MeshConfig())
    first, vocabulary = sequences.files.pretraining_config, sequences.files.tokenizer.vocabulary
    if whole:
        first = first.change(evaluation={"max_sequences": None})
    files = RunFiles(run)
    recipe = files.pretraining_config
    trained, params = TrainedModel.load(files, lambda shapes: tree_shardings(shapes, mesh))
    recipe = recipe.replace(model=trained.config.replace(vocabulary_size=None))
    config = held_out_config(recipe, first, units)
    trainer = pretraining_trainer(config, mesh, vocabulary)
    prepared = prepared_for(first, sequences, config.phases[0].length)
    if (held_out := held_out_sequences(trainer, 0, prepared)) is None:
        return {}
    figures = held_out.evaluate(params).metrics
    baseline = held_out.baseline(prepared, figures)[0]
    return {**figures, "baseline": baseline, "unknown_share": prepared.held_out.unknown_share}


def row_answers(run: Path, source: str) -> dict[str, Any]:
    """Measures a fine-tuned model on the labelled rows of `source`. Returns its metrics by name, those of the
    `baseline`, and the `row_outcomes` of its task."""
    bert = load(run)
    predictor = bert.predictor
    if predictor.task.makes_vectors:
        results = predictor.measure(source)
        return {"metric": results.metric, "baseline": results.baseline} | results.metrics
    written = written_as(predictor.task, source).settings
    task = make_task(predictor.task.replace(dev=source, **written), bert.tokenizer)
    rows = read_labelled(task)
    predictions = [one for _, one in predictor.predictions(task.inputs(rows.records), Counter())]
    answers: dict[str, Any] = {"metric": task.metric(rows.golds)} | task.measure(rows.golds, predictions).metrics
    answers["baseline"] = task.measure(rows.golds, task.baseline(rows.golds)).metrics
    return answers | task.row_outcomes(rows.golds, predictions)
