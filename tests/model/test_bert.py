import itertools
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from token_rows import tokens_of

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.model.bert import BertEncoder, BertForPretraining, init
from bert_jax.model.kernels import platform

CONFIG = ModelConfig(
    num_layers=3, hidden_size=32, num_heads=4, max_positions=24, vocabulary_size=100, initializer_range=0.1
)
CAUSAL = CONFIG.replace(causal=True)
ROWS, LENGTH = 3, 16


@pytest.fixture(scope="module")
def params():
    return init(CONFIG, jax.random.key(0))


def inputs(length=LENGTH, padding=0):
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 100, (ROWS, LENGTH))[:, :length]
    segments = np.broadcast_to(np.arange(length) > 6, (ROWS, length)).astype(np.int32)
    widths = ((0, 0), (0, padding))
    mask = np.pad(np.ones((ROWS, length), bool), widths)
    junk = rng.integers(5, 100, (ROWS, padding))
    ids = np.concatenate([ids, junk], 1).astype(np.int32)
    return tokens_of(ids, np.pad(segments, widths, constant_values=1), mask)


@partial(jax.jit, static_argnames=("config", "remat", "unroll"))
def apply(config, params, tokens, wanted, keys, remat, unroll):
    model = BertForPretraining(config, ExecutionConfig(remat=remat, unroll=unroll))
    return model.apply({"params": params}, tokens, wanted, keys)


def logits(config, params, tokens, wanted=((1, 5),) * ROWS, keys=None, remat="none", unroll=1):
    return apply(config, params, tokens, jnp.asarray(wanted, jnp.int32), keys, remat, unroll)


def largest_difference(first, second):
    return max(jax.tree.leaves(jax.tree.map(lambda a, b: float(jnp.max(jnp.abs(a - b))), first, second)))


def test_a_single_block_with_norms_first_has_no_empty_array():
    config = CONFIG.replace(norm="pre", num_layers=1)
    params = init(config, jax.random.key(0))
    assert all(leaf.size for leaf in jax.tree.leaves(params))  # checkpoints can't hold empty arrays
    assert "attention_norm" not in params["bert"]["encoder"]["layers"]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(logits(config, params, inputs())))


def test_padded_rows_of_the_vocabulary_have_no_probability(params):
    pieces, _ = logits(CONFIG, params, inputs())
    assert pieces.shape[-1] == 128
    probabilities = jax.nn.softmax(pieces)
    assert (probabilities[..., 100:] == 0).all()

    def loss(params):
        return jax.nn.logsumexp(logits(CONFIG, params, inputs())[0], axis=-1).sum()

    gradient = jax.jit(jax.grad(loss))(params)
    assert (gradient["bert"]["embeddings"]["word"][100:] == 0).all()
    assert (gradient["masked_lm"]["bias"][100:] == 0).all()
    assert (gradient["masked_lm"]["bias"][:100] > 0).all()


def test_initial_values_are_berts(params):
    flat = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    for name, leaf in flat.items():
        if "bias" in name:
            assert (leaf == 0).all(), name
        elif "scale" in name:
            assert (leaf == 1).all(), name
        else:
            assert float(jnp.abs(leaf).max()) <= 2 * 0.1 + 1e-6, name
    word, unused = jnp.split(params["bert"]["embeddings"]["word"], [CONFIG.vocabulary_size])
    assert len(unused) == 28 and (unused == 0).all()
    assert abs(float(word.std()) - 0.88 * 0.1) < 0.003  # a normal cut at two deviations has 0.88 of its deviation
    assert all(leaf.dtype == jnp.float32 for leaf in flat.values())


@pytest.mark.long
def test_how_it_is_carried_out_changes_nothing(params):
    keys = jax.random.split(jax.random.key(1), (ROWS, 1))

    def program_and_gradients(**execution):
        def loss(params):
            pieces, pairs = logits(CONFIG, params, inputs(), keys=keys, **execution)
            return jnp.square(pieces[..., :100]).mean() + jnp.square(pairs).mean()

        traced = jax.jit(jax.grad(loss)).trace(params)
        return str(traced.jaxpr), traced.lower().compile()(params)

    program, gradients = program_and_gradients()
    assert "scan[" in program
    for remat in ("full", "dots"):
        recomputing, by_remat = program_and_gradients(remat=remat)
        assert recomputing.count("exp ") > program.count("exp ") and largest_difference(gradients, by_remat) < 1e-6
    unrolled, without_loop = program_and_gradients(unroll=3)
    assert "scan[" not in unrolled and largest_difference(gradients, without_loop) < 1e-6


@pytest.mark.long
def test_blocks_that_take_turns_are_the_same_in_loops_and_without():
    """6 blocks: the first by itself, two groups of two in a loop, and the last one at the wanted places alone."""
    config = ModelConfig.modern(
        **{"num_layers": 6, "global_every": 2, "local_window": 2, "hidden_size": 32, "num_heads": 4},
        **{"feedforward_size": 48, "max_positions": 32, "vocabulary_size": 100},
        **{"initializer_range": 0.1, "dropout": 0.1},
    )
    params, keys = init(config, jax.random.key(0)), jax.random.split(jax.random.key(1), ROWS)

    def outputs(**execution):
        def loss(params):
            pieces, _ = logits(config, params, inputs(), keys=keys[:, None], **execution)
            return jnp.square(pieces[..., :100]).mean()

        traced = jax.jit(jax.grad(loss)).trace(params)
        return traced.jaxpr, traced.lower().compile()(params)

    (_, apart), (loops, together) = outputs(unroll=None), outputs(unroll=1)
    assert "length=2" in str(loops)
    assert largest_difference(apart, together) < 1e-6 < largest_difference(apart, jax.tree.map(jnp.zeros_like, apart))
    encode = jax.jit(partial(BertForPretraining(config).apply, method="encode"), static_argnums=(2, 3))
    asked = encode({"params": params}, inputs(), True, True)
    assert asked.layers.shape[0] == 7 and asked.attention.shape[0] == 6
    np.testing.assert_allclose(asked.layers[-1], encode({"params": params}, inputs()).tokens, atol=1e-6)
    reach = jnp.abs(jnp.arange(LENGTH)[:, None] - jnp.arange(LENGTH)) > config.local_window
    seen_afar = (asked.attention * reach).sum(axis=(1, 2, 3, 4)) > 0
    assert seen_afar.tolist() == [config.is_global(layer) for layer in range(6)]


def test_bfloat16_computes_in_bfloat16_and_answers_in_float32(params):
    half = CONFIG.replace(compute_dtype="bfloat16")
    pieces, pairs = logits(half, params, inputs())
    assert pieces.dtype == pairs.dtype == jnp.float32
    exact = logits(CONFIG, params, inputs())
    assert 1e-4 < largest_difference((pieces[..., :100], pairs), (exact[0][..., :100], exact[1])) < 0.1
    jaxpr = str(jax.make_jaxpr(lambda params: logits(half, params, inputs()))(params))
    assert "bf16" in jaxpr


def test_layers_and_attention_are_there_if_asked_for_and_change_nothing(params):
    encode = jax.jit(BertEncoder(CONFIG).apply, static_argnames=("return_layers", "return_attention"))
    encode = partial(encode, {"params": params["bert"]}, inputs(padding=8))
    wanted = jnp.array([[1, 5]] * ROWS)
    plain, some, both = encode(), encode(places=wanted), encode(return_attention=True, return_layers=True)
    kept = encode(places=wanted, return_attention=True)
    assert plain.layers is None and plain.attention is None and kept.layers is None
    assert both.layers.shape == (4, ROWS, 24, 32) and both.attention.shape == (3, ROWS, 4, 24, 24)
    assert jnp.allclose(both.attention.sum(axis=-1), 1, atol=1e-5) and (both.attention[..., 16:] == 0).all()
    assert jnp.array_equal(both.layers[-1], both.tokens)
    assert largest_difference(both.tokens[:, :16], plain.tokens[:, :16]) < 2e-6
    assert some.tokens.shape == (ROWS, 2, 32)
    assert largest_difference((some.tokens, some.pooled), (kept.tokens, kept.pooled)) < 2e-6


@partial(jax.jit, static_argnames=("config", "return_attention"))
def encoded(config, params, tokens, keys=None, wanted=None, return_attention=False):
    return BertEncoder(config).apply({"params": params["bert"]}, tokens, keys, wanted, False, return_attention)


WANTED = jnp.asarray([[3, 15, 7, 0, 8, 7]] * ROWS, jnp.int32)  # in no order, and one of them twice


@pytest.mark.parametrize("dropped, wanted", [(True, None), (False, WANTED)], ids=["dropout", "some wanted"])
@pytest.mark.long(first=1)
def test_a_causal_model_does_not_see_what_comes_after(params, dropped, wanted):
    keys = jax.random.split(jax.random.key(1), (ROWS, 1)) if dropped else None
    tokens = inputs()
    before = encoded(CAUSAL, params, tokens, keys, wanted)
    places = np.arange(LENGTH) if wanted is None else np.asarray(wanted[0])
    for at in (0, 7, 15):
        after = encoded(CAUSAL, params, tokens._replace(ids=tokens.ids.at[:, at].add(1)), keys, wanted)
        difference = jnp.abs(after.tokens - before.tokens).max(axis=(0, 2))
        assert (difference[places < at] == 0).all() and (difference[places >= at] > 1e-4).all()
        assert (jnp.abs(after.pooled - before.pooled).max(axis=(1, 2)) > 1e-4).all()  # the last token sees them all


def test_a_causal_sequence_is_told_by_its_last_real_token(params):
    plain, padded = (encoded(CAUSAL, params, inputs(padding=padding)) for padding in (0, 8))
    assert largest_difference(plain.pooled, padded.pooled) < 2e-6
    assert largest_difference(plain.tokens, padded.tokens[:, :LENGTH]) < 2e-6
    some = encoded(CAUSAL, params, inputs(padding=8), wanted=WANTED)
    assert largest_difference(some.pooled, padded.pooled) < 2e-6
    assert largest_difference(some.tokens, jnp.take_along_axis(padded.tokens, WANTED[:, :, None], axis=1)) < 2e-6
    dense = params["bert"]["pooler"]["dense"]
    by_hand = jnp.tanh(plain.tokens[:, -1] @ dense["kernel"] + dense["bias"])
    assert largest_difference(by_hand, plain.pooled[:, 0]) < 2e-6
    empty = tokens_of(inputs().ids, mask=np.zeros((ROWS, LENGTH)))  # rows that fill up a batch
    assert jnp.isfinite(encoded(CAUSAL, params, empty).pooled).all()


@pytest.mark.parametrize("dtype, precisions", [("float32", {"HIGHEST"}), ("bfloat16", {"DEFAULT", "HIGHEST"})])
def test_products_in_float32_round_no_factor_on_accelerators(dtype, precisions, monkeypatch):
    """In a bfloat16 model the rows of the word table's gradient are summed in float32."""
    config, wanted = CONFIG.replace(compute_dtype=dtype), jnp.ones((ROWS, 2), jnp.int32)
    params = init(config, jax.random.key(0))
    monkeypatch.setattr(platform, "platform", lambda: "gpu")

    def outputs(params):
        model = BertForPretraining(config, ExecutionConfig(attention="exact"))
        return model.apply({"params": params}, inputs(), wanted, None)

    @jax.grad
    def gradient(params):
        return sum(jnp.sum(each.astype(jnp.float32)) for each in jax.tree.leaves(outputs(params)))

    products = re.findall(r"dot_general\[.*?\]\s", str(jax.make_jaxpr(gradient)(params)), re.DOTALL)
    named = [re.findall(r"Precision\.(\w+)", each) or ["None"] for each in products]
    assert len(products) > 15 and {*itertools.chain.from_iterable(named)} == precisions
