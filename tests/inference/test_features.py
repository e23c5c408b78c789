import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from token_rows import tokens_of

from bert_jax.config.model import ModelConfig
from bert_jax.inference.bert import Bert
from bert_jax.inference.features import Choice, check_count, features
from bert_jax.model.bert import BertForPretraining, init
from bert_jax.system.errors import UsageError

TEXTS = ["The old cat.", "", "The bright river crosses the broken bridge near the old house number 7.", "dog " * 50]
TEXTS += [("The old cat.", "It sees the dog.")]


def layers_of(bert, text) -> np.ndarray:
    """Every layer's vectors of one text, the embeddings first: [layers, T, D]."""
    ids, parts = bert.tokenizer.vocabulary, [text] if isinstance(text, str) else text
    row, segments = [ids.cls_id], [0]
    for number, part in enumerate(parts):
        pieces = bert.tokenizer.encode(part)[:30]
        row += [*pieces, ids.sep_id]
        segments += [number] * (len(pieces) + 1)
    padding = [0] * (bert.config.max_positions - len(row))
    tokens = tokens_of([row + padding], [segments + padding], [[1] * len(row) + padding])
    return np.asarray(layers_by(bert.config)(bert.params, tokens)[:, 0, : len(row)])


@functools.cache
def layers_by(config):
    """A program that computes every layer's vectors, for one shape of tokens."""
    network = BertForPretraining(config)
    return jax.jit(
        lambda params, tokens: network.apply({"params": params}, tokens, return_layers=True, method="encode").layers
    )


def check(bert, expected, texts=TEXTS, **settings):
    """Every text's vectors are what `expected` makes of its layers."""
    found = list(bert.features(texts, **settings))
    assert [one.text for one in found] == texts
    for one in found:
        layers = layers_of(bert, one.text)
        assert len(one.pieces) == layers.shape[1] and one.pieces[0] == "[CLS]" and one.pieces[-1] == "[SEP]"
        np.testing.assert_allclose(one.vectors, expected(layers), atol=2e-6)


JOINS = {
    "concat": lambda layers: np.concatenate([layers[2], layers[0]], -1),
    "sum": lambda layers: layers[2] + layers[0],
    "mean": lambda layers: (layers[2] + layers[0]) / 2,
    "none": lambda layers: np.stack([layers[2], layers[0]], 1),
}
POOLS = {
    "none": lambda vectors: vectors,
    "cls": lambda vectors: vectors[0],
    "mean": lambda vectors: vectors.mean(0),
    "max": lambda vectors: vectors.max(0),
}


@pytest.mark.parametrize(
    ("join", "pool"),
    [*((join, "none") for join in JOINS), *(("none", pool) for pool in POOLS if pool != "none"), ("concat", "mean")],
)
def test_layers_are_joined_and_tokens_pooled(bert, join, pool):
    check(bert, lambda layers: POOLS[pool](JOINS[join](layers)), layers=(-1, 0), join=join, pool=pool)


def test_unless_layers_are_named_they_are_the_last_four_or_all(bert):
    check(bert, lambda layers: np.concatenate([layers[2], layers[1]], -1))
    assert Choice.of((), "concat", "none", "float32", 12).layers == (12, 11, 10, 9)
    assert Choice.of((0, 1, -1), "sum", "none", "float32", 12).layers == (0, 1, 12)
    assert Choice.of(iter([1, -1]), "concat", "none", "float32", 3).layers == (1, 3)


def test_layers_above_the_highest_are_not_computed(bert):
    check(bert, lambda layers: layers[1], layers=[1])
    check(bert, lambda layers: layers[0], layers=[0])
    damaged = {**bert.params["bert"], "encoder": {"layers": {**bert.params["bert"]["encoder"]["layers"]}}}
    norm = damaged["encoder"]["layers"]["feedforward_norm"]
    damaged["encoder"]["layers"]["feedforward_norm"] = {name: leaf.at[1].set(jnp.nan) for name, leaf in norm.items()}
    without = type(bert)(bert.config, {**bert.params, "bert": damaged}, bert.tokenizer)
    check_same = zip(without.features(TEXTS, [-2]), bert.features(TEXTS, [1]))
    assert all(np.array_equal(one.vectors, other.vectors) for one, other in check_same)
    assert np.isnan(next(without.features(TEXTS)).vectors).any()


def test_half_precision_is_the_same_rounded(bert):
    for pool in ("none", "mean"):
        for half, whole in zip(bert.features(TEXTS, pool=pool, dtype="float16"), bert.features(TEXTS, pool=pool)):
            assert half.vectors.dtype == np.float16 and whole.vectors.dtype == np.float32
            np.testing.assert_allclose(half.vectors, whole.vectors.astype(np.float16), atol=2e-3)


def test_an_endless_stream_is_read_a_bounded_way_ahead(bert, small_windows):
    read = {"cls": itertools.count(), "none": itertools.count()}
    for pool, count in read.items():
        endless = (f"The old cat number {next(count)} sees the dog." for _ in itertools.repeat(None))
        assert len(list(itertools.islice(bert.features(endless, pool=pool), 20))) == 20
    pooled, of_tokens = map(next, read.values())
    assert of_tokens < 0.7 * pooled < 0.7 * 2 * small_windows / 10  # of two vectors a token half as many are held


@pytest.mark.parametrize("layers", [(1,), (3, 2, 0)])
@pytest.mark.long
def test_of_blocks_that_differ_every_layer_has_its_own_vectors(bert, layers):
    """Norms before the layers, so that a parameter has a row less, and local attention in turns."""
    shape = {"num_layers": 3, "hidden_size": 32, "num_heads": 2, "feedforward_size": 48, "local_window": 2}
    config = ModelConfig.modern(**shape, vocabulary_size=len(bert.tokenizer.vocabulary), initializer_range=0.1)
    modern = Bert(config, init(config, jax.random.key(0)), bert.tokenizer)
    check(modern, lambda every: np.concatenate([every[layer] for layer in layers], -1), TEXTS[:2], layers=layers)


@pytest.mark.long
def test_a_causal_models_text_is_pooled_at_its_last_token(bert):
    """Its [CLS] has seen nothing else, and has the same vector in any text."""
    config = bert.config.replace(causal=True)
    given = bert.params, tokens_of([[2, 7, 8, 9], [2, 9, 3, 0]], mask=[[True] * 4, [True] * 3 + [False]])
    every, pooled = (
        features(config, *given, Choice.of((), "concat", pool, "float32", config.num_layers))
        for pool in ("none", "cls")
    )
    np.testing.assert_array_equal(every.tokens[0, 0], every.tokens[1, 0])
    np.testing.assert_array_equal(pooled.pooled, jnp.stack([every.tokens[0, 3], every.tokens[1, 2]]))


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"layers": [3]}, "there is no layer 3: the model has 2, which are 1 to 2 or, from the last, -1 to -2; 0 are"),
        ({"layers": [-3, 1]}, "there is no layer -3"),
        ({"layers": [-1, 2]}, "layers -1 2 name one twice"),
        ({"join": "both"}, "join='both' is unknown; choose from concat, sum, mean, none"),
        ({"pool": "first"}, "pool='first' is unknown"),
        ({"dtype": "float64"}, "dtype='float64' is unknown; choose from float32, float16"),
    ],
)
def test_invalid_settings_are_refused_at_once(bert, settings, words):
    with pytest.raises(UsageError) as refusal:
        bert.features(["text"], **settings)
    assert words in str(refusal.value)


@pytest.mark.parametrize("value", [0, -1, 1.5, "3", None])
def test_a_number_of_results_is_a_whole_one(value):
    with pytest.raises(UsageError, match=f"--top={value} is no whole number of at least 1"):
        check_count("top", value)
    check_count("top", np.int64(3))
