"""ELMo's convolution over bytes: initial values, the constant spelling, and the published numbers of parameters. Its
vectors are compared in tests/pretraining/test_elmo_reference.py."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elmo_models import CONFIG, TEXTS, rows

from bert_jax.model.bert import BertEncoder, init
from bert_jax.model.size import model_parts

CHARACTERS = CONFIG.replace(character_filters=(3, 4, 5))


def spelled():
    """Parameters with a random spelling of 50 pieces."""
    params = jax.jit(functools.partial(init, CHARACTERS))(jax.random.key(0))
    numbers = jax.random.randint(jax.random.key(1), (128, 50), 1, 262).astype(jnp.float32)
    params["bert"]["spelling"]["numbers"] = numbers
    biases = {name: leaf for name, leaf in params["bert"]["embeddings"].items() if name.endswith("bias")}
    for number, (name, leaf) in enumerate(biases.items()):
        params["bert"]["embeddings"][name] = leaf + 0.3 * jax.random.normal(jax.random.key(number), leaf.shape)
    return params


def test_most_of_the_input_is_carried_through_new_highways():
    gates = init(CHARACTERS, jax.random.key(0))["bert"]["embeddings"]["highways_bias"]
    assert np.all(gates[:, 0] == 0) and np.all(gates[:, 1] == -2)


@pytest.mark.long
def test_the_spelling_gets_no_gradient():
    params, tokens = spelled(), rows(*TEXTS)

    def loss(params):
        return jnp.sum(jnp.sin(BertEncoder(CHARACTERS).apply({"params": params}, tokens).tokens))

    gradients = jax.jit(jax.grad(loss))(params["bert"])
    assert not np.any(gradients["spelling"]["numbers"]) and np.any(gradients["embeddings"]["letters"])


PUBLISHED = {
    "original": (1024, 4096, 2, 93_600_864),
    "medium": (512, 2048, 1, 28_027_744),
    "small": (256, 1024, 1, 13_593_312),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name):
    width, cells, highways, expected = PUBLISHED[name]
    filters = (32, 32, 64, 128, 256, 512, 1024)
    config = CONFIG.replace(
        hidden_size=width, feedforward_size=cells, character_filters=filters, highways=highways, vocabulary_size=1000
    )
    of_encoder = [part for part in model_parts(config) if part.in_encoder]
    assert sum(part.copies * part.parameters for part in of_encoder) == expected
    parts = {part.name: part.parameters for part in of_encoder if part.group == "embeddings"}
    assert parts["byte table"] == 4_192 and parts["convolutions"] == 199_168 and "spelling" not in parts
