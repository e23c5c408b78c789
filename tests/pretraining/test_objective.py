import jax
import jax.numpy as jnp
import numpy as np
import pytest
from objectives import objective_of
from token_rows import tokens_of

from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.layout import MASKABLE, WORD_START
from bert_jax.model.bert import BertForPretraining, init
from bert_jax.training.batch import Batch

MODEL = ModelConfig(num_layers=1, hidden_size=16, num_heads=2, max_positions=24, vocabulary_size=60)


def batch(rows=6, length=24, real=None):
    rng = np.random.default_rng(0)
    sizes = rng.integers(10, length + 1, rows).astype(np.int32)
    at = np.arange(length)
    ids = np.where(at < sizes[:, None], rng.integers(5, 60, (rows, length)), 0).astype(np.int32)
    units = np.where(at < sizes[:, None], MASKABLE | WORD_START, 0).astype(np.uint8)
    weight = (np.arange(rows) < (rows if real is None else real)).astype(np.float32)
    inside = at < sizes[:, None]
    tokens = tokens_of(ids, inside & (at >= sizes[:, None] // 2), inside, units)
    arrays = (np.arange(rows, dtype=np.int32) % 2, weight, np.arange(rows, dtype=np.uint32))
    return Batch(tokens, *(jnp.asarray(array)[:, None] for array in arrays))


@pytest.fixture(scope="module")
def objective():
    return objective_of(MODEL)


@pytest.fixture(scope="module")
def params():
    return init(MODEL, jax.random.key(0))


def measure(objective, params, batch):
    keys = jax.random.split(jax.random.key(1), len(batch.weight))[:, None]
    means = objective.measure(params, objective.targets(batch, keys), None)
    return {name: (float(mean.total), float(mean.count)) for name, mean in means.items()}


@pytest.mark.long
def test_counts_are_known_before_the_model_runs(objective, params):
    some = batch(real=4)
    targets = objective.targets(some, jax.random.split(jax.random.key(1), 6)[:, None])
    counts = objective.counts(targets)
    measured = measure(objective, params, some)
    assert set(measured) == set(objective.measurements)
    assert all(float(counts[name]) == measured[name][1] for name in objective.losses)
    assert measured["nsp_loss"][1] == 4


def test_fillers_count_for_nothing(objective, params):
    with_fillers = measure(objective, params, batch(real=4))
    keys_of_six = jax.random.split(jax.random.key(1), 6)[:, None]
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
    alone = objective_of(MODEL, ObjectiveConfig(pair="none"))
    both = objective_of(MODEL)
    measured = measure(alone, params, batch())
    assert alone.losses == {"mlm_loss": 1.0} and set(measured) == set(alone.measurements) == {
        "mlm_loss",
        "mlm_accuracy",
    }
    assert measured["mlm_loss"] == pytest.approx(measure(both, params, batch())["mlm_loss"])
    assert (alone.description, both.description) == (
        "MLM (masked-language)",
        "MLM (masked-language), NSP (next-sentence)",
    )


def test_each_next_token_is_predicted_from_those_before_it(params):
    causal = MODEL.replace(causal=True)
    asked = ObjectiveConfig(predict="next", pair="none")
    objective = objective_of(causal, asked, execution=ExecutionConfig(remat="full"))
    some = batch(real=4)
    some = some._replace(tokens=some.tokens._replace(segment=jnp.zeros_like(some.tokens.segment)))
    measured = measure(objective, params, some)
    assert objective.losses == {"lm_loss": 1.0} and objective.token_question.accuracy == "lm_accuracy"
    assert set(measured) == set(objective.measurements) == {"lm_loss", "lm_accuracy"}
    assert measured["lm_loss"][1] == measured["lm_accuracy"][1] == int(some.tokens.length[:4].sum()) - 4
    network = jax.jit(lambda params, tokens: BertForPretraining(causal).apply({"params": params}, tokens, None))
    likely = np.asarray(jax.nn.log_softmax(network(params, some.tokens)[0]))
    asked = [(row, at) for row in range(4) for at in range(int(some.tokens.length[row, 0]) - 1)]
    right = [(row, at, int(some.tokens.ids[row, at + 1])) for row, at in asked]
    assert measured["lm_loss"][0] == pytest.approx(-sum(likely[place] for place in right), rel=1e-5)
    assert measured["lm_accuracy"][0] == sum(likely[row, at].argmax() == piece for row, at, piece in right)
