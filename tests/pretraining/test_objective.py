import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.model.bert import BertForPretraining, init
from bert_jax.pretraining.objective import PretrainingObjective
from bert_jax.system.batch import MASKABLE, WORD_START, Batch

MODEL = ModelConfig(num_layers=1, hidden_size=16, num_heads=2, max_positions=24, vocabulary_size=60)


def batch(rows=6, length=24, real=None):
    rng = np.random.default_rng(0)
    sizes = rng.integers(10, length + 1, rows).astype(np.int32)
    at = np.arange(length)
    ids = np.where(at < sizes[:, None], rng.integers(5, 60, (rows, length)), 0).astype(np.int32)
    units = np.where(at < sizes[:, None], MASKABLE | WORD_START, 0).astype(np.uint8)
    weight = (np.arange(rows) < (rows if real is None else real)).astype(np.float32)
    arrays = (
        ids,
        units,
        sizes,
        sizes // 2,
        np.arange(rows, dtype=np.int32) % 2,
        weight,
        np.arange(rows, dtype=np.uint32),
    )
    return Batch(*map(jnp.asarray, arrays))


@pytest.fixture(scope="module")
def objective():
    return PretrainingObjective(ObjectiveConfig(), MODEL, 4, ExecutionConfig())


@pytest.fixture(scope="module")
def params():
    return jax.jit(init, static_argnums=0)(MODEL, jax.random.key(0))


def measure(objective, params, batch):
    keys = jax.random.split(jax.random.key(1), len(batch.ids))
    means = jax.jit(lambda params, batch: objective.measure(params, objective.targets(batch, keys), None))(
        params, batch
    )
    return {name: (float(mean.total), float(mean.count)) for name, mean in means.items()}


def test_segments_and_mask_follow_the_lengths(objective):
    some = batch()
    targets = objective.targets(some, jax.random.split(jax.random.key(1), 6))
    for row in range(6):
        size, first = int(some.length[row]), int(some.first_length[row])
        assert targets.segments[row].tolist() == [0] * first + [1] * (size - first) + [0] * (24 - size)
        assert targets.mask[row].tolist() == [True] * size + [False] * (24 - size)


def test_counts_are_known_before_the_model_runs(objective, params):
    some = batch(real=4)
    targets = objective.targets(some, jax.random.split(jax.random.key(1), 6))
    counts = objective.counts(targets)
    measured = measure(objective, params, some)
    assert set(measured) == set(objective.measurements)
    assert all(float(counts[name]) == measured[name][1] for name in objective.losses)
    assert measured["nsp_loss"][1] == 4


def test_fillers_count_for_nothing(objective, params):
    with_fillers = measure(objective, params, batch(real=4))
    keys_of_six = jax.random.split(jax.random.key(1), 6)
    four = jax.tree.map(lambda array: array[:4], batch())
    means = objective.measure(params, objective.targets(four, keys_of_six[:4]), None)
    for name, (total, count) in with_fillers.items():
        assert total == pytest.approx(float(means[name].total), rel=1e-5) and count == float(means[name].count)


def test_an_untrained_model_is_about_as_good_as_chance(objective, params):
    measured = measure(objective, params, batch(rows=200))
    value = lambda name: measured[name][0] / measured[name][1]
    assert value("mlm_loss") == pytest.approx(np.log(60), rel=0.05)
    assert value("nsp_loss") == pytest.approx(np.log(2), rel=0.05)


def test_without_pairs_there_is_one_task(params):
    alone = PretrainingObjective(ObjectiveConfig(pair="none"), MODEL, 4, ExecutionConfig())
    both = PretrainingObjective(ObjectiveConfig(), MODEL, 4, ExecutionConfig())
    measured = measure(alone, params, batch())
    assert alone.losses == ("mlm_loss",) and set(measured) == set(alone.measurements) == {"mlm_loss", "mlm_accuracy"}
    assert measured["mlm_loss"] == pytest.approx(measure(both, params, batch())["mlm_loss"])


def test_each_next_token_is_predicted_from_those_before_it(params):
    causal = MODEL.replace(causal=True)
    objective = PretrainingObjective(
        ObjectiveConfig(predict="next", pair="none"), causal, 4, ExecutionConfig(remat="full")
    )
    some = batch(real=4)._replace(first_length=batch().length)
    measured = measure(objective, params, some)
    assert objective.losses == ("lm_loss",) and objective.score == "lm_accuracy"
    assert set(measured) == set(objective.measurements) == {"lm_loss", "lm_accuracy"}
    assert measured["lm_loss"][1] == measured["lm_accuracy"][1] == int(some.length[:4].sum()) - 4
    network = jax.jit(lambda params, *seen: BertForPretraining(causal).apply({"params": params}, *seen, None))
    inside = jnp.arange(24) < some.length[:, None]
    likely = np.asarray(jax.nn.log_softmax(network(params, some.ids, jnp.zeros_like(some.ids), inside)[0]))
    asked = [(row, at) for row in range(4) for at in range(int(some.length[row]) - 1)]
    right = [(row, at, int(some.ids[row, at + 1])) for row, at in asked]
    assert measured["lm_loss"][0] == pytest.approx(-sum(likely[place] for place in right), rel=1e-5)
    assert measured["lm_accuracy"][0] == sum(likely[row, at].argmax() == piece for row, at, piece in right)
