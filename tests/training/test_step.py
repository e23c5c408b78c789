import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_states import equal
from token_rows import tokens_of

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.training import OptimizerConfig
from bert_jax.model.kernels import elementwise
from bert_jax.run.measurement import Mean
from bert_jax.training.batch import Batch
from bert_jax.training.optimizer import learning_rate, make_optimizer
from bert_jax.training.step import (
    STEP_MEASUREMENTS,
    Objective,
    example_keys,
    initial_state,
    make_evaluation_step,
    make_train_step,
    purpose_key,
)


class Regression(Objective):
    """y = x w, where each example has a random number of its own and one in ids[:, 1] for its weight."""

    model = ModelConfig()
    losses = {"square": 1.0}
    measurements = ("square", "largest")
    labels = {}

    def init(self, key):
        raise NotImplementedError

    def flops(self, shape):
        raise NotImplementedError

    def random_batch(self, shape):
        raise NotImplementedError

    def targets(self, batch, keys, moment=None):
        noise = jax.vmap(jax.random.normal)(keys)
        return {"x": batch.tokens.ids.astype(jnp.float32), "noise": noise, "weight": batch.weight}

    def counts(self, targets):
        return {"square": jnp.sum(targets["weight"])}

    def measure(self, params, targets, dropout_keys):
        extra = 0.0 if dropout_keys is None else jax.vmap(jax.random.normal)(dropout_keys)
        error = jnp.square(targets["x"] @ params["task"]["dense"]["kernel"] + extra - targets["noise"])
        largest = Mean(jnp.sum(error), jnp.sum(jnp.ones_like(error)))
        return {"square": Mean.of(error, targets["weight"]), "largest": largest}


def batch(first=0, rows=8, poison=False):
    ids = np.random.default_rng(first).integers(0, 5, (rows, 3)).astype(np.int32)
    weight = np.where(np.arange(rows) % 3 == 2, 0, 1).astype(np.float32)
    if poison:
        weight[0] = np.inf
    tokens = tokens_of(ids, mask=np.broadcast_to(weight[:, None] > 0, ids.shape))
    ordinals = np.arange(first, first + rows, dtype=np.uint32)
    return Batch(tokens, *map(jnp.asarray, (np.zeros(rows, np.int32), weight, ordinals)))


def start():
    config = OptimizerConfig(peak_learning_rate=0.01, warmup=0.0)
    optimizer = make_optimizer(config)
    params = {"task": {"dense": {"kernel": jnp.array([0.3, -0.2, 0.5])}}}
    return config, optimizer, initial_state(params, optimizer, (*Regression.measurements, *STEP_MEASUREMENTS), seed=1)


def train(batches, accumulation=1, window=100):
    config, optimizer, state = start()
    execution = ExecutionConfig(accumulation=accumulation)
    how = {"phase": 0, "steps": range(100), "window": window}
    step = jax.jit(make_train_step(Regression(), optimizer, learning_rate(config, 100), execution, **how))
    for one in batches:
        state, measured = step(state, one)
    return state, {name: float(mean.value) for name, mean in measured.items()}


@pytest.mark.parametrize("accumulation", [2, 4, 8])
def test_microbatches_give_the_step_of_the_whole_batch(accumulation):
    batches = [batch(8 * number) for number in range(5)]
    whole, measured = train(batches)
    parts, measured_in_parts = train(batches, accumulation)
    np.testing.assert_allclose(
        parts.params["task"]["dense"]["kernel"], whole.params["task"]["dense"]["kernel"], rtol=1e-5
    )
    assert measured_in_parts == pytest.approx(measured, rel=1e-5)
    moved = np.abs(whole.params["task"]["dense"]["kernel"] - start()[2].params["task"]["dense"]["kernel"])
    assert moved.min() > 1e-3


@pytest.mark.parametrize("kind", ["cpu", "tpu"])
def test_a_step_without_finite_gradients_changes_nothing_but_the_counts(monkeypatch, kind):
    monkeypatch.setattr(elementwise, "platform", lambda: kind)
    good = [batch(0), batch(8)]
    expected, _ = train(good)
    state, measured = train([good[0], batch(16, poison=True), batch(24, poison=True)])
    after_one, _ = train(good[:1])
    assert equal(state.params, after_one.params) and equal(state.optimizer, after_one.optimizer)
    assert (int(state.step), int(state.skipped), int(state.skipped_in_a_row)) == (3, 2, 2)
    assert measured["skipped_in_a_row"] == 2 and np.isfinite(measured["loss"])
    state, measured = train([good[0], batch(16, poison=True), good[1]])
    assert (int(state.skipped), int(state.skipped_in_a_row)) == (1, 0)
    assert equal(state.optimizer, expected.optimizer)  # the learning rate alone follows the step


def test_the_window_begins_anew_at_its_end():
    batches = [batch(8 * number) for number in range(7)]
    measured_of = lambda some: train(some, window=3)[0].window
    of_the_last = jax.tree.map(lambda x: x, measured_of(batches))
    assert int(of_the_last["loss"].count) == 1  # step 7 is the first of the third window
    assert int(measured_of(batches[:6])["loss"].count) == 3
    assert int(measured_of(batches[:2])["loss"].count) == 2


def test_measurements_are_weighted_and_loss_is_their_sum():
    _, measured = train([batch(0)])
    assert measured["loss"] == pytest.approx(measured["square"])
    assert measured["tokens"] == 3 * 6  # rows of weight 0 have no tokens
    assert measured["learning_rate"] == pytest.approx(0.01)


def test_keys_follow_the_example_the_purpose_the_phase_and_the_seed():
    ordinals = jnp.arange(10, dtype=jnp.uint32)
    kinds = itertools.product((0, 1), ("targets", "dropout"), (0, 1))
    keys = [example_keys(*kind, ordinals) for kind in kinds]
    data = np.concatenate([jax.random.key_data(some) for some in keys])
    assert len(np.unique(data, axis=0)) == 80
    later = example_keys(0, "targets", 0, ordinals[4:])
    assert np.array_equal(jax.random.key_data(later), jax.random.key_data(keys[0])[4:])
    assert not np.array_equal(*(jax.random.key_data(purpose_key(0, name)) for name in ("parameters", "evaluation")))


def test_evaluation_has_no_dropout_and_the_same_targets_every_time():
    step = jax.jit(make_evaluation_step(Regression(), seed=1))
    params = start()[2].params
    first, second = step(params, batch(0)), step(params, batch(0))
    assert equal(first, second)
    alone = [step(params, jax.tree.map(lambda x: x[row : row + 1], batch(0))) for row in range(8)]
    assert float(sum(one["square"].total for one in alone)) == pytest.approx(float(first["square"].total), rel=1e-5)
