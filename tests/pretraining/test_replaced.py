"""ELECTRA's pretraining: a generator whose predictions a discriminator tells from true tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from objectives import gradients_of, objective_of

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.settings import SettingsError
from bert_jax.layout import MASKABLE, WORD_START, Tokens, lay_out
from bert_jax.model.bert import BertForPretraining, Discriminator, generator_parameters, init
from bert_jax.model.parameters import parameter_at, path_of
from bert_jax.pretraining import masking as replaced_tokens
from bert_jax.pretraining.masking import Masked, draw_tokens, replace_tokens
from bert_jax.pretraining.objective import ReplacedTokens
from bert_jax.training.batch import Batch
from bert_jax.training.step import loss_gradients

ASKED = ObjectiveConfig(predict="replaced", pair="none")
MODEL = ModelConfig(
    model_type="electra",
    num_layers=2,
    hidden_size=16,
    num_heads=4,
    embedding_size=12,
    max_positions=24,
    vocabulary_size=60,
    discriminator=True,
    generator_divisor=2,
)
LENGTHS = np.array([9, 15, 24, 10, 14, 20])
KEYS = jax.random.split(jax.random.key(1), len(LENGTHS))[:, None]


def batch(real=len(LENGTHS), rows=None) -> Batch:
    """Sequences of LENGTHS, the first `real` of them no fillers; each in a row of its own, or in these `rows`."""
    ids = np.random.default_rng(0).integers(5, 60, LENGTHS.sum()).astype(np.int32)
    units = np.full(len(ids), MASKABLE | WORD_START, np.uint8)
    count = len(LENGTHS) if rows is None else int(rows[-1]) + 1
    tokens = jax.tree.map(jnp.asarray, lay_out(ids, LENGTHS, LENGTHS, (count, 24), units=units, rows=rows))
    weight = jnp.asarray(tokens.length > 0, jnp.float32)
    weight = weight if rows is not None else weight * (jnp.arange(count) < real)[:, None]
    return Batch(tokens, jnp.zeros(weight.shape, jnp.int32), weight, jnp.zeros(weight.shape, jnp.uint32))


def objective(model=MODEL, **asked) -> ReplacedTokens:
    return objective_of(model, ASKED.replace(**asked))


@pytest.fixture(scope="module")
def params():
    return init(MODEL.replace(initializer_range=0.2), jax.random.key(0))


@pytest.fixture(scope="module")
def weighted():
    """Gradients and measurements of MODEL's objective by the weights of both losses, compiled once for all weights."""
    some = objective()

    @jax.jit
    def gradients(params, targets, weights):
        some.losses = dict(zip(some.losses, weights, strict=True))
        return loss_gradients(some, params, targets, KEYS, 1)

    return gradients


@jax.jit
def drawn(params, targets):
    """The tokens with what the generator draws in place of the masked ones, and where these are others."""
    masked, generator = targets.masked, BertForPretraining(MODEL.generator)
    logits, pairs = generator.apply({"params": generator_parameters(params)}, masked.tokens, masked.places)
    assert pairs is None
    return replace_tokens(masked, draw_tokens(logits, masked, targets.drawing_keys))


def leaves(tree):
    return {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


@pytest.mark.parametrize("changes", [{"embedding_size": None}, {"embedding_size": 8}])
@pytest.mark.long
def test_every_parameter_has_a_row_and_learns(changes):
    model = MODEL.replace(**changes)
    params = init(model, jax.random.key(0))
    assert not [path for path in leaves(params) if "pooler" in path or "next_sentence" in path]
    some = objective(model)
    targets = some.targets(batch(), KEYS)
    gradients = leaves(gradients_of(some, params, targets, KEYS)[0])
    assert {path.partition("/")[0] for path in gradients} == {"bert", "replaced", "generator"}
    for path, gradient in gradients.items():
        assert len(parameter_at(path).axes) == gradient.ndim
        assert np.any(gradient), f"{path} doesn't learn"
    narrower = "generator/bert/embeddings/projection/kernel" in gradients
    assert narrower == (model.table_size != model.generator.hidden_size)


@pytest.mark.long
def test_tables_are_those_of_both_models(params, weighted):
    own, alone = params["bert"]["embeddings"], generator_parameters(params)["bert"]["embeddings"]
    assert set(params["generator"]["bert"]["embeddings"]) == {"projection"} and set(alone) == set(own)
    assert all(alone[name] is own[name] for name in ("word", "position", "segment", "norm"))
    assert alone["projection"]["kernel"].shape == (12, 8) and own["projection"]["kernel"].shape == (12, 16)
    # A change of the common tables by either model's loss changes what the other sees.
    targets = objective().targets(batch(), KEYS)
    for weights, without in (((0.0, 50.0), "generator"), ((1.0, 0.0), "replaced")):
        gradients, _ = weighted(params, targets, weights)
        assert all(np.any(gradients["bert"]["embeddings"][name]) for name in ("word", "position", "segment"))
        silent = gradients[without]
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(silent))  # nothing passes through what is drawn


def test_the_loss_is_the_weighted_sum(params, weighted):
    assert objective(generator_weight=2.0, discriminator_weight=30.0).losses == {"mlm_loss": 2.0, "rtd_loss": 30.0}
    assert objective().losses == {"mlm_loss": 1.0, "rtd_loss": 50.0}
    assert objective().description == "MLM (masked-language), RTD (replaced-token, weight 50)"
    targets = objective().targets(batch(real=4), KEYS)
    alone = [weighted(params, targets, weights)[0] for weights in ((1.0, 0.0), (0.0, 1.0))]
    both, means = weighted(params, targets, (2.0, 30.0))
    expected = jax.tree.map(lambda of_masked, of_replaced: 2 * of_masked + 30 * of_replaced, *alone)
    for path, gradient in leaves(both).items():
        np.testing.assert_allclose(gradient, leaves(expected)[path], rtol=1e-4, atol=1e-5, err_msg=path)
    assert float(means["rtd_loss"].count) == int(batch().tokens.length[:4].sum())


@pytest.mark.long
def test_what_is_measured_is_what_both_models_compute(params):
    some, rows = objective(), batch(real=4)
    keys = jax.random.split(jax.random.key(8), len(LENGTHS))[:, None]  # by which one true token is drawn
    targets = some.targets(rows, keys)
    measured = some.measure(params, targets, None)
    assert {name: float(count) for name, count in some.counts(targets).items()} == {
        name: float(measured[name].count) for name in some.losses
    }
    means = {name: float(mean.value) for name, mean in measured.items()}
    assert set(means) == set(some.measurements)
    masked, real = targets.masked, np.asarray(rows.tokens.sequence > 0) & (np.arange(len(LENGTHS)) < 4)[:, None]
    tokens, replaced = drawn(params, targets)
    differs = np.asarray(tokens.ids != rows.tokens.ids)
    assert np.array_equal(replaced[real] > 0, differs[real])  # a draw of the true token is no replacement
    assert 0 < replaced[real].sum() < masked.weights.sum()
    found = np.asarray(jax.jit(Discriminator(MODEL).apply)({"params": params}, tokens), np.float64)
    right = 1 / (1 + np.exp(np.where(replaced > 0, -found, found)))
    assert means["rtd_loss"] == pytest.approx(-np.log(right[real]).mean(), rel=1e-5)
    assert means["rtd_accuracy"] == pytest.approx((right[real] > 0.5).mean())
    assert means["rtd_replaced"] == pytest.approx(replaced[real].mean())


@pytest.mark.parametrize("size", (4, 128, 300))
def test_draws_have_the_probabilities_of_the_logits(size):
    """Of a vocabulary in one block, in exactly one and in several, the last one not full; some tokens have none."""
    count = 20_000
    tokens = Tokens(*(np.ones((count, 1), np.int32) for _ in Tokens._fields))
    masked = Masked(tokens, *(np.zeros((count, 1), kind) for kind in (np.int32, np.int32, np.float32)))
    shares = np.random.default_rng(size).dirichlet(np.full(size, 0.2))
    shares[-1] = shares[size // 2] = 0.0
    shares /= shares.sum()
    logits = jnp.broadcast_to(jnp.log(shares) + 70.0, (count, 1, size))
    drawn = draw_tokens(logits, masked, jax.random.split(jax.random.key(0), count)[:, None])
    found = np.bincount(drawn[:, 0], minlength=size) / count
    np.testing.assert_allclose(found, shares, atol=0.012)
    assert len(found) == size and not found[shares == 0].any()


@pytest.mark.parametrize(
    "weights, sums, first",
    [
        ([0.0, 0.5, 0.5], 0.0, 1),
        ([0.0, 0.5, 0.5], -1e-8, 1),  # what rounding leaves of sums of blocks
        ([0.5, 0.0, 0.5], 0.5, 2),
        ([0.2, 0.5, 0.3, 0.0], 1.1, 1),  # beyond all: the largest
    ],
)
def test_nothing_of_weight_0_is_drawn(weights, sums, first):
    found, left = replaced_tokens._first_beyond(jnp.array([[weights]]), jnp.array([[sums]]))
    assert int(found[0, 0]) == first and float(left[0, 0]) == pytest.approx(sums - sum(weights[:first]), abs=1e-6)


@pytest.mark.long
def test_draws_are_the_same_in_packed_rows(params):
    several = objective_of(MODEL, ASKED, data=DataConfig(packed=True))
    of_packed = KEYS[np.array([[0, 1], [2, 2], [3, 4], [5, 5]]), 0]  # where there is no second sequence, any key
    found = []
    for some, keys in ((batch(), KEYS), (batch(rows=np.array([0, 0, 1, 2, 2, 3])), of_packed)):
        targets = several.targets(some, keys)
        tokens, replaced = drawn(params, targets)
        real = np.asarray(tokens.sequence > 0)
        means = several.measure(params, targets, None)
        found.append((tokens.ids[real], replaced[real], [float(means[name].value) for name in several.losses]))
    (ids, replaced, losses), (same_ids, same_replaced, same_losses) = found
    assert np.array_equal(ids, same_ids) and np.array_equal(replaced, same_replaced) and replaced.any()
    assert losses == pytest.approx(same_losses, rel=1e-5)


@pytest.mark.long
def test_draws_are_the_same_in_microbatches(params, weighted):
    some = objective()
    targets = some.targets(batch(), KEYS)
    whole, means = weighted(params, targets, tuple(some.losses.values()))
    parts, sums = gradients_of(some, params, targets, KEYS, 3)
    assert float(means["rtd_replaced"].total) == float(sums["rtd_replaced"].total) > 0
    assert float(means["rtd_loss"].value) == pytest.approx(float(sums["rtd_loss"].value), rel=1e-5)
    for path, gradient in leaves(parts).items():
        np.testing.assert_allclose(gradient, leaves(whole)[path], rtol=1e-3, atol=1e-5, err_msg=path)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"generator_divisor": 3}, r"--model.hidden-size=16 is not a multiple of --model.generator-divisor=3"),
        ({"num_heads": 1}, r"--model.num-heads=1 is not a multiple of --model.generator-divisor=2"),
        ({"feedforward_size": 15}, r"--model.feedforward-size=15 is not a multiple"),
        ({"discriminator": False}, r"--model.generator-divisor=2 with --model.no-discriminator"),
        ({"causal": True}, r"--model.generator-divisor=2 with --model.causal"),
    ],
)
def test_a_generator_that_can_not_be_is_refused(changes, said):
    with pytest.raises(SettingsError, match=said):
        MODEL.replace(**changes)
