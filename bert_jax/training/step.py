"""The training step and the evaluation step, the same for every objective."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, UInt32

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.model.bert import Parameters, split_teacher
from bert_jax.model.kernels.elementwise import updated_if
from bert_jax.model.size import FORWARD_SHARE
from bert_jax.run.measurement import Mean, Means, add
from bert_jax.run.state import TrainState
from bert_jax.training.batch import AnyBatch

PURPOSES = {"parameters": 0, "targets": 1, "dropout": 2, "evaluation": 3}
"""Purposes of random keys and their numbers; each purpose has its own stream."""

STEP_MEASUREMENTS = ("loss", "grad_norm", "learning_rate", "tokens")
"""Measurements of a step besides those of its objective. `tokens` counts the tokens of a step without padding."""

Tree = TypeVar("Tree")
RunSeed = int | UInt32[Array, ""]
Targets = Any
"""An objective's input and labels for a batch: a tree of arrays whose first axis is the batch's."""


class Moment(NamedTuple):
    """The progress of a training within its phase."""

    phase: int
    done: Float[Array, ""]
    """Share of the phase's steps that are done, from 0 in the first step to 1 in the last."""

    @classmethod
    def of(cls, phase: int, steps: range, step: Int[Array, ""] | int) -> "Moment":
        """The moment of step `step` of the run; `steps`: the steps of the phase."""
        return cls(phase, jnp.asarray(step - steps.start, jnp.float32) / max(len(steps) - 1, 1))


class Objective(ABC):
    """A training objective: the model, the targets it draws from a batch, and its losses and measurements."""

    model: ModelConfig
    """The settings of the model, with the size of its vocabulary."""
    losses: Mapping[str, float]
    """Names of the measurements whose means, each times its weight, add up to the loss."""
    measurements: tuple[str, ...]
    """Names of all measurements that `measure` returns."""
    headings: Mapping[str, str]
    """What the progress line calls the measurements that it shows beside the loss, by the name of the measurement."""

    def in_phase(self, phase: int) -> "Objective":
        """The objective with the model's settings for phase number `phase`; by default the objective itself."""
        return self

    def learns(self, params: Parameters) -> Parameters | None:
        """For each of `params`, a NumPy array of booleans that broadcasts with it and says which values are trained;
        None if all are."""
        return None

    def optimizer(self, optimizer: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
        """`optimizer` as the objective uses it; by default unchanged. Both have the same state."""
        return optimizer

    @abstractmethod
    def init(self, key: Key[Array, ""]) -> Parameters:
        """Random parameters of the model. Equal keys give equal values."""

    @property
    def parameter_shapes(self) -> Parameters:
        """The tree of `init` as shapes and types; nothing is allocated."""
        return jax.eval_shape(lambda: self.init(jax.random.key(0)))

    @abstractmethod
    def flops(self, shape: tuple[int, ...]) -> float:
        """FLOPs of the matrix products in one step on a batch whose ids have this shape, by formula."""

    def forward_flops(self, shape: tuple[int, ...]) -> float:
        """FLOPs of the matrix products in the forward pass of one step, by formula."""
        return self.flops(shape) * FORWARD_SHARE

    @abstractmethod
    def random_batch(self, shape: tuple[int, ...]) -> AnyBatch:
        """A batch of full rows of random pieces whose ids have this shape, for a step without data."""

    @abstractmethod
    def targets(self, batch: Any, keys: Key[Array, "B *N"], moment: Moment | None = None) -> Targets:
        """Input and labels of each example of `batch`, an AnyBatch. All randomness of an example comes from its key.
        `moment` is None in an evaluation."""

    @abstractmethod
    def counts(self, targets: Targets) -> dict[str, Float[Array, ""]]:
        """The denominator of each of `losses` over all of `targets`, which is known before the model runs."""

    @abstractmethod
    def measure(self, params: Parameters, targets: Targets, dropout_keys: Key[Array, "B *N"] | None) -> Means:
        """Runs the model; returns its losses and all other measurements."""

    def gradients(
        self, params: Parameters, targets: Targets, dropout_keys: Key[Array, "B *N"], microbatches: int
    ) -> tuple[Parameters, Means]:
        """Gradients of the loss, and the measurements. By default the gradients and measurements of `microbatches` are
        added up, which is right for a loss that is a sum over rows."""
        return loss_gradients(self, params, targets, dropout_keys, microbatches)


def purpose_key(seed: RunSeed, purpose: str) -> Key[Array, ""]:
    """The key of all randomness for `purpose` in a run."""
    return jax.random.fold_in(jax.random.key(seed), PURPOSES[purpose])


def example_keys(seed: RunSeed, purpose: str, phase: int, ordinals: UInt32[Array, "*B"]) -> Key[Array, "*B"]:
    """One key for each ordinal, the same in any batch and on any device."""
    phase_key = jax.random.fold_in(purpose_key(seed, purpose), phase)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(phase_key, ordinals.reshape(-1))
    return keys.reshape(ordinals.shape)


def targets_and_keys(
    objective: Objective, seed: RunSeed, batch: AnyBatch, phase: int, moment: Moment
) -> tuple[Targets, Key[Array, "B *N"]]:
    """The targets of a training step on `batch`, and the keys of its dropout."""
    targets = objective.targets(batch, example_keys(seed, "targets", phase, batch.ordinal), moment)
    return targets, example_keys(seed, "dropout", phase, batch.ordinal)


def initial_state(
    params: Parameters, optimizer: optax.GradientTransformation, names: tuple[str, ...], seed: RunSeed
) -> TrainState:
    """The state before the first step; `names` are the names of the window's measurements. A teacher's parameters have
    no slots in the optimizer."""
    zero, window = jnp.zeros((), jnp.int32), {name: Mean.zero() for name in names}
    return TrainState(
        zero, params, optimizer.init(split_teacher(params)[0]), window, zero, zero, jnp.asarray(seed, jnp.uint32)
    )


def make_train_step(
    objective: Objective,
    optimizer: optax.GradientTransformationExtraArgs,
    learning_rate: optax.Schedule,
    execution: ExecutionConfig,
    *,
    phase: int,
    steps: range,
    window: int,
) -> Callable[[TrainState, AnyBatch], tuple[TrainState, Means]]:
    """`(state, batch) -> (state, measurements of the window so far)`, to be jitted with the state donated.

    `optimizer` has learning rate 1 and takes extra arguments (`optax.with_extra_args_support`): its updates are scaled
    by `learning_rate`, and it receives the gradients' global norm as `gradient_norm`. `steps`: the steps of the run
    that belong to the phase.

    The window restarts every `window` steps. The measurement `skipped_records` counts the rows of weight 0 of this step
    alone; `skipped` and `skipped_in_a_row` count steps of the run up to this one. If the gradients are not finite,
    parameters, optimizer and window stay unchanged. The parameters of a teacher never change.
    """

    def train_step(state: TrainState, batch: AnyBatch) -> tuple[TrainState, Means]:
        moment = Moment.of(phase, steps, state.step)
        targets, dropout_keys = targets_and_keys(objective, state.seed, batch, phase, moment)
        gradients, means = objective.gradients(state.params, targets, dropout_keys, execution.accumulation)
        norm = optax.tree.norm(gradients)
        good = jnp.isfinite(norm)
        rate = learning_rate(state.step)
        own, of_teacher = split_teacher(state.params)

        def updated() -> tuple[Parameters, Any]:
            updates, slots = optimizer.update(gradients, state.optimizer, own, gradient_norm=norm)
            return jax.tree.map(lambda old, update: old + rate * update, own, updates), slots

        params, slots = updated_if(good, updated, (own, state.optimizer))
        loss, one = sum(weight * means[name].value for name, weight in objective.losses.items()), jnp.ones(())
        means |= {
            "loss": Mean(cast(Array, loss), one),
            "grad_norm": Mean(norm, one),
            "learning_rate": Mean(rate, one),
            "tokens": Mean(jnp.sum(batch.tokens.length, dtype=jnp.float32), one),
        }
        begun = state.step % window > 0
        so_far = {name: Mean(mean.total * begun, mean.count * begun) for name, mean in state.window.items()}
        state = TrainState(
            step=state.step + 1,
            params={**params, **of_teacher},
            optimizer=slots,
            window={name: mean.where(good, so_far[name]) for name, mean in add(so_far, means).items()},
            skipped=state.skipped + ~good,
            skipped_in_a_row=(state.skipped_in_a_row + 1) * ~good,
            seed=state.seed,
        )
        is_empty = (batch.weight == 0).reshape(len(batch.weight), -1).all(axis=1)
        return state, state.window | {
            "skipped": Mean(state.skipped.astype(jnp.float32), one),
            "skipped_in_a_row": Mean(state.skipped_in_a_row.astype(jnp.float32), one),
            "skipped_records": Mean(jnp.sum(is_empty, dtype=jnp.float32), one),
        }

    return train_step


def loss_gradients(
    objective: Objective, params: Parameters, targets: Targets, dropout_keys: Key[Array, "B *N"], microbatches: int
) -> tuple[Parameters, Means]:
    """Gradients of the loss, added up over microbatches; each loss is divided by the count of the whole batch. A
    teacher's parameters have no gradients."""
    counts = objective.counts(targets)
    params, of_teacher = split_teacher(params)

    def loss(params: Parameters, part: tuple[Targets, Key[Array, "b *N"]]) -> tuple[Float[Array, ""], Means]:
        learned = _without_frozen(params, objective.learns(params))
        means = objective.measure({**learned, **of_teacher}, *part)
        # A batch without any predicted token has a count of 0. Class weights may add up to less than 1.
        parts = (
            weight * means[name].total / jnp.where(counts[name] > 0, counts[name], 1.0)
            for name, weight in objective.losses.items()
        )
        return cast(Array, sum(parts)), means

    if microbatches == 1:
        return jax.grad(loss, has_aux=True)(params, (targets, dropout_keys))

    def accumulate(so_far, part):
        gradients, means = jax.grad(loss, has_aux=True)(params, part)
        return (jax.tree.map(jnp.add, so_far[0], gradients), add(so_far[1], means)), None

    parts = jax.tree.map(lambda x: every_nth(x, microbatches), (targets, dropout_keys))
    shapes = jax.eval_shape(lambda part: loss(params, part)[1], jax.tree.map(lambda x: x[0], parts))
    zero = (jax.tree.map(jnp.zeros_like, params), jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes))
    return jax.lax.scan(accumulate, zero, parts)[0]


def _without_frozen(params: Parameters, learned: Parameters | None) -> Parameters:
    """`params`, with gradients stopped at each array of which no value is trained."""
    if learned is None:
        return params
    return jax.tree.map(lambda leaf, where: leaf if np.any(where) else jax.lax.stop_gradient(leaf), params, learned)


def every_nth(x: Array, n: int) -> Array:
    """[B, ...] -> [n, B/n, ...]. Part i takes every nth row from row i on, so that each device keeps its own rows."""
    return x.reshape(len(x) // n, n, *x.shape[1:]).swapaxes(0, 1)


def undo_every_nth(parts: Array) -> Array:
    """[n, B/n, ...] -> [B, ...]. Joins the parts of `every_nth`."""
    return parts.swapaxes(0, 1).reshape(-1, *parts.shape[2:])


def make_evaluation_step(objective: Objective, *, seed: int) -> Callable[[Parameters, AnyBatch], Means]:
    """`(params, batch) -> measurements`, without dropout; the same targets every time."""

    def evaluation_step(params: Parameters, batch: AnyBatch) -> Means:
        targets = objective.targets(batch, example_keys(seed, "evaluation", 0, batch.ordinal))
        return objective.measure(params, targets, None)

    return evaluation_step
