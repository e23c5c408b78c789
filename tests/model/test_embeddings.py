import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.model import ModelConfig
from bert_jax.layout import TokenSequence, lay_out_sequences
from bert_jax.model.bert import parameter_shapes
from bert_jax.model.embeddings import Embeddings


def test_learned_positions_may_have_an_odd_width():
    config = ModelConfig.tiny(hidden_size=9, num_heads=3, vocabulary_size=30, max_positions=16)
    assert parameter_shapes(config)["bert"]["embeddings"]["position"].shape == (16, 9)


def test_a_row_may_be_longer_than_a_sequence_can_be():
    config = ModelConfig.tiny(max_positions=8, vocabulary_size=20, compute_dtype="float32")
    short, long = (
        jax.tree.map(jnp.asarray, lay_out_sequences([TokenSequence([3, 4, 5, 6, 7, 8], 6)], (1, length), 0))
        for length in (8, 12)
    )
    module = Embeddings(config)
    params = module.init(jax.random.key(0), short, None)
    expected = module.apply(params, short, None)[:, :6]
    np.testing.assert_allclose(module.apply(params, long, None)[:, :6], expected, rtol=1e-6)
