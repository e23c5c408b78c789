"""The compiled steps of a training, also for bench and plan, and the phases of a training."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import jax
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, UInt32

from bert_jax.config.training import TrainingConfig
from bert_jax.model.bert import Parameters, completed
from bert_jax.model.kernels.platform import compute_dtype
from bert_jax.model.sharding import abstract, batch_sharding, local_rows, on_mesh, placed, row_shards, state_shardings
from bert_jax.run.measurement import Means
from bert_jax.run.results import Results
from bert_jax.run.state import TrainState
from bert_jax.training.batch import AnyBatch, NumberedBatches, read_ahead
from bert_jax.training.devices import compiler_options
from bert_jax.training.optimizer import learning_only, learning_rate, make_optimizer
from bert_jax.training.step import (
    STEP_MEASUREMENTS,
    Moment,
    Objective,
    initial_state,
    make_train_step,
    purpose_key,
    targets_and_keys,
)

Config = TypeVar("Config", bound=TrainingConfig)
Learned = TypeVar("Learned", bound=Objective)


class Trainer(Generic[Config, Learned]):
    """The compiled steps and the shardings of one training. It needs no data."""

    def __init__(
        self,
        config: Config,
        mesh: Mesh,
        objective: Learned,
        optimizer: optax.GradientTransformationExtraArgs | None = None,
    ):
        """`optimizer` has learning rate 1, as `make_train_step` requires; None: that of `config.optimizer`."""
        self.config, self.mesh, self.objective = config, mesh, objective
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):  # the type depends on the mesh's devices
            dtype = compute_dtype(objective.model)
        self._optimizer = objective.optimizer(optimizer or make_optimizer(config.optimizer, dtype))

    def initial_state(self, params: Parameters | None = None) -> TrainState:
        """The state before the first step, created with its shardings. Its parameters are `params`, with random values
        for parts that these lack. The values are the same on every mesh."""
        return jax.jit(self._make_state, out_shardings=self._shardings)(np.uint32(self.config.seed), params)

    @cached_property
    def state_shapes(self) -> TrainState:
        """Shapes, types and shardings of the state."""
        return abstract(self._shapes, self._shardings)

    def train_step(self, phase: int) -> jax.stages.Wrapped:
        """The jitted step of phase number `phase`: (state, batch) -> (state, measurements). The state is donated."""
        objective = self.objective.in_phase(phase)
        step = make_train_step(
            objective,
            learning_only(self._optimizer, objective.learns),
            learning_rate(self.config.optimizer, self.config.steps),
            self.config.execution,
            phase=phase,
            steps=self.config.steps_of(phase),
            window=self.config.log_every,
        )
        rows = batch_sharding(self.mesh)
        return jax.jit(
            on_mesh(self.mesh, step),
            in_shardings=(self._shardings, rows),
            out_shardings=(self._shardings, None),
            donate_argnums=0,
            compiler_options=compiler_options(self.mesh.devices.flat[0].platform),
        )

    def parts(
        self, phase: int
    ) -> tuple[Callable[[Parameters, AnyBatch], Means], Callable[[Parameters, AnyBatch], Any]]:
        """Functions to time: the forward pass of a training step, and the forward and backward passes together."""
        objective, steps = self.objective.in_phase(phase), self.config.steps_of(phase)
        first = Moment.of(phase, steps, steps.start)

        def forward(params: Parameters, batch: AnyBatch) -> Means:
            return objective.measure(params, *targets_and_keys(objective, self.config.seed, batch, phase, first))

        def backward(params: Parameters, batch: AnyBatch) -> Any:
            targets, keys = targets_and_keys(objective, self.config.seed, batch, phase, first)
            return objective.gradients(params, targets, keys, self.config.execution.accumulation)

        return on_mesh(self.mesh, forward), on_mesh(self.mesh, backward)

    def flops(self, phase: int) -> float:
        """FLOPs of one step of a phase, by formula, over all devices."""
        return self.objective.flops(self.config.ids_shape(phase))

    @cached_property
    def _shardings(self) -> TrainState:
        return state_shardings(self._shapes, self._shapes.params, self.mesh)

    @cached_property
    def _shapes(self) -> TrainState:
        return jax.eval_shape(self._make_state, np.uint32(self.config.seed))

    def _make_state(self, seed: UInt32[Array, ""], params: Parameters | None = None) -> TrainState:
        random = self.objective.init(purpose_key(seed, "parameters"))
        params = completed(params, random) if params else random
        return initial_state(params, self._optimizer, (*self.objective.measurements, *STEP_MEASUREMENTS), seed)


@runtime_checkable
class Evaluator(Protocol):
    """Measures a model on held-out data."""

    def evaluate(self, params: Parameters, between: Callable[[], None]) -> Results:
        """Returns the measurements, which the caller logs. `between` is called before each batch, and may raise."""


@dataclass(frozen=True)
class PhaseWork:
    """One phase of a training, ready to run: its batches, its step and its evaluation."""

    trainer: Trainer
    number: int
    """Number of the phase in the settings, from 0."""
    source: NumberedBatches
    """The batches of the phase; each has the rows of this process' devices."""
    evaluator: Evaluator | None
    """The evaluation on held-out data; None if nothing is held out."""
    records_hint: Callable[[int], str]
    """Returns a message with the command that shows the training records of a step of the run."""
    sequences: float
    """Number of sequences a step; with packed rows, the average."""
    name: str
    """Title of the phase in the progress."""
    packed: float | None = None
    """Average number of sequences a row; None if each row holds one."""
    skips_records: bool = False
    """Whether a batch has a row of weight 0 in place of each damaged record."""
    score: str = "score"
    """The name of an evaluation's score."""
    harm: Callable[[Mapping[str, float | None], Mapping[str, float], float], str | None] | None = None
    """Returns a message if training has made its initial model worse, otherwise None. Its arguments are the evaluation
    before the first step, the newest evaluation, and the share of the steps that are done. A message ends the training.
    With `harm`, the initial parameters are evaluated before the first step."""
    patience: int | None = None
    """The phase ends after this many evaluations in a row without a better score; None: with its last step."""

    @property
    def steps(self) -> int:
        """Number of steps of the phase."""
        return self.trainer.config.phases[self.number].steps

    @property
    def first(self) -> int:
        """Number of steps of the phases before this one."""
        return self.trainer.config.steps_of(self.number).start

    @property
    def last(self) -> int:
        """The last step of the phase, counted from the beginning of the run."""
        return self.first + self.steps

    @property
    def later(self) -> float:
        """The work of the later phases by FLOPs, as a number of steps of this phase."""
        flops, phases = self.trainer.flops, self.trainer.config.phases
        later = range(self.number + 1, len(phases))
        return sum(phases[number].steps * flops(number) for number in later) / flops(self.number)

    @cached_property
    def train_step(self) -> jax.stages.Wrapped:
        """The jitted step; the state is donated."""
        return self.trainer.train_step(self.number)

    def batches(self, first: int) -> Iterator[AnyBatch]:
        """Batches from step `first` of the phase on, on the devices."""
        rows, shards = batch_sharding(self.trainer.mesh), row_shards(self.trainer.mesh)
        shares = shards // len(local_rows(rows, shards))
        for batch in read_ahead(self.source, first):
            yield placed(batch, rows, len(batch.weight) * shares)  # batches of one phase differ in their rows

    def flops(self, shape: tuple[int, ...]) -> float:
        """FLOPs of one step on a batch whose ids have this shape, by formula, over all devices."""
        return self.trainer.objective.flops(shape)

    def note(
        self, values: dict[str, float], sequences_per_second: float | None = None, fill: float | None = None
    ) -> str:
        """Formats measurements for the progress line. The score is shown once, under its own name.

        `fill`: the share of positions that hold tokens, shown for packed rows.
        """
        shown = [("loss", "loss", ".3f"), ("score", self.score, ".4f")]
        for name, heading in self.trainer.objective.headings.items():
            if not (name == self.score and "score" in values):
                shown.append((name, heading, ".3f"))
        shown.append(("learning_rate", "rate", ".2e"))
        # A share is NaN if the batch has no case for it, for example only pairs of equal scores.
        parts = [
            f"{label} {values[name]:{digits}}"
            for name, label, digits in shown
            if name in values and (name in ("loss", "score") or not math.isnan(values[name]))
        ]
        if values.get("skipped"):
            parts.append(f"{values['skipped']:.0f} steps skipped")
        if sequences_per_second:
            parts.append(f"{sequences_per_second:,.0f} sequences/s")
        if self.packed and fill:
            parts.append(f"{self.packed:.1f} sequences a row, {fill:.0%} filled")
        return ", ".join(parts)
