"""A training's parts put together: what trains, is benchmarked and is planned; and its phases, ready to run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, UInt32

from bert_jax.config.training import TrainingConfig
from bert_jax.model.bert import Parameters, completed
from bert_jax.model.sharding import abstract, batch_sharding, on_mesh, slot_shardings, tree_shardings
from bert_jax.run.measurement import Means
from bert_jax.run.state import TrainState
from bert_jax.training.batch import AnyBatch
from bert_jax.training.optimizer import learning_only, learning_rate, make_optimizer
from bert_jax.training.step import (
    STEP_MEASUREMENTS,
    Moment,
    Objective,
    drawn,
    initial_state,
    loss_gradients,
    make_train_step,
    purpose_key,
)


class Trainer:
    """The compiled steps and the shardings of one training. It needs no data."""

    def __init__(
        self,
        config: TrainingConfig,
        mesh: Mesh,
        objective: Objective,
        optimizer: optax.GradientTransformation | None = None,
    ):
        """`optimizer`: of optax, at learning rate 1: the schedule's rate multiplies its updates. None: the config's."""
        self.config, self.mesh, self.objective = config, mesh, objective
        self._optimizer = learning_only(optimizer or make_optimizer(config.optimizer), objective.learns)

    def initial_state(self, params: Parameters | None = None) -> TrainState:
        """The state before the first step, born with its shardings: `params`, and random what they lack.

        The same on every mesh.
        """
        return jax.jit(self._make_state, out_shardings=self._shardings)(np.uint32(self.config.seed), params)

    @cached_property
    def state_shapes(self) -> TrainState:
        """Shapes, types and shardings of the state."""
        return abstract(self._shapes, self._shardings)

    def train_step(self, phase: int) -> Callable[[TrainState, AnyBatch], tuple[TrainState, Means]]:
        """The jitted step of phase number `phase`. The state is donated."""
        step = make_train_step(
            self.objective.in_phase(phase),
            self._optimizer,
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
        )

    def parts(
        self, phase: int
    ) -> tuple[Callable[[Parameters, AnyBatch], Means], Callable[[Parameters, AnyBatch], Any]]:
        """The forward pass of a training step, and forward with backward, as functions to be timed."""
        objective, steps = self.objective.in_phase(phase), self.config.steps_of(phase)
        first = Moment.of(phase, steps, steps.start)

        def forward(params: Parameters, batch: AnyBatch) -> Means:
            return objective.measure(params, *drawn(objective, self.config.seed, batch, phase, first))

        def backward(params: Parameters, batch: AnyBatch) -> Any:
            asked = drawn(objective, self.config.seed, batch, phase, first)
            return loss_gradients(objective, params, *asked, self.config.execution.accumulation)

        return on_mesh(self.mesh, forward), on_mesh(self.mesh, backward)

    def flops(self, phase: int) -> float:
        """FLOPs of one step of a phase, by formula, over all devices."""
        settings = self.config.phases[phase]
        return self.objective.flops((settings.batch_size, settings.length))

    @cached_property
    def _shardings(self) -> TrainState:
        shapes = self._shapes
        shardings = slot_shardings(shapes, shapes.params, self.mesh)
        return shardings._replace(params=tree_shardings(shapes.params, self.mesh))

    @cached_property
    def _shapes(self) -> TrainState:
        return jax.eval_shape(self._make_state, np.uint32(self.config.seed))

    def _make_state(self, seed: UInt32[Array, ""], params: Parameters | None = None) -> TrainState:
        random = self.objective.init(purpose_key(seed, "parameters"))
        params = completed(params, random) if params else random
        return initial_state(params, self._optimizer, (*self.objective.measurements, *STEP_MEASUREMENTS), seed)


class PhaseWork(NamedTuple):
    """One phase, ready to run."""

    name: str
    first: int
    """Steps of the phases before it."""
    steps: int
    batches: Callable[[int], Iterator[AnyBatch]]
    """Batches from the given step of the phase on, on the devices."""
    records: Callable[[int], Sequence[int]]
    """The numbers, in the data set, of the training records in the batch of the given step."""
    told: str
    """A sentence that tells a user how to look at the records of a step; `{step}` stands for it."""
    skips_records: bool
    """Whether a batch leaves out damaged ones, as rows of weight 0."""
    train_step: Callable[[TrainState, AnyBatch], tuple[TrainState, Means]]
    """The jitted step; the state is donated."""
    evaluate: Callable[[Parameters, Callable[[], bool]], dict[str, Any] | None] | None
    """Evaluates on held-out documents; of the results the floats are logged. Asks after each batch whether to stop, and
    then returns None."""
    sequences: float
    """Sequences a step: where rows hold several, as many as such rows hold on average."""
    flops: Callable[[tuple[int, ...]], float]
    """FLOPs of one step on a batch whose ids have this shape, over all devices."""
    shown: Mapping[str, str]
    """What measurements beside the loss are called in the progress line."""
    score: str = "score"
    """What the score of an evaluation is called."""
    patience: int | None = None
    """The phase ends after this many evaluations in a row without a better score; None: with its last step."""

    def note(self, values: dict[str, float], sequences_per_second: float | None = None) -> str:
        """Formats measurements for the progress line. The score is shown once, under its own name."""
        labels = [("loss", "loss", ".3f"), ("score", self.score, ".4f")]
        for name, label in self.shown.items():
            if not (name == self.score and "score" in values):
                labels.append((name, label, ".3f"))
        labels.append(("learning_rate", "rate", ".2e"))
        parts = [f"{label} {values[name]:{form}}" for name, label, form in labels if name in values]
        if values.get("skipped"):
            parts.append(f"{values['skipped']:.0f} steps skipped")
        if sequences_per_second:
            parts.append(f"{sequences_per_second:,.0f} sequences/s")
        return ", ".join(parts)
