"""Several sequences in one row give what each gives in a row of its own."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.layout import MASKABLE, WORD_START, lay_out
from bert_jax.model.attention_pattern import AttentionPattern, Places
from bert_jax.model.bert import BertForPretraining, init
from bert_jax.model.exact_attention import exact_attention
from bert_jax.pretraining.masking import next_tokens

CONFIG = ModelConfig(
    num_layers=2, hidden_size=32, num_heads=4, max_positions=24, vocabulary_size=100, initializer_range=0.1
)
CONFIGS = {
    "learned": CONFIG,
    "sinusoidal": CONFIG.replace(positions="sinusoidal"),
    "bucketed": CONFIG.replace(positions="bucketed"),
    "disentangled": CONFIG.replace(positions="disentangled", distance_buckets=4, clamped_distance=24),
    "grouped heads, no norm of embeddings": ModelConfig.modern(
        **{"num_layers": 3, "hidden_size": 32, "num_heads": 4, "feedforward_size": 48, "local_window": None},
        **{"max_positions": 24, "vocabulary_size": 100, "initializer_range": 0.1, "global_every": 1},
        **{"key_value_heads": 2, "norm_kind": "rms", "embedding_norm": False, "head": "product", "tied_words": False},
    ),
    "causal": CONFIG.replace(causal=True),
    "rotary, local attention in turns": ModelConfig.modern(
        **{"num_layers": 4, "hidden_size": 32, "num_heads": 4, "feedforward_size": 48, "local_window": 2},
        **{"max_positions": 24, "vocabulary_size": 100, "initializer_range": 0.1},
    ),
}
LENGTHS, FIRSTS = np.array([9, 5, 7, 12]), np.array([4, 5, 3, 6])
ROWS = np.array([0, 0, 0, 1])
TAKES = [(0, 0), (0, 1), (0, 2), (1, 0)]
"""Row and number in it of each sequence when they are packed."""


@pytest.fixture(scope="module")
def layouts():
    """The same four sequences packed in two rows, and each in its own."""
    ids = np.random.default_rng(0).integers(5, 100, LENGTHS.sum()).astype(np.int32)
    units = np.full(len(ids), MASKABLE | WORD_START, np.uint8)
    packed = lay_out(ids, LENGTHS, FIRSTS, (2, 24), units=units, rows=ROWS)
    alone = lay_out(ids, LENGTHS, FIRSTS, (4, 24), units=units)
    return [jax.tree.map(jnp.asarray, tokens) for tokens in (packed, alone)]


def of_sequence(tokens, row, number):
    begin, length = int(tokens.begin[row, number]), int(tokens.length[row, number])
    return row, slice(begin, begin + length)


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.long(first=1)
def test_the_model_gives_each_sequence_what_it_gives_it_alone(layouts, kind):
    config, (packed, alone) = CONFIGS[kind], layouts
    params = init(config, jax.random.key(0))

    @jax.jit
    def computed(tokens, places):
        apply = partial(BertForPretraining(config).apply, {"params": params})
        return apply(tokens, method="encode"), apply(tokens, places)

    together, (pieces, pairs) = computed(packed, jnp.array([[0, 9, 14], [3, 11, 0]]))
    apart, (everywhere, alone_pairs) = computed(alone, None)
    for number, (row, place) in enumerate(TAKES):
        found = together.tokens[of_sequence(packed, row, place)]
        np.testing.assert_allclose(found, apart.tokens[number, : LENGTHS[number]], atol=2e-6)
        np.testing.assert_allclose(together.pooled[row, place], apart.pooled[number, 0], atol=2e-6)
        np.testing.assert_allclose(pairs[row, place], alone_pairs[number, 0], atol=2e-6)
    for slot, number in enumerate((0, 1, 2)):  # their first tokens are at 0, 9 and 14
        np.testing.assert_allclose(pieces[0, slot, :100], everywhere[number, 0, :100], atol=1e-5)


def test_no_next_token_is_that_of_another_sequence(layouts):
    packed, alone = layouts
    asked, expected = next_tokens(packed), next_tokens(alone)
    for number, (row, place) in enumerate(TAKES):
        here = of_sequence(packed, row, place)
        assert np.array_equal(asked.labels[here], expected.labels[number, : LENGTHS[number]])
        assert np.array_equal(asked.weights[here], expected.weights[number, : LENGTHS[number]])
    assert float(asked.weights.sum()) == LENGTHS.sum() - len(LENGTHS)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 0, 2])
def test_a_query_attends_to_what_its_pattern_admits(causal, window):
    sequence = jnp.array([[1, 1, 1, 2, 2, 2, 2, 0]])
    position = jnp.array([[0, 1, 2, 0, 1, 2, 3, 0]])
    places = Places(sequence, position)
    pattern = AttentionPattern(places, places, 2, causal, window)
    wanted = jnp.array([[2, 5]])
    admitted = np.asarray(pattern.of_queries(wanted).admitted()[0])
    for query, row in zip((2, 5), admitted):
        for key in range(8):
            ahead = int(position[0, key] - position[0, query])
            expected = sequence[0, key] == sequence[0, query] and not (causal and ahead > 0)
            assert row[key] == (expected and (window is None or abs(ahead) <= window))
    values = jnp.eye(8)[None, :, None]  # so that the context is the probabilities themselves
    context = exact_attention(jnp.ones((1, 2, 1, 8)), values, values, pattern.of_queries(wanted), 0.0, None)
    assert np.array_equal(np.asarray(context[0, :, 0]) > 0, admitted)
