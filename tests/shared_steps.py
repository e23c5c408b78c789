"""Runs of the same settings in one process share their compiled steps, which take most of the time of a small run."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.config.finetune import FinetuneConfig, TaskRunConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import TrainingConfig
from bert_jax.finetuning import finetune
from bert_jax.finetuning.contrast import objective_of
from bert_jax.finetuning.objective import FineTuningObjective, Outputs
from bert_jax.pretraining import evaluation, pretrain
from bert_jax.pretraining.objective import pretraining_trainer
from bert_jax.text.vocabulary import Vocabulary
from bert_jax.training.trainer import Trainer

_NOT_IN_A_STEP = {
    *("data", "vocabulary", "init", "init_layers", "checkpoints", "evaluation", "preparation", "input", "hosts"),
    *("from_random", "rows_hash", "seed"),
}
"""Settings that no traced function reads; the seed is in the state."""
_OF_ROWS = {"train": None, "dev": None, "other_dev": (), "source": None, "patience": None}
"""Settings of a task that no traced function reads, as they are without rows."""
_trainers: dict[tuple, Trainer] = {}
_objectives: dict[tuple[str, ...], FineTuningObjective] = {}
_outputs: dict[tuple, Callable] = {}
_measuring: dict[tuple, Callable] = {}


class _SharingTrainer(Trainer):
    """Has the settings of its own run, and what is traced and compiled of the first run that had such steps."""

    def __init__(self, config: TrainingConfig, first: Trainer):
        self.config, self.mesh, self.objective, self._first = config, first.mesh, first.objective, first
        self._optimizer = first._optimizer

    def initial_state(self, params=None):
        if "initial" not in self._first.__dict__:
            self._first.initial = jax.jit(self._first._make_state, out_shardings=self._shardings)
        return self._first.initial(np.uint32(self.config.seed), params)

    @functools.cached_property
    def train_step(self) -> Callable:
        if "steps" not in self._first.__dict__:
            self._first.steps = functools.cache(self._first.train_step)
        return self._first.steps

    _shapes = property(lambda self: self._first._shapes)
    _shardings = property(lambda self: self._first._shardings)


def _shared_trainer(config: RunConfig, mesh: Mesh, vocabulary: Vocabulary | int, *objective: Any) -> Trainer:
    pieces = (vocabulary, 4) if isinstance(vocabulary, int) else (len(vocabulary), vocabulary.mask_id)
    key = _settings(config), mesh, pieces, *objective
    if key not in _trainers:
        _trainers[key] = pretraining_trainer(config, mesh, vocabulary, *objective)
    return _SharingTrainer(config, _trainers[key])


def _settings(config: TrainingConfig) -> str:
    return config.model_dump_json(exclude=dict.fromkeys(_NOT_IN_A_STEP, True) | {"task": set(_OF_ROWS)})


def _shared_task_trainer(config: FinetuneConfig, mesh: Mesh, objective: FineTuningObjective) -> Trainer:
    key = _settings(config), mesh, objective
    if key not in _trainers:
        _trainers[key] = Trainer(config, mesh, objective)
    return _SharingTrainer(config, _trainers[key])


def _shared_objective(config: TaskRunConfig) -> FineTuningObjective:
    """The one objective of these settings, so that what is traced of it can be shared."""
    settings = config.model, config.execution, config.layers_frozen, config.probe
    key = tuple(map(repr, (config.task.replace(**_OF_ROWS), *settings)))
    if key not in _objectives:
        _objectives[key] = objective_of(config)
    return _objectives[key]


def _share_outputs() -> None:
    begin = Outputs.__init__

    @functools.wraps(begin)
    def sharing(self, objective, mesh):
        begin(self, objective, mesh)
        self._run = _outputs.setdefault((objective, mesh), self._run)

    Outputs.__init__ = sharing


def forget_steps() -> None:
    """Drops all steps that are shared so far, with the compiled programs that they hold."""
    for shared in (_trainers, _objectives, _outputs, _measuring):
        shared.clear()


def share_steps() -> None:
    """From now on training and what measures a run trace and compile a step once for all runs that have it."""
    begin = evaluation.HeldOut.__init__

    @functools.wraps(begin)
    def sharing(self, trainer, *arguments, **named):
        begin(self, trainer, *arguments, **named)
        self._step = _measuring.setdefault((self._objective, self._seed, trainer.mesh), self._step)

    evaluation.HeldOut.__init__ = sharing
    pretrain.pretraining_trainer = evaluation.pretraining_trainer = _shared_trainer
    finetune.Trainer, finetune.objective_of = _shared_task_trainer, _shared_objective
    _share_outputs()
