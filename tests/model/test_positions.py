import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.config.settings import SettingsError
from bert_jax.model.positions import rotated, sinusoids
from bert_jax.model.relatives.bucketed_positions import bucket_of
from bert_jax.model.relatives.disentangled_positions import log_bucket_of


def test_without_positions_they_are_the_places_in_the_row():
    x = jax.random.normal(jax.random.key(0), (2, 7, 3, 4))
    positions = jnp.tile(jnp.arange(7), (2, 1))
    np.testing.assert_allclose(rotated(x, None, 100.0, 7), rotated(x, positions, 100.0, 7), atol=1e-6)
    np.testing.assert_array_equal(rotated(x, None, 100.0, 7)[:, 0], x[:, 0])


def test_sinusoids_are_the_papers_up_to_scale():
    config = ModelConfig(hidden_size=8, num_heads=2, positions="sinusoidal", initializer_range=0.5)
    table = sinusoids(config, 6)
    assert table.shape == (6, 8) and table.dtype == np.float32
    scale = 0.5 * np.sqrt(2)
    np.testing.assert_allclose(table[0], [0, scale] * 4, atol=1e-7)
    by_hand = [f(3 / 10_000 ** (pair / 8)) for pair in (0, 2, 4, 6) for f in (np.sin, np.cos)]
    np.testing.assert_allclose(table[3] / scale, by_hand, rtol=1e-6)
    assert np.sqrt(np.square(sinusoids(ModelConfig(), 512)).mean()) == pytest.approx(0.02)
    np.testing.assert_array_equal(sinusoids(config, 16)[:6], table)


def test_ranges_of_distances_are_those_of_transformers():
    torch, mpnet = pytest.importorskip("torch"), pytest.importorskip("transformers.models.mpnet.modeling_mpnet")
    deberta = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    distances = np.arange(-3000, 3001)
    theirs = mpnet.MPNetEncoder.relative_position_bucket(torch.tensor(-distances)).numpy()
    np.testing.assert_array_equal(bucket_of(distances), theirs)
    for ranges, farthest in ((256, 512), (256, 2048), (6, 19), (7, 40)):
        theirs = deberta.make_log_bucket_position(torch.tensor(distances), ranges, farthest).long().numpy()
        expected = np.clip(theirs + ranges, 0, 2 * ranges - 1)
        np.testing.assert_array_equal(log_bucket_of(distances, ranges, farthest), expected)


DISENTANGLED = {"positions": "disentangled", "distance_buckets": 16, "clamped_distance": 40}
RELATIVE = {"positions": "relative", "num_segments": 0}
LSTM = {"layer": "lstm", "positions": "none", "num_segments": 0}
NO_OTHER = "--model.positions=relative with .*: no other is possible with relative positions"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (DISENTANGLED | {"distance_buckets": 1}, "distance-buckets=1"),
        (DISENTANGLED | {"clamped_distance": 9}, "clamped-distance=9 is too small for .*: give 10 or more"),
        (DISENTANGLED | {"clamped_distance": None}, "clamped-distance"),
        (DISENTANGLED | {"key_value_heads": 4}, "key-value-heads=4 needs rotary"),
        (DISENTANGLED | {"local_window": 4}, "local-window"),
        *((RELATIVE | changes, NO_OTHER) for changes in ({"num_segments": 2}, {"causal": True}, {"norm": "pre"})),
        (RELATIVE | {"embedding_size": 8}, NO_OTHER),
        (RELATIVE | {"local_window": 2, "global_every": 2}, NO_OTHER),
        ({"clamped_distance": 5}, "--model.clamped-distance=5 needs relative or disentangled positions"),
        ({"num_heads": 12, "key_value_heads": 5}, "num-heads=12 is not a multiple of --model.key-value-heads=5"),
        ({"key_value_heads": 6, "discriminator": True, "generator_divisor": 4}, "key-value-heads=6 is not a multiple"),
        ({"head": "product"}, "tied-words"),
        ({"embedding_norm": False}, "embedding-norm"),
        ({"biases": False, "block_biases": False}, "block-biases"),
        (LSTM | {"key_value_heads": 2}, "key-value-heads"),
    ],
)
def test_settings_that_have_no_effect_or_do_not_go_together_are_refused(settings, words):
    with pytest.raises(SettingsError, match=words):
        ModelConfig(**settings)


def test_a_generator_has_its_share_of_grouped_heads():
    model = ModelConfig(key_value_heads=6, discriminator=True, generator_divisor=3)
    assert (model.generator.num_heads, model.generator.key_value_heads) == (4, 2)
