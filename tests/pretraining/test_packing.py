"""Packing is only arithmetic: the same sequences, one or several a row, have the same masks, loss and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from objectives import objective_of

from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.layout import MASKABLE, WORD_START, lay_out
from bert_jax.training.batch import Batch
from bert_jax.training.step import example_keys, loss_gradients

LENGTH, VOCABULARY = 128, 60
LENGTHS = np.array([50, 30, 40, 128, 9, 64, 60, 5, 5, 100, 20, 70])
ROWS = np.array([0, 0, 0, 1, 2, 2, 3, 3, 3, 4, 4, 5])
MODEL = ModelConfig(num_layers=2, hidden_size=128, num_heads=2, max_positions=LENGTH, vocabulary_size=VOCABULARY)


def batch_of(rows) -> Batch:
    """The sequences in these rows; each has the number that it has among all as its ordinal."""
    rng = np.random.default_rng(0)
    ids = rng.integers(5, VOCABULARY, LENGTHS.sum())
    units = np.where(rng.random(len(ids)) < 0.6, MASKABLE | WORD_START, MASKABLE).astype(np.uint8)
    first = LENGTHS // 2
    begins = np.cumsum(LENGTHS) - LENGTHS
    units[begins] = units[begins + first - 1] = units[begins + LENGTHS - 1] = 0
    units[begins + 1] |= WORD_START
    units[begins + first] |= WORD_START
    tokens = lay_out(ids, LENGTHS, first, (int(rows[-1]) + 1, LENGTH), units=units, rows=rows)
    number = np.arange(len(rows)) - np.searchsorted(rows, rows)
    ordinal, label = np.zeros(tokens.length.shape, np.uint32), np.zeros(tokens.length.shape, np.int32)
    ordinal[rows, number] = np.arange(len(rows))
    label[rows, number] = rng.integers(0, 2, len(rows))
    return jax.device_put(Batch(tokens, label, (tokens.length > 0).astype(np.float32), ordinal))


ALONE, PACKED = batch_of(np.arange(len(LENGTHS))), batch_of(ROWS)


def targets_and_gradients(batch, units="word", form="exact", microbatches=1):
    objective = objective_of(MODEL, ObjectiveConfig(units=units), execution=ExecutionConfig(attention=form, unroll=1))
    params = jax.jit(objective.init)(jax.random.key(0))

    @jax.jit
    def run(params, batch):
        targets = objective.targets(batch, example_keys(1, "targets", 0, batch.ordinal))
        keys = example_keys(1, "dropout", 0, batch.ordinal)
        return targets, *loss_gradients(objective, params, targets, keys, microbatches)

    return run(params, batch)


@pytest.fixture(scope="module")
def alone():
    return targets_and_gradients(ALONE)


@pytest.mark.parametrize("form, microbatches", [("exact", 1), ("exact", 3), ("tpu", 1)])
@pytest.mark.long
def test_loss_and_gradients_are_the_same(alone, on_tpu, form, microbatches):
    _, gradients, means = alone
    _, of_packed, means_of_packed = targets_and_gradients(PACKED, form=form, microbatches=microbatches)
    for name, mean in means.items():
        assert float(mean.count) == float(means_of_packed[name].count)
        assert float(mean.total) == pytest.approx(float(means_of_packed[name].total), rel=1e-6), name
    for path, expected in jax.tree.leaves_with_path(gradients):
        found = of_packed
        for key in path:
            found = found[key.key]
        # Biases are sums of both signs, whose rounding is that of the terms: 1e-8 is a millionth of 0.01.
        assert jnp.abs(found - expected).max() <= 1e-6 * jnp.abs(expected).max() + 1e-8, jax.tree_util.keystr(path)


def test_dropout_differs_where_the_key_does(alone):
    _, _, means = alone
    others = PACKED._replace(ordinal=PACKED.ordinal + jnp.uint32(100))
    _, _, of_others = targets_and_gradients(others)
    assert float(means["mlm_loss"].total) != pytest.approx(float(of_others["mlm_loss"].total), rel=1e-4)
