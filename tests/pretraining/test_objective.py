"""Objectives of pretraining: what they count and measure, which parameters learn from them, and what they refuse."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from objectives import gradients_of, objective_of

from bert_jax import configs
from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.settings import SettingsError
from bert_jax.config.training import OptimizerConfig
from bert_jax.interchange.export import export_obstacle, their_tensors
from bert_jax.interchange.relatives import RELATIVES
from bert_jax.interchange.tensor_names import to_tensors
from bert_jax.layout import MASKABLE, WORD_START, Tokens, TokenSequence, lay_out, lay_out_sequences
from bert_jax.model.bert import BertForPretraining, Discriminator, generator_parameters, init
from bert_jax.model.parameters import parameter_at, path_of
from bert_jax.model.size import num_parameters
from bert_jax.pretraining import masking as replaced_tokens
from bert_jax.pretraining.masking import Masked, draw_tokens, replace_tokens
from bert_jax.pretraining.objective import PretrainingTargets, ReplacedTokens
from bert_jax.system.errors import UsageError
from bert_jax.text.vocabulary import Vocabulary
from bert_jax.training.batch import Batch
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.step import loss_gradients

ASKED = ObjectiveConfig(predict="replaced", pair="none")
SIZES = {"num_layers": 2, "hidden_size": 16, "num_heads": 4, "max_positions": 24, "vocabulary_size": 60}
MODEL = ModelConfig(**SIZES | {"num_layers": 1})
ELECTRA = ModelConfig(**SIZES, model_type="electra", embedding_size=12, discriminator=True, generator_divisor=2)
DEBERTA = configs.deberta_v3_small.model.replace(**SIZES, distance_buckets=8, clamped_distance=32, generator_layers=1)
LEARNED = {"positions": "learned", "distance_buckets": None, "clamped_distance": None}
LENGTHS = np.array([9, 15, 24, 10, 14, 20])
KEYS = jax.random.split(jax.random.key(1), len(LENGTHS))[:, None]


def batch(real=len(LENGTHS), rows=None, pairs=False) -> Batch:
    """Sequences of LENGTHS, the first `real` of them no fillers; each in a row of its own, or in these `rows`."""
    ids = np.random.default_rng(0).integers(5, 60, LENGTHS.sum()).astype(np.int32)
    units = np.full(len(ids), MASKABLE | WORD_START, np.uint8)
    count, first = len(LENGTHS) if rows is None else int(rows[-1]) + 1, LENGTHS // 2 if pairs else LENGTHS
    tokens = jax.tree.map(jnp.asarray, lay_out(ids, LENGTHS, first, (count, 24), units=units, rows=rows))
    weight = jnp.asarray(tokens.length > 0, jnp.float32)
    weight = weight if rows is not None else weight * (jnp.arange(count) < real)[:, None]
    label = jnp.arange(weight.size, dtype=jnp.int32).reshape(weight.shape) % 2
    return Batch(tokens, label, weight, jnp.zeros(weight.shape, jnp.uint32))


@pytest.mark.parametrize(("class_token", "row"), [("first", [1, 7, 8, 9, 2]), ("last", [7, 8, 9, 2, 1])])
def test_the_baseline_knows_cls_and_sep_wherever_they_stand(class_token, row):
    """[CLS] is 1, and [SEP] is 2."""
    objective = objective_of(MODEL.replace(class_token=class_token), ObjectiveConfig(pair="none"))
    tokens = lay_out(np.array(row, np.int32), np.array([5]), np.array([5]), (1, 5))
    ones = jnp.ones((1, 1))
    rows = Batch(tokens, ones.astype(int), ones, ones.astype(jnp.uint32))
    masked = Masked(tokens, jnp.arange(5)[None], jnp.array([[1, 2, 2, 8, 9]]), jnp.ones((1, 5)))
    guessed = objective.guess(rows, PretrainingTargets(masked, rows.pair_label, ones), jnp.zeros(60))
    assert guessed["end"].value == pytest.approx(3 / 5)


@pytest.fixture(scope="module")
def of_pairs():
    """The objective of masked tokens and pairs, and parameters of its model."""
    return objective_of(MODEL), init(MODEL, jax.random.key(0))


def sums(means):
    return {name: (float(mean.total), float(mean.count)) for name, mean in means.items()}


def test_counts_are_known_before_the_model_runs_and_fillers_count_for_nothing(of_pairs):
    objective, params = of_pairs
    targets = objective.targets(batch(real=4, pairs=True), KEYS)
    counts, measured = objective.counts(targets), sums(objective.measure(params, targets, None))
    assert set(measured) == set(objective.measurements)
    assert all(float(counts[name]) == measured[name][1] for name in objective.losses)
    assert measured["nsp_loss"][1] == 4
    four = jax.tree.map(lambda array: array[:4], batch(pairs=True))
    without = sums(objective.measure(params, objective.targets(four, KEYS[:4]), None))
    for name, (total, count) in measured.items():
        assert total == pytest.approx(without[name][0], rel=1e-5) and count == without[name][1]


def test_each_next_token_is_predicted_from_those_before_it(of_pairs):
    causal, (_, params) = MODEL.replace(causal=True), of_pairs
    next_tokens = ObjectiveConfig(predict="next", pair="none")
    objective = objective_of(causal, next_tokens, execution=ExecutionConfig(remat="full"))
    some = batch(real=4)
    measured = sums(objective.measure(params, objective.targets(some, KEYS), None))
    assert objective.losses == {"lm_loss": 1.0} and objective.token_question.accuracy == "lm_accuracy"
    assert set(measured) == set(objective.measurements) == {"lm_loss", "lm_accuracy"}
    assert measured["lm_loss"][1] == measured["lm_accuracy"][1] == int(some.tokens.length[:4].sum()) - 4
    network = jax.jit(lambda params, tokens: BertForPretraining(causal).apply({"params": params}, tokens, None))
    likely = np.asarray(jax.nn.log_softmax(network(params, some.tokens)[0]))
    asked = [(row, at) for row in range(4) for at in range(int(some.tokens.length[row, 0]) - 1)]
    right = [(row, at, int(some.tokens.ids[row, at + 1])) for row, at in asked]
    assert measured["lm_loss"][0] == pytest.approx(-sum(likely[place] for place in right), rel=1e-5)
    assert measured["lm_accuracy"][0] == sum(likely[row, at].argmax() == piece for row, at, piece in right)


@pytest.fixture(scope="module")
def params():
    return init(ELECTRA.replace(initializer_range=0.2), jax.random.key(0))


def replacing(model=ELECTRA, **asked) -> ReplacedTokens:
    return objective_of(model, ASKED.replace(**asked))


@cache
def weighted(model=ELECTRA):
    """Gradients and measurements by the weights of both losses, compiled once for all weights."""
    some = replacing(model)

    @jax.jit
    def gradients(params, targets, weights):
        some.losses = dict(zip(some.losses, weights, strict=True))
        return loss_gradients(some, params, targets, KEYS, 1)

    return gradients


@jax.jit
def drawn(params, targets):
    """The tokens with what the generator draws in place of the masked ones, and where these are others."""
    masked, generator = targets.masked, BertForPretraining(ELECTRA.generator)
    logits, pairs = generator.apply({"params": generator_parameters(params)}, masked.tokens, masked.places)
    assert pairs is None
    return replace_tokens(masked, draw_tokens(logits, masked, targets.drawing_keys))


def leaves(tree):
    return {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


@pytest.mark.parametrize("changes", [{"embedding_size": None}, {"embedding_size": 8}])
@pytest.mark.long
def test_every_parameter_has_a_row_and_learns(changes):
    model = ELECTRA.replace(**changes)
    params = init(model, jax.random.key(0))
    assert not [path for path in leaves(params) if "pooler" in path or "next_sentence" in path]
    some = replacing(model)
    targets = some.targets(batch(), KEYS)
    gradients = leaves(gradients_of(some, params, targets, KEYS)[0])
    assert {path.partition("/")[0] for path in gradients} == {"bert", "replaced", "generator"}
    for path, gradient in gradients.items():
        assert len(parameter_at(path).axes) == gradient.ndim
        assert np.any(gradient), f"{path} doesn't learn"
    narrower = "generator/bert/embeddings/projection/kernel" in gradients
    assert narrower == (model.table_size != model.generator.hidden_size)


@pytest.mark.long
def test_tables_are_those_of_both_models(params):
    own, alone = params["bert"]["embeddings"], generator_parameters(params)["bert"]["embeddings"]
    assert set(params["generator"]["bert"]["embeddings"]) == {"projection"} and set(alone) == set(own)
    assert all(alone[name] is own[name] for name in ("word", "position", "segment", "norm"))
    assert alone["projection"]["kernel"].shape == (12, 8) and own["projection"]["kernel"].shape == (12, 16)
    # A change of the common tables by either model's loss changes what the other sees.
    targets = replacing().targets(batch(), KEYS)
    for weights, without in (((0.0, 50.0), "generator"), ((1.0, 0.0), "replaced")):
        gradients, _ = weighted()(params, targets, weights)
        assert all(np.any(gradients["bert"]["embeddings"][name]) for name in ("word", "position", "segment"))
        silent = gradients[without]
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(silent))  # nothing passes through what is drawn


def test_the_loss_is_the_weighted_sum(params):
    assert replacing(generator_weight=2.0, discriminator_weight=30.0).losses == {"mlm_loss": 2.0, "rtd_loss": 30.0}
    assert replacing().losses == {"mlm_loss": 1.0, "rtd_loss": 50.0}
    assert replacing().description == "MLM (masked-language), RTD (replaced-token, weight 50)"
    targets = replacing().targets(batch(real=4), KEYS)
    alone = [weighted()(params, targets, weights)[0] for weights in ((1.0, 0.0), (0.0, 1.0))]
    both, means = weighted()(params, targets, (2.0, 30.0))
    expected = jax.tree.map(lambda of_masked, of_replaced: 2 * of_masked + 30 * of_replaced, *alone)
    for path, gradient in leaves(both).items():
        np.testing.assert_allclose(gradient, leaves(expected)[path], rtol=1e-4, atol=1e-5, err_msg=path)
    assert float(means["rtd_loss"].count) == int(batch().tokens.length[:4].sum())


@pytest.mark.long
def test_what_is_measured_is_what_both_models_compute(params):
    some, rows = replacing(), batch(real=4)
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
    found = np.asarray(jax.jit(Discriminator(ELECTRA).apply)({"params": params}, tokens), np.float64)
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
    several = objective_of(ELECTRA, ASKED, data=DataConfig(packed=True))
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
def test_draws_are_the_same_in_microbatches(params):
    some = replacing()
    targets = some.targets(batch(), KEYS)
    whole, means = weighted()(params, targets, tuple(some.losses.values()))
    parts, sums = gradients_of(some, params, targets, KEYS, 3)
    assert float(means["rtd_replaced"].total) == float(sums["rtd_replaced"].total) > 0
    assert float(means["rtd_loss"].value) == pytest.approx(float(sums["rtd_loss"].value), rel=1e-5)
    for path, gradient in leaves(parts).items():
        np.testing.assert_allclose(gradient, leaves(whole)[path], rtol=1e-3, atol=1e-5, err_msg=path)


def tables(params):
    return params["bert"]["embeddings"], generator_parameters(params)["bert"]["embeddings"]


@pytest.mark.parametrize("positions", ["disentangled", "learned"])
@pytest.mark.long(first=1)
def test_what_is_shared_begins_equal(positions):
    key, changes = jax.random.key(0), ({} if positions == "disentangled" else LEARNED) | {"mask_decoder": False}
    theirs, own = tables(init(DEBERTA.replace(**changes), key))
    assert np.array_equal(theirs["word"], own["word"]) and theirs["norm"] is not own["norm"]
    assert positions == "disentangled" or np.array_equal(theirs["position"], own["position"])
    theirs, own = tables(init(DEBERTA.replace(**changes, shared_embeddings="none"), key))
    assert not np.array_equal(theirs["word"], own["word"])
    apart, together = (num_parameters(DEBERTA.replace(**changes, shared_embeddings=kind)) for kind in ("none", "all"))
    rows = 60 + (24 if positions == "learned" else 0)
    assert apart - together == rows * 16 + 2 * 16  # of the tables and the norm


@pytest.mark.long
def test_a_table_moves_as_if_its_difference_were_stored():
    """The authors' parametrisation, E_D = stop_gradient(E_G) + difference, by optax' own AdamW."""
    objective, rate = replacing(DEBERTA), 0.01
    params = init(DEBERTA, jax.random.key(0))
    word = params["bert"]["embeddings"]["word"]
    plain = {"word": {"word": word, "difference": jnp.zeros_like(word)}}
    adam = optax.chain(optax.scale_by_adam(eps=1e-6), optax.add_decayed_weights(0.1))
    theirs = optax.chain(optax.clip_by_global_norm(1.0), adam, optax.scale(-1))
    coupled = objective.optimizer(make_optimizer(OptimizerConfig(weight_decay=0.1, bias_correction=True, epsilon=1e-6)))
    slots, their_slots = coupled.init(params), theirs.init(plain)
    zero, moved = jax.tree.map(jnp.zeros_like, params), jax.jit(coupled.update)
    for step in range(4):
        of_generator, of_difference = jax.random.normal(jax.random.key(step), (2, *word.shape)) * 1e-3
        gradients = jax.tree.map(lambda leaf: leaf, zero)
        gradients["bert"]["embeddings"]["word"] = of_difference
        gradients["generator"]["bert"]["embeddings"]["word"] = of_generator
        updates, slots = moved(gradients, slots, params)
        params = jax.tree.map(lambda old, update: old + rate * update, params, updates)
        of_theirs = {"word": {"word": of_generator, "difference": of_difference}}
        updates, their_slots = theirs.update(of_theirs, their_slots, plain)
        plain = jax.tree.map(lambda old, update: old + rate * update, plain, updates)
    discriminators, generators = tables(params)
    np.testing.assert_allclose(generators["word"], plain["word"]["word"], atol=1e-7)
    np.testing.assert_allclose(discriminators["word"], plain["word"]["word"] + plain["word"]["difference"], atol=1e-7)
    assert np.abs(plain["word"]["difference"]).max() > 0.01


@pytest.mark.long
def test_each_loss_trains_its_own_part():
    params = init(DEBERTA.replace(initializer_range=0.2), jax.random.key(1))
    targets = replacing(DEBERTA).targets(batch(), KEYS)
    for weights, still in (((1.0, 0.0), "bert"), ((0.0, 1.0), "generator")):
        gradients, _ = weighted(DEBERTA)(params, targets, weights)
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradients.pop(still)))
        gradients.pop("replaced")
        learning = {path: np.any(leaf) for path, leaf in leaves(gradients).items()}
        assert learning and all(learning.values()), learning


def test_the_mask_decoder_is_the_authors():
    """The last block twice on the input of the last block plus positions, by transformers' own layers. The authors'
    code reads absolute positions there: `EnhancedMaskDecoder` in masked_language_model.py."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    model = DEBERTA.encoder.replace(mask_decoder=True, initializer_range=0.3)
    network, params = BertForPretraining(model), init(model, jax.random.key(2))
    sequences = [TokenSequence([2, *range(7, 7 + length), 3], length + 2) for length in (9, 15)]
    tokens = jax.tree.map(jnp.asarray, lay_out_sequences(sequences, (2, 24), pad_id=0))
    places = jnp.asarray([[1, 4, 10], [3, 8, 16]])
    found = jax.jit(network.apply)({"params": params}, tokens, places)[0]
    config = transformers.DebertaV2Config(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=24, type_vocab_size=0, relative_attention=True, position_buckets=8,
        max_relative_positions=32, pos_att_type=["p2c", "c2p"], share_att_key=True, norm_rel_ebd="layer_norm",
        position_biased_input=False, layer_norm_eps=1e-7,
    )  # fmt: skip
    theirs = transformers.DebertaV2Model(config).eval()
    _load(theirs, params, model)
    ids, mask = torch.tensor(np.array(tokens.ids)), torch.tensor(np.array(tokens.sequence) > 0)
    with torch.no_grad():
        hidden = theirs(ids, mask, output_hidden_states=True).hidden_states[-2]
        attention = theirs.encoder.get_attention_mask(mask.long())
        relative = theirs.encoder.get_rel_pos(hidden)
        queries = hidden + torch.tensor(np.array(params["masked_lm"]["position"]))[None]
        for _ in range(2):
            queries, _ = theirs.encoder.layer[-1](
                hidden, attention, query_states=queries, relative_pos=relative,
                rel_embeddings=theirs.encoder.get_rel_embedding(),
            )  # fmt: skip
    head = network.bind({"params": params})
    expected = head.masked_lm(jnp.asarray(queries.numpy()), params["bert"]["embeddings"]["word"]).whole()
    expected = jnp.take_along_axis(expected, places[:, :, None], axis=1)
    np.testing.assert_allclose(found[..., :60], expected[..., :60], atol=1e-5 * float(jnp.abs(expected).max()))


def _load(theirs, params, model: ModelConfig) -> None:
    import torch

    named = their_tensors(to_tensors({"bert": params["bert"]}, model), RELATIVES["deberta-v2"])
    tensors = {name.removeprefix("deberta."): torch.tensor(tensor) for name, tensor in named.items()}
    missing, unexpected = theirs.load_state_dict(tensors, strict=False)
    assert not missing and all("pooler" in name for name in unexpected), (missing, unexpected)


def test_it_is_not_said_before_an_export(capsys):
    shapes = jax.eval_shape(lambda: init(DEBERTA, jax.random.key(0)))
    vocabulary = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(55))])
    assert export_obstacle(DEBERTA, shapes, vocabulary) is None and capsys.readouterr().err == ""


XLNET, OF_ELECTRA, OF_DEBERTA = configs.xlnet_base, configs.electra_small, configs.deberta_v3_small
NO_GENERATOR = {"generator_divisor": None, "generator_layers": None, "shared_embeddings": "all"}


@pytest.mark.parametrize(
    "config, changes, words",
    [
        (XLNET, {"phases.0.length": 7}, "at least 8"),
        (XLNET, {"objective.pair": "next_sentence"}, "only masked tokens go with a question about segments"),
        (XLNET, {"objective.predict": "masked"}, "are tokens predicted in permuted order"),
        (XLNET, {"model.positions": "learned"}, "are tokens predicted in permuted order"),
        (
            OF_ELECTRA,
            {"model.generator_divisor": 3},
            "hidden-size=256 is not a multiple of --model.generator-divisor=3",
        ),
        (OF_ELECTRA, {"model.num_heads": 1}, "--model.num-heads=1 is not a multiple of --model.generator-divisor=4"),
        (OF_ELECTRA, {"model.feedforward_size": 15}, "--model.feedforward-size=15 is not a multiple"),
        (OF_ELECTRA, {"model.discriminator": False}, "--model.generator-divisor=4 with --model.no-discriminator"),
        (OF_ELECTRA, {"model.causal": True}, "--model.generator-divisor=4 with --model.causal"),
        (
            OF_ELECTRA,
            {"objective.pair": "next_sentence"},
            "--objective.predict=replaced with --objective.pair=next_sentence: only masked .*pair=none",
        ),
        (OF_ELECTRA, {"objective.predict": "masked"}, "--model.discriminator with --objective.predict=masked"),
        (OF_ELECTRA, {"model": ELECTRA.encoder}, "--objective.predict=replaced with --model.no-discriminator"),
        (OF_DEBERTA, {"generator_divisor": None, "generator_layers": None}, "shared-embeddings=disentangled with"),
        (OF_DEBERTA, {"shared_embeddings": "all", "generator_divisor": None}, "generator-layers=3 with"),
        (OF_DEBERTA, NO_GENERATOR, "mask-decoder has no effect"),
        (OF_DEBERTA, NO_GENERATOR | {"discriminator": False}, "discriminator-head=product with"),
        (OF_DEBERTA, LEARNED | {"positions": "rotary"}, "mask-decoder with"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_in_one_line(config, changes, words):
    with pytest.raises(SettingsError, match=words) as refused:
        if config is OF_DEBERTA:
            config.model.replace(**changes)
        config.set(changes)
    assert "\n" not in str(refused.value)


def test_a_discriminator_without_a_generator_is_not_trained():
    with pytest.raises(UsageError, match=r"--model.generator-divisor=None.*--model.generator-divisor 4"):
        objective_of(ELECTRA.replace(generator_divisor=None), ASKED)
